"""Sentences claim what their interval allows, and nothing more."""

from pathlib import Path
from typing import Any

import pytest

from helpers.records import entry as plain_entry
from helpers.records import manifest as plain_manifest
from helpers.records import summary
from maskwise.probes.section import Entry
from maskwise.records.folder import RunOnDisk
from maskwise.report.readings import Asked, Reading, distinct_labels
from maskwise.report.words.comparison import Row
from maskwise.report.words.printed_summary import print_changes
from maskwise.report.words.sentences import opening
from maskwise.report.words.tiles import tiles
from maskwise.scoring.numbers import NBSP, between, percent, points
from maskwise.scoring.scores import NO_SKILL, Score, null_score
from maskwise.scoring.scores import score as whole_score


def reading(locality: Any = None, mask_tax: Any = None, low: float = 0.6, **manifest: Any) -> Reading:
    """A reading of one task whose scores are given as (value, low, high), or None where there is no skill."""

    def score(ends: Any) -> Score:
        return whole_score(*ends, n=10, differed=int(ends[0] != 0)) if ends else null_score(NO_SKILL)

    def entry(masks: int, accuracy: float, /, **condition: Any) -> Entry:
        return plain_entry(condition=condition, masks=masks, n=10, accuracy=accuracy, low=low, high=0.9)

    found = summary(
        scores={
            "locality": score(locality),
            "mask_tax": score(mask_tax),
            "degradation": score(None),
            "mask_nats": score(None),
            "distance_nats": score(None),
        },
        probes={
            "location": [entry(1, 0.5, location=0), entry(1, 0.75, location=40)],
            "mask-count": [entry(1, 0.7, masks=1), entry(2, 0.8, masks=2), entry(200, 0.4, masks=200)],
        },
    )
    return Reading(
        "m", RunOnDisk(Path("run"), plain_manifest(**manifest), []), found, {"location": Asked(("a",) * 16, 10, 10, 20)}
    )


@pytest.mark.parametrize(
    ("score", "claim", "evidence"),
    [
        ((0.5, 0.4, 0.6), "Appended masks lower its accuracy.", "more masks cost 50 % of its skill above guessing"),
        ((0.1, -0.1, 0.2), "No effect of appended masks was detected.", "which includes zero"),
        ((-0.1, -0.2, -0.05), "Appended masks raise its accuracy.", "masks raise its skill above guessing by 10 %"),
        (None, "Inconclusive.", "80 % of its answers are right with 2 masks, 40 % with 200"),
    ],
)
def test_what_masks_do(score: Any, claim: str, evidence: str) -> None:
    sentence = opening(reading(mask_tax=score))[0]
    assert sentence.claim == claim
    assert evidence in sentence.evidence.replace(NBSP, " ")


def test_a_score_known_to_no_better_than_half_of_the_skill_is_not_called_undetected() -> None:
    (tax,) = (tile for tile in tiles(reading(mask_tax=(0.1, -0.4, 0.84))) if tile.name == "Mask tax")
    assert tax.interval.replace(NBSP, " ").startswith("inconclusive: too few questions; 95 % interval −40 to 84 %")
    assert not tax.detected


def test_an_autoregressive_model_has_no_masks() -> None:
    assert opening(reading(model={"mask_id": None}))[0].claim == "Not applicable: it has no masks."
    assert {tile.interval for tile in tiles(reading())} == {"no skill above guessing to lose"}


def test_how_sure() -> None:
    assert opening(reading())[-1].claim == "Measured on 16 tasks."
    assert opening(reading(low=0.3))[-1].claim == "It does no better than guessing."
    assert opening(reading(complete=False))[-1].claim == "Not yet: the run is unfinished."
    assert "the widest interval on this page is 60.0 to 90.0\u00a0%. " in opening(reading())[-1].evidence
    assert "new ones" not in opening(reading())[-1].evidence  # no entry has an interval over word rules


def test_numbers_are_written_with_care() -> None:
    assert percent(0.375) == f"38{NBSP}%"
    assert percent(-0.001) == f"0{NBSP}%"
    assert percent(-0.25, 1) == f"−25.0{NBSP}%"
    assert percent(None) == "–"
    assert points(-0.00001) == f"0.0{NBSP}points"
    assert points(0.063) == f"+6.3{NBSP}points"
    assert between(-0.1, 0.2) == f"−10 to 20{NBSP}%"


def test_labels_are_short_and_different() -> None:
    here = Path("somewhere/run")
    assert distinct_labels([("GSAI-ML/LLaDA-8B-Base", here), ("./out/tuned/", here)]) == ["LLaDA-8B-Base", "tuned"]
    assert distinct_labels([("a/x", here), ("b/x", here)]) == ["a/x", "b/x"]
    assert distinct_labels([("x", Path("p/one")), ("x", Path("p/two"))]) == ["x (one)", "x (two)"]
    assert distinct_labels([("x", Path("p/run")), ("x", Path("q/run"))]) == ["x (run) #1", "x (run) #2"]
    assert distinct_labels([("<b>/x", here)]) == ["<b>/x"]
    assert distinct_labels([("two\nlines " + "x" * 90, here)]) == ["two lines " + "x" * 37 + "…"]


def test_names_of_compared_models_are_whole_at_80_columns(capsys, monkeypatch):
    """Cut short they would be the same."""
    monkeypatch.setenv("COLUMNS", "80")
    names = ["tiny-llada-instruct-of-yesterday", "tiny-llada-instruct-of-yesterday+tuned"]
    values = ("37.1 % (31.0 to 43.5)", "52.0 % (45.9 to 58.1)")
    print_changes(names, [Row("accuracy with 200 masks", "", values, ("+14.9 points (8.1 to 21.6)",))])
    shown = capsys.readouterr().out
    heads = shown[: shown.index("accuracy with")]
    assert "…" not in shown and max(map(len, shown.splitlines())) <= 80
    assert heads.replace("\n", "").replace(" ", "").count("tuned") == 1
