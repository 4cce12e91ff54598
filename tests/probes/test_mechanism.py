"""The mechanism probe: cuts against dense masks, identities, and networks made so that the path is known."""

import math
from dataclasses import replace

import pytest
import torch

from helpers.known import SMALL, diagnosed, known_model, known_path, shipped_tokenizer, uniform
from helpers.tiny import tiny_ar, tiny_dream, tiny_llada, tiny_llada_moe
from maskwise.models.attention.ragged import Layout
from maskwise.probes.answers.changed_attention import answer_logits, row_groups
from maskwise.probes.extra_tokens import ANSWER, BIASED, BOTH, OTHERS, WHOLE, changed
from maskwise.probes.library.mechanism import INTERACTION, PROBE, ROWS, TWO, by_rows, metrics
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import DEFAULT, FULL, QUICK
from maskwise.support.errors import UserError
from maskwise.tasks.prompts import Prompt

FAMILIES = (tiny_llada, tiny_dream, tiny_llada_moe)
MASK, WANTED = 63, 5


# Cuts against dense attention


def plain_prompt(length=11, seed=0, masks=2):
    """Random text, then masks of which the first is the answer."""
    ids = torch.randint(8, 60, (length,), generator=torch.Generator().manual_seed(seed)).tolist()
    return Prompt((*ids, *[MASK] * masks), length, WANTED, masks)


def changed_prompt(attention, length=11, seed=0):
    return changed(plain_prompt(length, seed, 8), attention)


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
    offsets = torch.tensor([0, length], dtype=torch.int32)
    layout = Layout(offsets, offsets, length, length, causal=False, flash=False, key_mask=mask[None, None])
    hidden = model.core.model.run(model.embed(torch.tensor(prompt.ids)), positions, layout)
    return model.head(hidden[[answer_row]])


@pytest.mark.parametrize("make", FAMILIES)
@pytest.mark.parametrize("attention", ROWS)
@torch.no_grad()
def test_every_change_equals_a_dense_mask(make, attention):
    model, prompt = make(), changed_prompt(attention)
    assert prompt.extra == tuple(range(13, 19))
    torch.testing.assert_close(answer_logits(model, [prompt]), dense_logits(model, prompt), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("make", FAMILIES)
@torch.no_grad()
def test_each_change_changes_something(make):
    """Else the comparison with a dense mask would say little."""
    model = make()
    found = torch.cat([answer_logits(model, [changed_prompt(attention)]) for attention in ROWS])[:, :MASK]
    assert torch.cdist(found, found).add(torch.eye(len(ROWS)) * 9).min() > 1e-3


@pytest.mark.parametrize("make", FAMILIES)
@torch.no_grad()
def test_cut_from_both_equals_two_masks(make):
    model = make()
    two = model.predict([plain_prompt().ids], [[11]])[0]
    torch.testing.assert_close(answer_logits(model, [changed_prompt(BOTH)]), two, atol=1e-5, rtol=1e-5)
    whole = model.predict([plain_prompt(masks=8).ids], [[11]])[0]
    torch.testing.assert_close(answer_logits(model, [changed_prompt(WHOLE)]), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("make", FAMILIES)
@torch.no_grad()
def test_answers_do_not_depend_on_batch_composition(make):
    model = make()
    prompts = [changed_prompt(attention, length=7 + 2 * n, seed=n) for n, attention in enumerate(ROWS)]
    together = answer_logits(model, prompts)
    alone = torch.cat([answer_logits(model, [prompt]) for prompt in prompts])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(answer_logits(model, prompts[::-1]), together.flip(0), atol=1e-5, rtol=1e-5)


def test_where_no_mask_stands_behind_the_second_no_key_is_biased():
    ((_, _, bias),) = row_groups(changed(Prompt((5, 0, 0), 1, 6, 2), BIASED), 1)
    assert torch.equal(bias, torch.zeros(3))


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
    table = diagnosed(known_path(act), ASKED, tmp_path).table("mechanism")
    found = {one.name: one for one in metrics(table, {})}
    wanted = {"": -1, ", seen by the answer's row alone": answer, ", seen by the other rows alone": others}
    wanted |= {INTERACTION: interaction, ", with biased keys": 0}  # 20 masks weigh as much as three
    for measure in ("accuracy", "log-likelihood"):
        parts = {part: found[f"{measure} with 20 masks instead of 2{part}"] for part in wanted}
        if measure == "accuracy":
            assert {part: one.value for part, one in parts.items()} == pytest.approx(wanted)
            assert {one.side for part, one in parts.items() if wanted[part] == -1} == {-1}
        acting = {part for part, one in parts.items() if round(one.value, 2)}
        assert {part for part, value in wanted.items() if value} <= acting
    shown = by_rows(table, {})
    right = shown[shown.measure == "correct"].set_index("rows")
    assert set(right.index) == {TWO, *ROWS.values()} and right.value[ROWS[BIASED]] == right.value[ROWS[BOTH]] == 1
    assert right.change[ROWS[WHOLE]] == -1
    assert right.value[[ROWS[OTHERS], ROWS[ANSWER]]].tolist() == pytest.approx([1 + answer, 1 + others])
    none = table[table.attention == BOTH].nll.to_numpy()
    assert none == pytest.approx(table[table.attention.isna()].nll.to_numpy(), abs=1e-5)  # to rounding


# Who is asked


def test_models_that_cannot_be_asked_get_the_reason(tmp_path):
    asked = replace(ASKED, probes=("mask-count", "mechanism"))
    run = diagnosed(known_model(uniform), asked, tmp_path)
    assert len(run.manifest.notes) == 1 and [*run.tables] == ["mask-count"]
    with pytest.raises(UserError, match="mechanism does not apply"):
        diagnose(tiny_ar(tokenizer=shipped_tokenizer(), vocab=2048), ASKED, tmp_path / "ar")
    with pytest.raises(UserError, match="at least 3, not 2"):
        diagnose(known_path(torch.maximum), ASKED.changed("mechanism", mask_counts=(2, 20)), tmp_path / "two")


def test_an_unfinished_run_can_be_shown(tmp_path):
    table = diagnosed(known_path(torch.maximum), replace(ASKED, questions=2), tmp_path).table("mechanism")
    for kept in (1, 3, 12, 20):
        some = table[:kept]
        assert len(metrics(some, {})) >= (kept > 1)
        for figure in PROBE.figures:
            figure.data(some, {})
