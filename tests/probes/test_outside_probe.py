"""A probe written outside the package is asked, scored, printed and drawn by passing a longer tuple."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from maskwise.report.pages.page import write_page
from maskwise.report.readings import read_all
from maskwise.report.words.printed_summary import print_summary

import maskwise
from helpers.known import SMALL, known_model, uniform
from maskwise.probes import PROBES
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import check, preset
from maskwise.support.errors import UserError
from probes.outside_probe import NAME, PROBE

MORE = (*PROBES, PROBE)


def test_presets_hold_it_and_its_parameters():
    quick, default, full = (preset(name, MORE) for name in ("quick", "default", "full"))
    assert NAME in quick.probes and NAME in default.probes and NAME not in full.probes
    assert quick.parameters[NAME] == {"shots": (1, 2)} and default.parameters[NAME] == {"shots": (1, 4)}
    with pytest.raises(UserError, match=f"unknown probe '{NAME}': choose one of location"):
        check(quick)


def test_it_is_asked_scored_printed_and_drawn(tmp_path, capsys):
    settings = replace(SMALL, probes=(NAME, "location"), parameters={**SMALL.parameters, NAME: {"shots": (1, 2)}})
    folder = diagnose(known_model(uniform), settings, tmp_path / "run", probes=MORE)
    (reading,) = read_all([folder], MORE)
    entries = reading.summary.probes[NAME]
    assert [entry.condition for entry in entries] == [{"shots": 1}, {"shots": 2}]
    assert entries[1].paired.baseline == {"shots": 1} and entries[0].n == 2 * SMALL.points
    right = sum(record.correct for record in reading.run.records if record.probe == NAME)
    assert reading.summary.scores["mean_accuracy"].value == right / (4 * SMALL.points)
    print_summary(reading)
    printed = capsys.readouterr().out
    assert NAME in printed and "Mean accuracy" in printed
    page = write_page([reading], tmp_path / "page").read_text()
    assert "How many examples does it take?" in page and "Mean accuracy" in page


def test_without_its_description_the_page_still_shows_it(tmp_path):
    settings = replace(SMALL, probes=(NAME,), parameters={**SMALL.parameters, NAME: {"shots": (1, 2)}})
    folder = diagnose(known_model(uniform), settings, tmp_path / "run", probes=MORE)
    page = write_page(read_all([folder]), tmp_path / "page").read_text()
    assert "Fewer examples" in page and "How many examples does it take?" not in page


@pytest.mark.parametrize(
    "condition, said",
    [({"shots": "two"}, "condition.shots: expected int, got str"), ({}, "condition.shots is missing")],
)
def test_its_condition_fields_are_checked(tmp_path, condition, said):
    """By the struct in the probe's value: nothing else in the package knows its fields."""
    settings = replace(SMALL, probes=(NAME,), parameters={**SMALL.parameters, NAME: {"shots": (1, 2)}})
    folder = diagnose(known_model(uniform), settings, tmp_path / "run", probes=MORE)
    (line, *rest) = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    spoiled = json.dumps(json.loads(line) | {"condition": condition}) + "\n"
    (folder / "records.jsonl").write_text("".join([*rest, spoiled]))
    with pytest.raises(UserError, match=f"line {len(rest) + 1} is not a record of this run: {said}"):
        read_all([folder], MORE)
    assert read_all([folder])  # without the probe's value they are not checked


OWN_FILES = (
    *(f"{name}.py" for name in ("templates", "confidence", "trajectory")),
    *(f"{name}.py" for name in ("looks", "commits")),
)


def test_only_the_list_of_probes_names_the_later_ones():
    """`templates` and `confidence` have other meanings too (a parameter, a field of a record): imports alone count."""
    package = Path(maskwise.__file__).parent
    modules = "templates|confidence|trajectory"
    named = re.compile(rf"""probes\.library(\.| import )({modules})\b|["']trajectory["']""")
    naming = {
        str(file.relative_to(package))
        for folder in ("probes", "report", "runs", "scoring", "records")
        for file in (package / folder).rglob("*.py")
        if file.name not in OWN_FILES and named.search(file.read_text(encoding="utf-8"))
    }
    assert naming == {str(Path("probes") / "__init__.py")}
