"""The first screen: the largest effect in one sentence, and the chart with the paper's end points."""

from pathlib import Path

import pytest

from helpers.report_runs import AUTOREGRESSIVE, DIFFUSION, KNOWN, mask_probes, position_probes, write_run
from maskwise.report.figures.curves import Mark
from maskwise.report.readings import read_all
from maskwise.report.words.both_ends import Judgement
from maskwise.report.words.effects import effects_of
from maskwise.report.words.finding import finding, largest_effect
from maskwise.scoring.scores import score

PLANTED = DIFFUSION | {"name": "tiny-llada+distracted", "planted": "sensitivity to appended masks"}
SAME = [8, 9, 7, 8]


def found(tmp_path: Path, *runs: tuple) -> object:
    folders = [write_run(tmp_path / str(number), asked, model) for number, (asked, model) in enumerate(runs)]
    return finding(read_all(folders))


def test_a_run_that_is_too_small_says_so(tmp_path: Path) -> None:
    """Ten questions: neither no change nor one of 40 points is excluded, so no sentence says how much it is at most."""
    small, other = mask_probes([8], [7]), mask_probes([7], [8])
    alone = found(tmp_path / "one", (small, DIFFUSION))
    assert alone.sentence.startswith("Inconclusive: this run is too small to show what changes the accuracy of")
    assert not any(number.detected for number in alone.numbers)
    assert all(number.interval.startswith("inconclusive: too few questions (95") for number in alone.numbers)
    folders = [write_run(tmp_path / asked[0][0] / str(n), asked, DIFFUSION) for n, asked in enumerate((small, other))]
    together, compared = finding(read_all(folders)), finding(read_all(folders), compared=True)
    assert together.sentence.startswith("Inconclusive whether lab/tiny-llada (")
    assert compared.sentence.startswith("Inconclusive whether lab/tiny-llada (")
    assert "at most" not in f"{alone} {together} {compared}"
    headings = [effect.heading for effect in effects_of(read_all(folders)[0])]
    assert headings and all(heading.startswith("Inconclusive whether accuracy changes") for heading in headings)


def test_one_inconclusive_change_does_not_speak_for_the_others(tmp_path: Path) -> None:
    tight, wide = (
        effects_of(read_all([write_run(tmp_path / name, asked, DIFFUSION)])[0])
        for name, asked in (("many", mask_probes(SAME, SAME)), ("few", mask_probes([8], [7])))
    )
    sentence = largest_effect("tiny-llada", [*tight, *wide])
    all_of_them = len(tight) + len(wide)
    assert sentence.startswith("No significant change was detected in tiny-llada, but")
    assert f"{sum(one.undecided for one in wide)} of {all_of_them} changes are inconclusive" in sentence


def test_two_models_are_compared_by_their_paired_difference(tmp_path: Path) -> None:
    """30 points lost less none, question by question; not given where the questions were others."""
    runs = (mask_probes(SAME, SAME), DIFFUSION), (mask_probes(SAME, [5, 6, 4, 5]), PLANTED)
    numbers = found(tmp_path / "same", *runs).numbers
    assert [number.value for number in numbers] == ["−30.0\u00a0points", "0.0\u00a0points", "−30.0\u00a0points"]
    assert numbers[0].what.startswith("tiny-llada+distracted (planted)")
    assert numbers[2].what == "Difference: tiny-llada+distracted (planted) less tiny-llada, paired"
    assert [number.detected for number in numbers] == [True, False, True]
    folders = [write_run(tmp_path / f"seed{seed}", *run, seed=seed) for seed, run in enumerate(runs)]
    assert len(finding(read_all(folders)).numbers) == 2


