"""The first screen: the largest effect in one sentence, and the chart with the paper's end points."""

from pathlib import Path

import pytest

from helpers.report_runs import AUTOREGRESSIVE, DIFFUSION, GUESSING, KNOWN, mask_probes, position_probes, write_run
from maskwise.report.figures import Mark
from maskwise.report.finding import finding
from maskwise.report.readings import read_all

PLANTED = DIFFUSION | {"name": "tiny-llada+distracted", "planted": "sensitivity to appended masks"}
SAME = [8, 9, 7, 8]


def found(tmp_path: Path, *runs: tuple) -> object:
    folders = [write_run(tmp_path / str(number), asked, model) for number, (asked, model) in enumerate(runs)]
    return finding(read_all(folders))


def test_the_largest_effect_leads_whichever_it_is(tmp_path: Path) -> None:
    """Of KNOWN's scores the mask tax is the largest; without effects of masks it is the distance."""
    assert found(tmp_path / "masks", (KNOWN, DIFFUSION)).sentence.startswith("Appended masks lower its accuracy. 80")
    far = position_probes([9, 10, 8, 9], [4, 5, 3, 4]) + mask_probes(SAME, SAME)
    assert found(tmp_path / "far", (far, DIFFUSION)).sentence.startswith("It uses near context more than distant")
    assert found(tmp_path / "none", (GUESSING, DIFFUSION)).sentence.startswith("Nothing was detected")


def test_two_models_are_told_apart_by_what_masks_take_from_them(tmp_path: Path) -> None:
    healthy = mask_probes(SAME, SAME)
    sentence = found(tmp_path, (healthy, DIFFUSION), (mask_probes(SAME, [5, 6, 4, 5]), PLANTED)).sentence
    lost = (
        "100 masks in place of 2 take tiny-llada+distracted (planted) 30.0\u00a0points of accuracy, 95\u00a0% interval"
    )
    assert sentence.startswith(lost)  # the largest loss first, whichever run came first
    assert "with 100 masks in place of 2 no change was detected in tiny-llada (at most" in sentence
    raised = found(tmp_path / "more", (healthy, DIFFUSION), (mask_probes([5, 6, 4, 5], SAME), PLANTED)).sentence
    assert "100 masks in place of 2 give tiny-llada+distracted (planted) 30.0\u00a0points" in raised


def test_the_chart_shows_changes_from_two_masks_and_the_published_end_points(tmp_path: Path) -> None:
    asked = [*mask_probes(SAME, SAME), ("mask-count", {"masks": 200}, 200, [5, 6, 4, 5])]
    panel = found(tmp_path, (asked, DIFFUSION), (asked, PLANTED)).panel
    assert [curve.name for curve in panel.curves] == ["tiny-llada", "tiny-llada+distracted (planted)"]
    assert panel.curves[0].x == (2, 100, 200) and panel.curves[0].y == pytest.approx((0, 0, -30))
    assert (
        panel.curves[0].low[0] == panel.curves[0].high[0] == 0 and panel.curves[0].low[1] < 0 < panel.curves[0].high[1]
    )
    assert panel.marks == (
        Mark("LLaDA-8B (Base, Instruct)", 200, (-23.0, -27.0)),
        Mark("Dream-7B (Base, Instruct)", 20, (-6.0, -8.0)),
    )


def test_one_model_is_drawn_with_its_fillers_and_without_marks_beyond_its_masks(tmp_path: Path) -> None:
    panel = found(tmp_path, (KNOWN, DIFFUSION)).panel
    assert [curve.name for curve in panel.curves] == ["masks", "full stops instead"]
    assert [mark.x for mark in panel.marks] == [20]  # a hundred masks were asked: the paper's 200 lie beyond


def test_a_model_without_masks_beside_one_with_them_is_not_the_finding(tmp_path: Path) -> None:
    """Whichever comes first: the sentence and the curve name the model that was asked."""
    runs = (position_probes([9] * 4, [6] * 4), AUTOREGRESSIVE), (mask_probes(SAME, [5, 6, 4, 5]), PLANTED)
    for number, order in enumerate((runs, runs[::-1])):
        told = found(tmp_path / str(number), *order)
        assert told.sentence.startswith("100 masks in place of 2 take tiny-llada+distracted (planted) 30.0")
        assert [curve.name for curve in told.panel.curves] == ["tiny-llada+distracted (planted)"]


def test_without_mask_counts_there_is_no_chart(tmp_path: Path) -> None:
    assert found(tmp_path, (position_probes([9] * 4, [6] * 4), DIFFUSION)).panel is None
