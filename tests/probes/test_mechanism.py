"""The mechanism probe: cuts against dense masks, identities, and networks made so that the path is known."""

import math
from dataclasses import replace
from functools import partial

import pytest
import torch

import maskwise as mw
from helpers.known import SMALL, known_model, known_path, shipped_tokenizer, uniform
from helpers.tiny import tiny_ar, tiny_dream, tiny_llada, tiny_llada_moe
from maskwise.models.attention.ragged import Layout, RowGroup
from maskwise.models.batch import Batch
from maskwise.probes.answers.changed_attention import answer_logits
from maskwise.probes.extra_tokens import (
    ANSWER,
    BIASED,
    BOTH,
    CHANGES,
    ONE_POSITION,
    OTHERS,
    PLACES,
    ChangedPrompt,
    question_starts,
    slots,
    with_extra,
)
from maskwise.probes.library.mechanism import (
    BASELINE,
    FILLERS,
    MASKS,
    PARTS,
    PLACE_NAMES,
    PROBE,
    SEEN_BY,
    by_place,
    by_rows,
    by_weight,
    condition_of,
    conditions,
    metrics,
    prompts_of,
)
from maskwise.probes.questions import ended
from maskwise.probes.setup import Asker
from maskwise.records.folder import read_run
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import DEFAULT, FULL, QUICK
from maskwise.support.errors import UserError
from maskwise.support.randomness import python_random
from maskwise.tasks.episodes import draw, mixed
from maskwise.tasks.prompts import encode_question, filler_id
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

FAMILIES = (tiny_llada, tiny_dream, tiny_llada_moe)
MASK, FILLER, WANTED = 63, 7, 5


# Cuts against dense attention


