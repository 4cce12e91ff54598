"""The mechanism probe: cuts against dense masks, identities, and networks made so that the path is known."""

import math
from dataclasses import replace

import pytest
import torch

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
from maskwise.probes.few_shot import few_shot_items
from maskwise.probes.library.mechanism import PROBE, changed_items, sentence
from maskwise.probes.paths import BASELINE, FILLERS, MASKS, condition_of, conditions, mechanism, path_of
from maskwise.probes.probe import Asker, Variant
from maskwise.probes.summary import summarise
from maskwise.records.folder import read_run
from maskwise.records.record import condition_text
from maskwise.report.pages.page import build
from maskwise.report.readings import read_all
from maskwise.report.words.printed_summary import print_summary
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import DEFAULT, FULL, QUICK
from maskwise.scoring.scores import score
from maskwise.support.errors import UserError
from maskwise.support.randomness import python_random
from maskwise.tasks.episodes import draw
from maskwise.tasks.prompts import filler_id
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
    found = {
        condition_text(item.condition): item.prompt
        for item in changed_items(asker, episode, conditions((20,)))([1], set())
    }
    variants = [Variant("mask-count", {"masks": k}, open=True, masks=k) for k in (2, 20)]
    two, many = (item.prompt for item in few_shot_items(asker, lambda point: episode, variants, [1], set()))
    assert found[condition_text(BASELINE)].ids == two.ids and found[condition_text(BASELINE)].row == two.row
    for place in PLACES:
        masks, fillers = (found[condition_text(condition_of(tokens, 20, place))] for tokens in (MASKS, FILLERS))
        assert (masks.ids == many.ids) == (place == "end")
        assert masks.extra == fillers.extra and len(masks.extra) == 18 and masks.row == fillers.row
        assert {fillers.ids[n] for n in fillers.extra} == {asker.filler_id}
        assert (masks.masks, fillers.masks) == (20, 2)
        text = tokenizer.decode([i for i in masks.ids if i != asker.mask_id])
        assert text == tokenizer.decode(two.ids[: two.row])
    scattered = found[condition_text(condition_of(MASKS, 20, "scattered"))]
    assert len({place - number for number, place in enumerate(scattered.extra)}) > 3


def test_it_is_asked_in_full_and_by_name_only():
    assert "mechanism" in FULL.probes and not {"mechanism"} & {*QUICK.probes, *DEFAULT.probes}


# Networks made so that the path is known


ASKED = replace(SMALL, probes=("mechanism",)).changed("mechanism", mask_counts=(20,))


@pytest.mark.parametrize(
    ("act", "path", "answer", "others", "interaction"),
    [
        (lambda direct, context: direct, "answer", -1, 0, 0),
        (lambda direct, context: context, "others", 0, -1, 0),
        (torch.maximum, "answer and others", -1, -1, 1),
        (torch.minimum, "interaction", 0, 0, -1),
    ],
)
def test_the_path_is_named(act, path, answer, others, interaction, tmp_path):
    summary = summarise(read_run(diagnose(known_path(act), ASKED, tmp_path)))["mechanism"]
    masks, fillers = summary["paths"]
    assert masks["points"]["path"] == masks["nats"]["path"] == path
    values = {name: masks["points"][name]["value"] for name in ("total", "answer", "others", "interaction")}
    assert values == pytest.approx({"total": -1, "answer": answer, "others": others, "interaction": interaction})
    assert masks["points"]["shares"] == pytest.approx(
        {"answer": -answer, "others": -others, "interaction": -interaction}
    )
    assert fillers["points"]["path"] == "no effect detected" and fillers["points"]["shares"] is None
    assert summary["largest difference"] < 1e-5
    by_condition = {str(change["condition"]): change["points"]["value"] for change in summary["changes"]}
    assert by_condition[str(condition_of(MASKS, 20, attention=BIASED))] == 0  # 20 masks weigh as much as three
    assert by_condition[str(condition_of(MASKS, 20, attention=ONE_POSITION))] == -1  # positions mean nothing to it
    assert {one["points"]["value"] for one in summary["places"]} == {-1}


def test_what_it_says(tmp_path, capsys):
    diagnose(known_path(lambda direct, context: direct), ASKED, tmp_path)
    (reading,) = read_all([tmp_path])
    page, drawings = build([reading])
    assert "20 masks against 2 masks: −100.0" in page and "they act on the answer&#39;s own row" in page
    assert {"mechanism.svg", "mask-places.svg"} <= drawings.keys()
    print_summary(reading)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split() == ["20", "masks,", "path", "answer", "answer"] for line in lines)
    assert len([line for line in lines if line.startswith("20 masks, ")]) == 6 + 3 + 2
    assert max(map(len, lines)) <= 80


def test_a_path_is_named_only_where_the_loss_excludes_zero():
    loss, gain, unsure = score(-0.2, -0.3, -0.1), score(0.2, 0.1, 0.3), score(-0.2, -0.5, 0.1)
    assert path_of({"total": unsure, "answer": loss, "others": loss, "interaction": gain}) == "no effect detected"
    assert path_of({"total": loss, "answer": loss, "others": gain, "interaction": loss}) == "answer"
    assert path_of({"total": gain, "answer": unsure, "others": gain, "interaction": unsure}) == "others"
    assert path_of({"total": loss, "answer": unsure, "others": unsure, "interaction": loss}) == "interaction"
    assert path_of({"total": loss, "answer": unsure, "others": unsure, "interaction": unsure}) == "inconclusive"


def test_a_change_of_format_is_distinguished_from_a_change_of_content(tmp_path):
    """Where records say how likely the right answer is among the allowed ones."""
    run = read_run(diagnose(known_path(lambda direct, context: direct), replace(ASKED, points=3), tmp_path))
    only_format = [record | {"nll_choice": 0.1} for record in run.records]
    (masks, _) = mechanism(only_format)["paths"]
    assert masks["nats"]["path"] == "answer" and masks["content"]["path"] == "no effect detected"
    output = sentence(masks, "20 masks").replace("\u00a0", " ")
    assert ", 0.000 nats (no interval) of them in the choice among the allowed answers: they act on" in output
    older = [record | {"nll_choice": None} for record in run.records]
    assert "content" in mechanism(run.records)["paths"][0] and "content" not in mechanism(older)["paths"][0]


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
    run = read_run(diagnose(known_path(torch.maximum), replace(ASKED, points=2), tmp_path))
    for kept in (1, 3, 12, 20):
        summary = summarise(replace(run, records=run.records[:kept]))
        assert PROBE.tables is not None and PROBE.tables(summary)[0].head[1:] == ("points", "nats")