def test_two_models_are_distinguished_by_what_masks_cost_them(tmp_path: Path) -> None:
    healthy = mask_probes(SAME, SAME)
    sentence = found(tmp_path, (healthy, DIFFUSION), (mask_probes(SAME, [5, 6, 4, 5]), PLANTED)).sentence
    lost = (
        "tiny-llada+distracted (planted) loses 30.0\u00a0points of accuracy when 100 masks follow the question instead "
        "of 2 (95\u00a0% interval"
    )
    assert sentence.startswith(lost)  # the largest loss first, whichever run came first
    assert "; tiny-llada shows no loss of accuracy (95\u00a0% interval: at most" in sentence
    raised = found(tmp_path / "more", (healthy, DIFFUSION), (mask_probes([5, 6, 4, 5], SAME), PLANTED)).sentence
    assert "tiny-llada+distracted (planted) gains 30.0\u00a0points" in raised


def test_a_comparison_leads_with_its_verdict(tmp_path: Path) -> None:
    healthy, hurt = (mask_probes(SAME, SAME), DIFFUSION), (mask_probes(SAME, [5, 6, 4, 5]), PLANTED)
    cases = {"cured": (hurt, healthy), "harmed": (healthy, hurt), "same": (hurt, (hurt[0], DIFFUSION))}
    text = {}
    for name, runs in cases.items():
        folders = [write_run(tmp_path / f"{name}{number}", *run) for number, run in enumerate(runs)]
        text[name] = finding(read_all(folders), compared=True).sentence
    assert text["cured"].startswith(
        "tiny-llada loses 30.0\u00a0points less than tiny-llada+distracted (planted) when 100 masks"
    )
    assert text["harmed"].startswith("tiny-llada+distracted (planted) loses 30.0\u00a0points more than tiny-llada when")
    assert text["same"].startswith("No difference was detected between the losses of tiny-llada")
    assert all(
        sentence.endswith("nats (no interval).") for sentence in text.values()
    )  # judged by accuracy and likelihood
    assert "from 80.0\u00a0% to 80.0\u00a0% with 2 masks and from 50.0\u00a0% to 80.0\u00a0% with 100" in text["cured"]
    assert "with 100 masks accuracy falls, −30.0\u00a0points (" in text["harmed"]


def test_lowering_the_accuracy_with_two_masks_is_not_credited(tmp_path: Path) -> None:
    """80 % with 2 masks and 50 % with 200 before, 50 % with both after: 30 points less are lost, and nothing is won."""
    high, low = [8] * 4, [5] * 4
    runs = [
        write_run(
            tmp_path / name, [("mask-count", {"masks": 2}, 2, two), ("mask-count", {"masks": 200}, 200, low)], model
        )
        for name, two, model in (("before", high, DIFFUSION), ("after", low, DIFFUSION | {"name": "tuned"}))
    ]
    text = finding(read_all(runs), compared=True)
    assert text.sentence.replace("\u00a0", " ").startswith(
        "Accuracy with 200 masks does not rise significantly from tiny-llada to tuned. Accuracy goes from 80.0 % to "
        "50.0 % with 2 masks and from 50.0 % to 50.0 % with 200 (0 % of the loss recovered, "
    )
    assert "As a mitigation it does not count: with 200 masks accuracy does not rise significantly" in text.sentence
    assert "less" not in text.sentence and "loses" not in text.sentence
    assert (text.numbers[-1].what, text.numbers[-1].value, text.numbers[-1].detected) == (
        "Accuracy, 200 masks: tuned less tiny-llada, paired", "0.0\u00a0points", False,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("accuracy", "nll", "counts", "reason"),
    [
        ((0.2, 0.1, 0.3), (-0.5, -0.8, -0.2), True, "accuracy rises, +20.0 points (10.0 to 30.0); likelihood rises"),
        (
            (0.2, 0.1, 0.3),
            (0.5, 0.2, 0.8),
            False,
            "likelihood falls, negative log-likelihood +0.50 nats (0.20 to 0.80)",
        ),
        ((0.2, 0.1, 0.3), (-0.1, -0.4, 0.2), False, "likelihood does not rise significantly, negative"),
        ((0.1, -0.1, 0.3), (-0.5, -0.8, -0.2), False, "accuracy does not rise significantly, +10.0 points"),
        ((-0.2, -0.3, -0.1), (0.5, 0.2, 0.8), False, "accuracy falls, −20.0 points (−30.0 to −10.0); likelihood falls"),
        ((0.2, 0.1, 0.3), (None, None, None), True, "likelihoods were not measured"),
    ],
)
def test_a_mitigation_counts_if_accuracy_and_likelihood_with_the_most_masks_rise(accuracy, nll, counts, reason) -> None:
    judged = Judgement(200, score(*accuracy), score(*nll))
    assert judged.counts == counts and reason in judged.sentence.replace("\u00a0", " ")
    assert ("does not count" in judged.sentence) == (not counts)