def plain_prompt(length=11, seed=0):
    """Random text, then two masks of which the first is the answer."""
    ids = torch.randint(8, 60, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    return ChangedPrompt((*ids, MASK, MASK), length, WANTED, 2)


def changed(attention, token=MASK, before=(13,) * 6, length=11, seed=0):
    return with_extra(plain_prompt(length, seed), before, token, token == MASK, attention)


def dense_logits(model, prompt):
    """By an explicit [T, T] mask and explicit positions, one prompt."""
    length, answer_row = len(prompt.ids), prompt.row - 1 if model.shift else prompt.row
    mask, positions = torch.zeros(length, length), torch.arange(length)
    for row in range(length):
        for key in prompt.extra:
            from_answer = row == answer_row and prompt.attention in (ANSWER, BOTH)
            from_others = row != answer_row and row not in prompt.extra and prompt.attention in (OTHERS, BOTH)
            if from_answer or from_others:
                mask[row, key] = -torch.inf
            if prompt.attention == BIASED:
                mask[row, key] = -math.log(len(prompt.extra))
    if prompt.attention == ONE_POSITION:
        positions[list(prompt.extra)] = prompt.extra[0]
    offsets = torch.tensor([0, length], dtype=torch.int32)
    layout = Layout(offsets, offsets, length, length, causal=False, flash=False, key_mask=mask[None, None])
    hidden = model.core.model.run(model.embed(torch.tensor(prompt.ids)), positions, layout)
    return model.head(hidden[[answer_row]])


@pytest.mark.parametrize("make", FAMILIES)
@pytest.mark.parametrize("attention", CHANGES)
@pytest.mark.parametrize("before", [(13,) * 6, (0, 0, 3, 3, 3, 9)])
@torch.no_grad()
def test_every_change_equals_a_dense_mask(make, attention, before):
    model = make()
    for token in (MASK, FILLER):
        prompt = changed(attention, token, before)
        found, wanted = answer_logits(model, [prompt]), dense_logits(model, prompt)
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("make", FAMILIES)
@torch.no_grad()
def test_each_change_changes_something(make):
    """Else the comparison with a dense mask would say little."""
    model = make()
    found = torch.cat([answer_logits(model, [changed(attention)]) for attention in CHANGES])[:, :MASK]
    assert torch.cdist(found, found).add(torch.eye(len(CHANGES)) * 9).min() > 1e-3


@pytest.mark.parametrize("make", FAMILIES)
@torch.no_grad()
def test_cut_from_both_equals_two_masks(make):
    model = make()
    for token in (MASK, FILLER):
        found = answer_logits(model, [changed(BOTH, token)])
        torch.testing.assert_close(found, answer_logits(model, [plain_prompt()]), atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_masks_in_one_position_and_biased_are_one_mask():
    """Both changes together: n equal tokens that weigh as much as one."""
    model, prompt = tiny_llada(), changed(ONE_POSITION)
    everything = torch.arange(len(prompt.ids))
    bias = torch.zeros(len(prompt.ids))
    bias[list(prompt.extra)] = -math.log(len(prompt.extra))
    batch = Batch.pack([prompt.ids])
    batch = replace(batch, moved=everything.clamp(max=prompt.extra[0]))
    found = model.head(model.hidden_of_groups(batch, [RowGroup(everything, everything, bias)])[[prompt.row]])
    three = model.predict([[*plain_prompt().ids, MASK]], [[prompt.row]])[0]
    torch.testing.assert_close(found, three, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("make", FAMILIES)
@torch.no_grad()
def test_answers_do_not_depend_on_batch_composition(make):
    model = make()
    prompts = [
        changed(attention, length=7 + 2 * n, before=(n, 9 + 2 * n), seed=n) for n, attention in enumerate(CHANGES)
    ]
    together = answer_logits(model, [*prompts, plain_prompt()])
    alone = torch.cat([answer_logits(model, [prompt]) for prompt in [*prompts, plain_prompt()]])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(answer_logits(model, prompts[::-1]), together[:-1].flip(0), atol=1e-5, rtol=1e-5)


# Where the tokens are put


@pytest.mark.parametrize("place", PLACES)
def test_extra_tokens_leave_the_text_and_the_answer_as_they_are(place):
    plain, parts = plain_prompt(), [-1, 0, 0, 0, 1, 1, 2, 2, 2, 3, 3]
    starts = question_starts(parts)
    assert starts == [1, 4, 6, 9]
    before = slots(place, 5, starts, len(plain.ids), python_random("a test"))
    prompt = with_extra(plain, before, MASK, True, "whole")
    assert tuple(x for n, x in enumerate(prompt.ids) if n not in prompt.extra) == plain.ids
    assert {prompt.ids[n] for n in prompt.extra} == {MASK} and len(prompt.extra) == 5
    assert prompt.masks == 7 and prompt.ids[prompt.row : prompt.row + 2] == (MASK, MASK)
    assert prompt.ids[: prompt.row][-1] == plain.ids[plain.row - 1] or place == "end"
    wanted = {"end": {13}, "front": {1}, "middle": {6}}
    assert set(before) == wanted.get(place, set(before)) and set(before) <= {*starts, 13}


def test_each_change_and_place_is_asked_of_masks_and_fillers():
    asked = conditions((20, 200))
    assert len(asked) == len({str(condition) for condition in asked}) == 1 + 2 * (6 + 4 + 6)
    for place in PLACES:
        assert condition_of(MASKS, 200, place) in asked and condition_of(FILLERS, 200, place) in asked
    assert condition_of(FILLERS, 20) == {"masks": 2, "fillers": 18, "place": "end", "attention": "whole"}


def test_prompts_are_those_of_mask_count_and_fillers_stand_where_masks_do():
    tokenizer = shipped_tokenizer()
    asker = Asker(tokenizer, tokenizer.mask_token_id, filler_id(tokenizer, "."))
    episode = draw(TASKS[0], load_words(), 2, 4, 2)
    prompt = partial(prompts_of(asker, episode), 1)
    encoded = encode_question(tokenizer, mixed(episode), episode.tests[1])
    two, many = (ended(asker, encoded, k) for k in (2, 20))
    assert prompt(BASELINE).ids == two.ids and prompt(BASELINE).row == two.row
    for place in PLACES:
        masks, fillers = (prompt(condition_of(tokens, 20, place)) for tokens in (MASKS, FILLERS))
        assert (masks.ids == many.ids) == (place == "end")
        assert masks.extra == fillers.extra and len(masks.extra) == 18 and masks.row == fillers.row
        assert {fillers.ids[n] for n in fillers.extra} == {asker.filler_id}
        assert (masks.masks, fillers.masks) == (20, 2)
        text = tokenizer.decode([i for i in masks.ids if i != asker.mask_id])
        assert text == tokenizer.decode(two.ids[: two.row])
    scattered = prompt(condition_of(MASKS, 20, "scattered"))
    assert len({place - number for number, place in enumerate(scattered.extra)}) > 3


def test_it_is_asked_in_full_and_by_name_only():
    assert "mechanism" in FULL.probes and not {"mechanism"} & {*QUICK.probes, *DEFAULT.probes}


# Networks made so that the path is known


ASKED = replace(SMALL, probes=("mechanism",)).changed("mechanism", mask_counts=(20,))


@pytest.mark.parametrize(
    ("act", "answer", "others", "interaction"),
    [
        (lambda direct, context: direct, -1, 0, 0),
        (lambda direct, context: context, 0, -1, 0),
        (torch.maximum, -1, -1, 1),
        (torch.minimum, 0, 0, -1),
    ],
)
def test_the_path_is_found(act, answer, others, interaction, tmp_path):
    """Of the parts, those act whose interval lies on the side of the total."""
    diagnose(known_path(act), ASKED, tmp_path)
    table = mw.read_run(tmp_path).table("mechanism")
    found = {one.name: one for one in metrics(table, {})}
    wanted = dict(zip(PARTS, (-1, answer, others, interaction), strict=True))
    for measure in ("accuracy", "log-likelihood"):
        parts = {part: found[f"{measure} with 20 masks instead of 2{part}"] for part in PARTS}
        acting = {part for part, one in parts.items() if round(one.value, 2)}
        assert acting == {part for part, value in wanted.items() if value}
        if measure == "accuracy":
            assert {part: one.value for part, one in parts.items()} == pytest.approx(wanted)
            assert {one.side for part, one in parts.items() if wanted[part] == -1} == {-1}
    assert found["accuracy with 18 fillers after 2 masks instead of none"].value == 0
    assert found["largest difference where no row sees them, rounding"].value < 1e-5
    places = [one.value for name, one in found.items() if name.endswith("less with as many fillers there")]
    assert places == [-1] * len(PLACES)
    shown = by_weight(table, {})
    accuracy = shown[shown.measure == "correct"].set_index("attention").value
    assert accuracy["biased"] == 1 and accuracy["one position"] == 0  # 20 masks weigh as much as three; no positions
    assert set(by_rows(table, {}).attention) == {"2 masks", *SEEN_BY.values()}
    assert set(by_place(table, {}).place) == {"2 masks", *PLACE_NAMES.values()}


# Who is asked


def test_models_that_cannot_be_asked_get_the_reason(tmp_path):
    asked = replace(ASKED, probes=("mask-count", "mechanism"))
    run = read_run(diagnose(known_model(uniform), asked, tmp_path))
    (note,) = run.manifest["notes"]
    assert note == "mechanism was not run: the attention of a wrapped transformers model cannot be cut"
    assert {record["probe"] for record in run.records} == {"mask-count"}
    with pytest.raises(UserError, match="mechanism does not apply"):
        diagnose(tiny_ar(tokenizer=shipped_tokenizer(), vocab=2048), ASKED, tmp_path / "ar")
    with pytest.raises(UserError, match="at least 3, not 2"):
        diagnose(known_path(torch.maximum), ASKED.changed("mechanism", mask_counts=(2, 20)), tmp_path / "two")


def test_an_unfinished_run_can_be_shown(tmp_path):
    diagnose(known_path(torch.maximum), replace(ASKED, questions=2), tmp_path)
    table = mw.read_run(tmp_path).table("mechanism")
    for kept in (1, 3, 12, 20):
        some = table[:kept]
        assert len(metrics(some, {})) >= (kept > 1)
        for figure in PROBE.figures:
            figure.data(some, {})
