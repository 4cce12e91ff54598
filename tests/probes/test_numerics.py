"""numerics: settings that should not matter, on models whose flips are known, and on a small random network."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.special import ndtr

import maskwise as mw
from helpers.known import SMALL, hand_made, shipped_tokenizer, with_parameters
from helpers.tiny import tiny_llada
from maskwise.probes.answers.varied_numerics import ModelCopies, ask_under, attention_of, emulated, parts
from maskwise.probes.library.numerics import PROBE, in_words
from maskwise.probes.numeric_flips import NumericsSummary, numerics_summary
from maskwise.probes.numeric_settings import (
    AGAIN,
    BFLOAT16,
    EMULATED,
    FLOAT16,
    FLOAT32,
    GENERATIONS,
    ONE_PASS,
    SINGLE,
    Machine,
    NumericSetting,
    drawn_settings,
    single_settings,
)
from maskwise.probes.probe import Asker, Setup
from maskwise.probes.summary import summarise
from maskwise.probes.text import load_text
from maskwise.records.folder import read_run
from maskwise.report.readings import read_all
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import chosen_settings
from maskwise.scoring.flips import Flips, run_noise
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.words import load_words

SETTINGS = with_parameters(
    replace(SMALL, probes=("numerics",), points=2),
    numerics={
        "points": 2, "distractors": 1, "draws": 2, "questions": 2, "canvas": 6, "steps": 3, "generation_draws": 2,
    },
)  # fmt: skip


@pytest.fixture(scope="module")
def small():
    tokenizer = shipped_tokenizer()
    return tiny_llada(tokenizer=tokenizer, vocab=2056, window=2048, mask_token_id=tokenizer.mask_token_id)


@pytest.fixture(scope="module")
def folder(small, tmp_path_factory):
    return diagnose(small, SETTINGS, tmp_path_factory.mktemp("numerics") / "run")


def test_the_deterministic_path_changes_none_of_its_answers_and_float32_flips_are_ties(folder):
    found = numerics_summary(read_run(folder).records)
    repeated = [one for one in found.flips if one.setting == "repeated"]
    assert [(one.answers, one.flipped) for one in repeated] == [("one pass", 0), ("generations", 0)]
    for one in found.flips:
        if one.setting in ("batch", "order", "attention", "cache"):
            assert one.flipped == one.ties, one


def test_each_setting_is_compared_with_float32_and_both_kinds_of_answers_are_apart(folder):
    found = numerics_summary(read_run(folder).records)
    asked = {(one.answers, one.setting) for one in found.flips}
    sums = {"batch", "order", "attention", "bfloat16", "float16", "repeated"}
    assert asked == {("one pass", name) for name in sums} | {("generations", name) for name in (*sums, "cache")}
    assert {one.n for one in found.flips if one.answers == "one pass"} == {4}
    assert {one.n for one in found.flips if one.answers == "generations"} == {2}
    assert [(one.answers, one.dtype, one.draws) for one in found.noise] == [
        ("one pass", BFLOAT16 + EMULATED, 2), ("generations", BFLOAT16 + EMULATED, 2),
    ]  # fmt: skip


def test_the_section_says_what_two_runs_may_differ_by_and_what_to_do(folder):
    (reading,) = read_all([folder])
    lines = in_words(reading)
    assert re.match(r"(up to )?\d of 4 one-pass answers changed \(too few to say\) and ", lines[0])
    assert lines[0].endswith("generations changed (too few to say) with half precision emulated on a CPU")
    assert "too few to bound numerical noise in bfloat16 on this machine (a CPU: emulated)" in lines[1]
    exact = (
        "--deterministic, asked twice in opposite orders: 0 of 4 one-pass answers changed, 0 of 2 generations changed"
    )
    assert exact in lines
    assert lines[-1].startswith("what to do: ")
    drawn = {(point.series, point.x) for point in PROBE.sections[0].points(reading)}
    assert {("one pass", 0.0), ("generations", 0.25), ("generations", 3.25), ("one pass", 6.0)} <= drawn
    assert summarise(read_run(folder)).extras["numerics"].noise


def test_the_limit_is_the_upper_bound_that_so_many_questions_support():
    right = np.ones((4, 32), dtype=bool)
    noise = [run_noise(ONE_PASS, BFLOAT16, right), run_noise(GENERATIONS, BFLOAT16, right[:2, :4])]
    counts = ((ONE_PASS, 0, 32), (GENERATIONS, 1, 4))
    changed = [
        Flips(
            answers=answers,
            setting=BFLOAT16,
            compared_with="reference",
            n=n,
            flipped=flipped,
            flipped_low=0.0,
            flipped_high=0.5,
            gained=0,
            lost=0,
            margin=None,
            ties=0,
        )
        for answers, flipped, n in counts
    ]
    found = NumericsSummary(flips=changed, margins={}, noise=noise)
    lines = in_words(SimpleNamespace(summary=SimpleNamespace(extras={"numerics": found})))
    one_pass = "0 of 32 one-pass answers changed (noise of up to 12.5 points cannot be ruled out)"
    assert lines[0] == f"{one_pass} and up to 1 of 4 generations changed (too few to say)"
    none = (
        "none of 32 one-pass answers flipped between right and wrong in the 4 runs in bfloat16 on this machine, which"
    )
    assert lines[1].startswith(none) and "noise of up to 12.5 points between two runs cannot be ruled out" in lines[1]
    do = lines[-1]
    assert do.startswith(
        "what to do: do not attribute a difference below 12.5 points with 32 one-pass answers to the mod"
    )
    assert "4 generations are too few for a limit" in do and "with N = 32, if none flips, it is 12.5 points" in do
    assert run_noise(GENERATIONS, BFLOAT16, right[:2]).below_high == 12.5
    assert not any("3.1" in line for line in lines)  # one question of 32
    right[0, 0] = False
    unstable = NumericsSummary(flips=changed, margins={}, noise=[run_noise(ONE_PASS, BFLOAT16, right)])
    _, line, *_ = in_words(SimpleNamespace(summary=SimpleNamespace(extras={"numerics": unstable})))
    assert "are within numerical noise" in line and line.startswith("1 of 32 one-pass answers flipped between")


def test_points_of_the_named_probe_raise_both_kinds_of_answers(small):
    """As the advice says: --probes numerics --points N."""
    wanted = chosen_settings(probes="numerics", points=40)
    assert wanted.parameters["numerics"]["questions"] == 40
    asker = Asker(small.tokenizer, small.mask_id, 0)
    for settings, per_task, generations in ((wanted, 3, 40), (chosen_settings(probes="numerics"), 2, 4)):
        own = settings.parameters["numerics"]
        planned = list(PROBE.units(Setup(small, asker, settings, load_words(), load_text(), {}, [], own)))
        assert {len(unit.points) for unit in planned if unit.cost == 1} == {per_task}
        assert {len(unit.points) for unit in planned if unit.cost > 1} == {generations}


def test_a_run_with_exact_asks_one_prompt_at_a_time_and_changes_nothing_in_float32(small, tmp_path):
    settings = SETTINGS.changed("numerics", questions=1, generation_draws=1, draws=1)
    found = numerics_summary(read_run(diagnose(small, settings, tmp_path / "run", exact=True)).records)
    assert all(one.flipped == 0 for one in found.flips if one.setting in ("batch", "order", "repeated"))


def noisy_model(noise: float):
    """Logits of two letters with a margin that the prompt's first token says, and noise that depends on the batch."""

    def body(net, batch, layout):
        hidden = torch.full((batch.tokens, len(shipped_tokenizer())), -50.0)
        draws = torch.Generator().manual_seed(int(batch.ids.sum()) + 7919 * batch.tokens)
        starts = batch.offsets[:-1].long()
        margins = (batch.ids[starts] % 100) / 50  # 0 to 2 logits
        moved = torch.randn(len(starts), generator=draws) * noise
        for start, end, margin in zip(starts, batch.offsets[1:], margins + moved, strict=True):
            hidden[start:end, 40], hidden[start:end, 41] = margin / 2, -margin / 2
        return hidden

    return hand_made(body)


