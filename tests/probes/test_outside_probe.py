"""A probe written outside the package, in one file, is asked, measured, printed and drawn by passing a longer tuple."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.known import SMALL, known_model, truth
from maskwise.probes import PROBES, record_fields
from maskwise.probes.probe import measured
from maskwise.records.folder import read_run
from maskwise.report.section import sections
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import check, of_preset
from maskwise.support.errors import UserError
from maskwise.tasks.episodes import CHANCE
from probes import outside_probe
from probes.outside_probe import NAME, PROBE

MORE = (*PROBES, PROBE)
SETTINGS = replace(SMALL, probes=(NAME, "location"), parameters={**SMALL.parameters, NAME: {"shots": (1, 2)}})


def knows_with_two(questions, asked, text):
    return truth()[questions[asked][0]] if len(questions) > 2 else "A"


def test_presets_hold_it_and_its_parameters():
    quick, default, full = (of_preset(name, MORE) for name in ("quick", "default", "full"))
    assert NAME in quick.probes and NAME in default.probes and NAME not in full.probes
    assert quick.parameters[NAME] == {"shots": (1, 2)} and default.parameters[NAME] == {"shots": (1, 4)}
    with pytest.raises(UserError, match=f"unknown probe '{NAME}'"):
        check(quick)
    assert len(Path(outside_probe.__file__).read_text().splitlines()) < 80


def test_it_is_asked_measured_and_drawn(tmp_path):
    run = read_run(diagnose(known_model(knows_with_two), SETTINGS, tmp_path, probes=MORE), record_fields(MORE))
    assert len(run.tables[NAME]) == 4 * SMALL.questions and "location" in run.tables
    found, before = measured(MORE, run.tables)[NAME]
    assert (found.value, before.value) == pytest.approx((1 - CHANCE, CHANCE)) and found.low > 0
    (section,) = (one for one in sections(MORE, {"known": run.tables}) if one.probe is PROBE)
    ((_, _, table),) = section.figures
    assert dict(zip(table.shots, table.value, strict=True)) == pytest.approx({1: CHANCE, 2: 1})
    assert "<svg" in section.view("s-", {})["figures"][0]["wide"]


@pytest.mark.parametrize(
    ("condition", "said"),
    [({"shots": "two"}, "condition.shots: expected int, got str"), ({}, "condition.shots is missing")],
)
def test_its_condition_is_checked(tmp_path, condition, said):
    """By the fields in the probe's value: nothing else in the package knows them."""
    folder = diagnose(known_model(knows_with_two), replace(SETTINGS, probes=(NAME,)), tmp_path, probes=MORE)
    line, *rest = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    spoiled = json.dumps(json.loads(line) | {"condition": condition}) + "\n"
    (folder / "records.jsonl").write_text("".join([*rest, spoiled]))
    with pytest.raises(UserError, match=f"line {len(rest) + 1} is not a record of this run: {said}"):
        read_run(folder, record_fields(MORE))
    assert read_run(folder).records  # without the probe's value they are not checked
