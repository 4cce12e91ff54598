"""Insertion and deletion in a block, with known answers, and whole decodings of a small LLaDA2.2."""

import pytest
import torch

import maskwise as mw
from helpers.tiny import llada22_net
from maskwise.decoding.strategies.levenshtein import EditedBlock, EditTokens
from maskwise.support.errors import UserError

MASK, DELETE, SPLIT, VOCAB = 0, 1, 2, 12
TOKENS = EditTokens(MASK, DELETE, SPLIT)


def certain(*tokens, chance=0.9):
    """Logits that give each token this probability, and the mask none."""
    found = torch.full((len(tokens), VOCAB), (1 - chance) / (VOCAB - 2)).log()
    for place, token in enumerate(tokens):
        found[place, token] = torch.tensor(chance).log()
    found[:, MASK] = float("-inf")
    return found


def test_delete_closes_the_gap_and_split_inserts_a_mask_before_the_token():
    assert TOKENS.apply([5, DELETE, 7, 8], [5, 6, 7, 8], [True] * 4, 0) == ([5, 7, 8, MASK], [True] * 3 + [False])
    assert TOKENS.apply([5, SPLIT, 7, 8], [5, 6, 7, 8], [True] * 4, 0) == ([5, MASK, 6, 7], [True, False, True, True])
    assert TOKENS.apply([DELETE, SPLIT], [DELETE, SPLIT], [False] * 2, 2) == ([DELETE, SPLIT], [False] * 2)


def test_a_block_is_filled_edited_and_ends_when_a_pass_changes_nothing():
    block = EditedBlock([3, MASK, MASK, MASK], 1, TOKENS, threshold=0.5, edit=0.0)
    assert block.step(certain(9, 5, 6, 7)) and block.tokens == [3, 5, 6, 7]  # the prompt's token stays
    assert block.step(certain(9, 5, SPLIT, 7)) and block.tokens == [3, 5, MASK, 6]
    assert block.step(certain(9, 5, 8, 6)) and block.tokens == [3, 5, 8, 6]
    assert block.step(certain(9, DELETE, 8, 6)) and block.tokens == [3, 8, 6, MASK]
    assert block.step(certain(9, 8, 6, 10)) and block.tokens == [3, 8, 6, 10]
    assert not block.step(certain(9, 8, 6, 10)) and block.passes == 6


def test_below_the_threshold_one_mask_is_filled_a_pass_and_inserted_ones_come_on_top():
    block = EditedBlock([MASK] * 4, 0, TOKENS, threshold=0.95, edit=0.5)
    logits = certain(5, 6, 7, 8, chance=0.6)
    logits[2] = certain(7, chance=0.8)[0]
    assert block.step(logits) and block.tokens == [MASK, MASK, 7, MASK]
    again = certain(5, 6, SPLIT, 8, chance=0.6)
    again[1] = certain(6, chance=0.7)[0]
    assert block.step(again) and block.tokens == [MASK, 6, MASK, 7]  # the last mask was pushed out
    assert block.step(certain(5, 6, 8, 7, chance=0.6)) and block.tokens == [5, 6, 8, 7]


def test_a_state_that_returns_takes_the_next_best_token_and_the_last_pass_no_edit():
    block = EditedBlock([MASK, MASK], 0, TOKENS, threshold=0.5, edit=0.0)
    flips = [certain(5, 6), certain(7, 6), certain(5, 6), certain(7, 6)]
    for logits in flips:
        assert block.step(logits)
    assert block.tokens != [7, 6]  # 5 6 stood there before
    while block.step(certain(SPLIT, SPLIT)):
        assert block.passes < 40
    assert DELETE not in block.tokens and SPLIT not in block.tokens and MASK not in block.tokens


@pytest.fixture(scope="module")
def model():
    return mw.wrap(llada22_net())


def test_generation_leaves_no_mask_and_no_edit_and_does_not_depend_on_other_prompts(model):
    prompts = [[7, 8, 9], [5] * 11]
    made = mw.generate(model, prompts, max_new_tokens=10, rule="threshold", tau=0.02, edit=0.0)
    alone = mw.generate(model, prompts[1:], max_new_tokens=10, rule="threshold", tau=0.02, edit=0.0)
    config = model.core.config
    for one in made:
        assert len(one.ids) == 10
        assert not {model.mask_id, config.delete_token_id, config.split_token_id} & set(one.ids)
    assert made[1].ids == alone[0].ids


def test_other_options_are_refused(model):
    with pytest.raises(UserError, match="take no temperature"):
        mw.generate(model, [[7]], max_new_tokens=8, rule="threshold", edit=0.0, temperature=1.0)
    with pytest.raises(UserError, match="go with the strategy threshold"):
        mw.generate(model, [[7]], max_new_tokens=8, rule="factor", edit=0.0)