def test_the_chart_shows_changes_from_two_masks_and_the_published_end_points(tmp_path: Path) -> None:
    asked = [*mask_probes(SAME, SAME), ("mask-count", {"masks": 200}, 200, [5, 6, 4, 5])]
    panel = found(tmp_path, (asked, DIFFUSION), (asked, PLANTED)).panel
    assert [curve.name for curve in panel.curves] == ["tiny-llada", "tiny-llada+distracted (planted)"]
    assert panel.curves[0].x == (2, 100, 200) and panel.curves[0].y == pytest.approx((0, 0, -30))
    assert (
        panel.curves[0].low[0] == panel.curves[0].high[0] == 0 and panel.curves[0].low[1] < 0 < panel.curves[0].high[1]
    )
    assert panel.marks == (
        Mark("LLaDA-8B", 200, (-23.0, -27.0)),
        Mark("Dream-7B", 20, (-6.0, -8.0)),
    )


def test_one_model_is_drawn_with_its_fillers_and_without_marks_beyond_its_masks(tmp_path: Path) -> None:
    panel = found(tmp_path, (KNOWN, DIFFUSION)).panel
    assert [curve.name for curve in panel.curves] == ["masks", "full stops instead"]
    assert [mark.x for mark in panel.marks] == [20]  # a hundred masks were asked: the paper's 200 lie beyond


def test_the_paper_s_fillers_are_marked_in_the_colour_of_the_fillers(tmp_path: Path) -> None:
    asked = [*KNOWN, ("mask-count", {"masks": 200}, 200, SAME), ("filler", {"filler": ".", "fillers": 200}, 1, SAME)]
    panel = found(tmp_path, (asked, DIFFUSION)).panel
    assert Mark("LLaDA-8B, full stops", 200, (-3.0, -10.0), style=1) in panel.marks
    assert panel.curves[1].style == 1


def test_fillers_after_two_masks_are_counted_with_them(tmp_path: Path) -> None:
    after = [("filler", {"filler": ".", "fillers": n, "format": "B"}, 2, SAME) for n in (0, 98)]
    panel = found(tmp_path, ([*mask_probes(SAME, SAME)[:2], *after], DIFFUSION)).panel
    assert panel.curves[1].x == (2, 100)


def test_a_larger_effect_than_that_of_masks_is_stated_for_several_models(tmp_path: Path) -> None:
    stops = ("filler", {"filler": ".", "fillers": 100}, 1, [0] * 4)
    healthy, harmed = [*mask_probes(SAME, SAME)[:-1], stops], mask_probes(SAME, [5, 6, 4, 5])[:2]
    text = found(tmp_path / "larger", (healthy, DIFFUSION), (harmed, PLANTED))
    assert text.sentence.startswith("tiny-llada+distracted (planted) loses 30.0")
    assert text.note.startswith(
        "A larger effect: tiny-llada loses 80.0\u00a0points of accuracy with 100 full stops after the closed answer"
    )
    assert found(tmp_path / "none", (harmed, DIFFUSION), (harmed, PLANTED)).note == ""


def test_a_model_without_masks_next_to_one_with_them_is_not_the_finding(tmp_path: Path) -> None:
    """Whichever comes first: the sentence and the curve name the model that was asked."""
    runs = (position_probes([9] * 4, [6] * 4), AUTOREGRESSIVE), (mask_probes(SAME, [5, 6, 4, 5]), PLANTED)
    for number, order in enumerate((runs, runs[::-1])):
        text = found(tmp_path / str(number), *order)
        assert text.sentence.startswith("tiny-llada+distracted (planted) loses 30.0")
        assert [curve.name for curve in text.panel.curves] == ["tiny-llada+distracted (planted)"]