def test_noise_that_depends_on_the_batch_flips_the_share_of_answers_that_its_size_predicts():
    noise, model = 0.5, noisy_model(0.5)
    mask = shipped_tokenizer().mask_token_id
    prompts = [Prompt((100 + number % 100, 200 + number // 100, mask), 2, 40, 1) for number in range(1500)]
    quiet = ask_under(noisy_model(0.0), prompts, NumericSetting("reference"), ModelCopies())
    loud = ask_under(model, prompts, NumericSetting("batch"), ModelCopies())
    margins = np.array([answer.evidence["margin"] for answer in quiet])
    changed = np.array([one.token != other.token for one, other in zip(quiet, loud, strict=True)])
    for low, high in ((0.0, 0.4), (0.4, 1.0), (1.0, 2.0)):
        inside = (margins > low) & (margins <= high)
        expected = ndtr(-margins[inside] / noise).mean()  # the noise changes the sign of the margin
        assert changed[inside].mean() == pytest.approx(expected, abs=4 * np.sqrt(0.25 / inside.sum()))


@pytest.mark.parametrize("name", [BFLOAT16, FLOAT16])
def test_emulated_half_precision_rounds_weights_and_what_modules_give(small, name):
    dtype = getattr(torch, name)
    made = ModelCopies().under(small, NumericSetting(name, name))
    assert made is not small and made.dtype == torch.float32
    for parameter, original in zip(made.parameters(), small.parameters(), strict=True):
        assert torch.equal(parameter, original.to(dtype).float())
    rows = [[5, 6, 7, small.mask_id]]
    (ours,), (exact,) = made.predict(rows, [[3]]), small.predict(rows, [[3]])
    finite = exact.isfinite()
    difference = (ours - exact)[finite].abs().max() / exact[finite].abs().max()
    assert 0 < difference < 200 * torch.finfo(dtype).eps


def test_a_copy_made_while_answering_can_be_decoded_with_afterwards(small):
    with torch.inference_mode():
        made = ModelCopies().under(small, NumericSetting("reference"))
    assert not any(parameter.is_inference() for parameter in made.parameters())


def test_plain_attention_turns_flash_attention_off_which_ragged_batches_on_a_gpu_obey():
    """On a GPU in half precision a model takes its ragged flash kernels only while torch allows flash attention."""
    model, on_gpu = mw.open("tiny-llada", "bfloat16"), SimpleNamespace(offsets=SimpleNamespace(is_cuda=True))
    assert model._has_ragged_kernels(on_gpu)
    with attention_of(NumericSetting("attention", plain=True)):
        assert not model._has_ragged_kernels(on_gpu)
    with attention_of(NumericSetting("reference")):
        assert model._has_ragged_kernels(on_gpu)


def test_quantised_weights_are_compared_with_the_unquantised_checkpoint():
    model, copies = mw.open("tiny-llada", weights="fp8"), ModelCopies()
    assert copies.under(model, NumericSetting("weights", model.dtype_name, weights=True)) is model
    reference = copies.under(model, NumericSetting("reference"))
    assert (reference.weights, reference.dtype) == (None, torch.float32)
    rows, plain = [[5, 6, 7, model.mask_id]], mw.open("tiny-llada", "float32")
    assert torch.equal(reference.predict(rows, [[3]])[0], plain.predict(rows, [[3]])[0])
    assert not torch.equal(model.predict(rows, [[3]])[0], plain.predict(rows, [[3]])[0])


def test_emulation_of_float32_would_change_nothing(small):
    import copy

    made = emulated(copy.deepcopy(small), torch.float32)
    rows = [[5, 6, 7, small.mask_id]]
    assert torch.equal(made.predict(rows, [[3]])[0], small.predict(rows, [[3]])[0])


def test_every_question_is_asked_once_under_every_setting():
    machine = Machine(BFLOAT16, compiles=True, weights="fp8")
    settings = [*single_settings(machine, True), *drawn_settings(machine, 3, 0, True)]
    for setting in settings:
        batches = list(parts(7, setting))
        assert sorted(number for batch in batches for number in batch) == list(range(7))
        assert not setting.one_at_a_time or [len(batch) for batch in batches] == [1] * 7
    names = [one.name for one in settings]
    assert set(SINGLE) - {AGAIN} < set(names) and len(set(names)) == len(names)
    assert {one.dtype for one in settings if one.name.startswith("draw")} == {BFLOAT16}
    assert Machine(FLOAT32).half == BFLOAT16


def test_the_probe_is_in_full_and_by_name_alone():
    assert PROBE.presets == ("full",)
