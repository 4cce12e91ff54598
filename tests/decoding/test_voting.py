"""Voting over the steps of a decoding: a model that changes its mind in the last step."""

import warnings
from itertools import pairwise

import pytest
import torch
from transformers import PretrainedConfig

from helpers.known import hand_made, shipped_tokenizer
from maskwise.decoding.generate import generate
from maskwise.support.errors import UserError, UserNotice

NEW = 12
PATTERN = r"^\s*([AB])"


@pytest.fixture(scope="module")
def changing():
    """Writes the first token last: A as long as another mask is left, B when it is alone."""
    tokenizer = shipped_tokenizer()
    a, b, other = (tokenizer.convert_tokens_to_ids(token) for token in ("A", "B", "C"))

    def body(net, batch, layout):
        hidden = torch.zeros(batch.tokens, len(tokenizer))
        for start, end in pairwise(batch.offsets.tolist()):
            ids = batch.ids[start:end].tolist()
            masked = [place for place, token in enumerate(ids) if token == tokenizer.mask_token_id]
            for place in masked:
                hidden[start + place, other] = 40.0
            if len(ids) - NEW in masked:
                hidden[start + len(ids) - NEW, other] = 0.0
                hidden[start + len(ids) - NEW, a if len(masked) > 1 else b] = 5.0
        return hidden

    model = hand_made(body, name="changing")
    model.net.config = PretrainedConfig(eos_token_id=None)
    return model


def test_a_vote_returns_the_answer_of_most_steps_and_costs_no_pass(changing):
    prompts = ["Answer:[", "Once more, answer:["]
    plain = generate(changing, prompts, NEW, chat=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserNotice)
        voted = generate(changing, prompts, NEW, chat=False, vote=PATTERN)
    assert [one.text[0] for one in plain] == ["B", "B"] and [one.text[0] for one in voted] == ["A", "A"]
    for last, elected in zip(plain, voted, strict=True):
        assert (elected.forwards, elected.order, elected.ids[1:]) == (last.forwards, last.order, last.ids[1:])
        assert elected.sequence[-NEW:] == elected.ids
    assert voted.settings["vote"] == PATTERN


def test_where_no_step_has_an_answer_the_last_step_counts(changing):
    with pytest.warns(UserNotice, match="'\\(never\\)' matches none of the generated texts, so the vote") as said:
        assert generate(changing, "Answer:[", NEW, chat=False, vote="(never)")[0].text.startswith("B")
    assert len(said) == 1


def test_a_vote_sees_each_prompt_alone_and_blocks_as_they_are_filled(changing):
    (alone,) = generate(changing, "Answer:[", NEW, chat=False, vote=PATTERN, block=4, batch=1)
    both = generate(changing, ["Answer:[", "Once more, answer:["], NEW, chat=False, vote=PATTERN, block=4)
    assert both[0].ids == alone.ids and shipped_tokenizer().mask_token_id not in alone.ids


def test_a_pattern_that_does_not_compile_is_refused(changing):
    with pytest.raises(UserError, match="vote: the pattern '\\(' does not compile"):
        generate(changing, "Answer:[", NEW, vote="(")
