"""Tasks are excluded on a calibration seed by a rule fixed beforehand; the scores over all tasks are kept."""

from dataclasses import replace

import pytest

from helpers.known import SMALL, known_model, nearest_rule, truth
from helpers.page_reader import read
from helpers.records import record
from maskwise.probes.library.calibration import RULE, excluded_tasks
from maskwise.probes.summary import summarise
from maskwise.records.folder import read_run
from maskwise.report.pages.page import write_page
from maskwise.report.readings import read_all
from maskwise.report.words.terminal import print_summary
from maskwise.runs.diagnose import diagnose
from maskwise.tasks.episodes import LETTERS
from maskwise.tasks.words import load_words

SETTINGS = replace(SMALL, probes=("location", "calibration"), points=6).changed(
    "calibration", questions=6, mask_counts=(2, 20)
)
COUNTRIES = set(load_words()["country"])


def knows_countries(questions, asked, text):
    """Finds the country without any example; elsewhere it follows the nearest rule, and guesses A without one."""
    options = questions[asked][0].split(", ")
    words = [option.split(") ")[1] for option in options]
    place = next((place for place, word in enumerate(words) if word in COUNTRIES), None)
    if place is not None:
        return LETTERS[place]
    return nearest_rule(questions, asked, text) if questions[asked][0] in truth() else "A"


def test_a_task_that_needs_no_examples_is_excluded_and_both_scores_are_given(tmp_path, capsys):
    folder = diagnose(known_model(knows_countries), SETTINGS, tmp_path / "run")
    readings = read_all([folder])
    summary = readings[0].summary
    found = summary["calibration"]
    assert found["excluded"] == ["country-smallest"] and found["rule"] == RULE
    assert found["without_examples"] == pytest.approx({"country-smallest": 1, "verb-largest": 1 / 3})
    # all tasks: near 1, far (1 + 1/3) / 2; verbs alone: near 1, far 1/3
    assert summary["scores"]["locality"]["value"] == pytest.approx((1 / 3) / (2 / 3))
    assert found["scores"]["locality"]["value"] == pytest.approx(1)
    assert "contrast_locality" not in found["scores"] and "mask_tax" not in found["scores"]
    print_summary(readings[0])
    assert "country-smallest (100" in capsys.readouterr().out
    page = read(write_page(readings, tmp_path / "page")).words.replace("\u00a0", " ")
    assert "country-smallest (100 %)" in page and "locality: 50 %" in page


def test_its_questions_are_not_those_of_the_scores(tmp_path):
    asked = {"location": set(), "calibration": set()}

    def reply(questions, place, text):
        relevant = any(not any(c.isdigit() for c in options) for n, (options, _) in enumerate(questions) if n != place)
        asked["location" if relevant else "calibration"].add(questions[place][0])
        return "A"

    run = read_run(diagnose(known_model(reply), SETTINGS, tmp_path))
    assert asked["calibration"] and not asked["calibration"] & asked["location"]
    assert {record["masks"] for record in run.records if record["probe"] == "calibration"} == {2, 20}


def test_the_rule_counts_the_fewest_masks_and_excludes_above_a_half():
    def answered(task, right, masks):
        return [record(task=task, condition={"masks": masks}, correct=n < right) for n in range(10)]

    records = [*answered("a", 5, 2), *answered("b", 6, 2), *answered("a", 10, 20), *answered("b", 0, 20)]
    assert excluded_tasks(records) == ["b"]


def test_without_the_probe_nothing_is_excluded(tmp_path):
    run = read_run(diagnose(known_model(nearest_rule), replace(SETTINGS, probes=("location",)), tmp_path))
    assert "calibration" not in summarise(run).extras
