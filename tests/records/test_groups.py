"""Records in groups and columns give the numbers that a loop over single records gives."""

import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from helpers.records import manifest
from helpers.records import record as plain_record
from maskwise.probes.examples import numbers_in, with_number
from maskwise.probes.summary import entries, unknown_probe
from maskwise.records.folder import RunOnDisk
from maskwise.records.groups import GroupedRecords, as_group, groups_of, joined, values_of
from maskwise.records.record import Record, condition_text
from maskwise.report.pages.drill import accuracy_by_task
from maskwise.report.readings import count_asked
from maskwise.scoring.claims import best_accuracy
from maskwise.scoring.contrasts import Answers
from maskwise.scoring.scores import tables

CONDITIONS = [{"masks": 2}, {"masks": 50}, {"masks": 2, "relevant": 1}, {"masks": 50, "relevant": 1}]
FIELDS = ("correct", "nll", "nll_choice")


def asked(seed: int) -> list[Record]:
    """Of two probes, in any order; some points were not asked, some records lack a field, and task c has one side."""
    draw = random.Random(seed)
    records = []
    for probe in ("p", "q"):
        for condition in CONDITIONS:
            for task, points in (("b", 7), ("a", 5), ("c", 3)):
                for point in range(points):
                    if draw.random() < 0.2 or (task == "c" and condition["masks"] == 50):
                        continue
                    record = {"probe": probe, "task": task, "point": point, "condition": dict(condition), "masks": 2}
                    record |= {"correct": draw.random() < 0.6, "confidence": draw.random(), "entropy": draw.random()}
                    record |= {name: draw.random() for name in ("nll", "nll_choice") if draw.random() < 0.9}
                    records.append(plain_record(**record))
    draw.shuffle(records)
    return records


@pytest.fixture(params=range(4))
def records(request):
    return asked(request.param)


def as_run(records) -> RunOnDisk:
    return RunOnDisk(Path(), manifest(), records)


def same(found, expected) -> None:
    assert list(found) == list(expected)
    for task, values in expected.items():
        np.testing.assert_allclose(found[task], values, rtol=0, atol=1e-12)


def both(records, probe="p"):
    """The records of a probe as a list, and as a run holds them."""
    return [one for one in records if one["probe"] == probe], as_run(records).by_probe[probe]


def plain_tables(records, conditions, field):
    """[points, conditions] of each task, record by record."""
    held = {(condition_text(r["condition"]), r["task"], r["point"]): r[field] for r in records if field in r}
    found = defaultdict(list)
    for task, point in sorted({(r["task"], r["point"]) for r in records}):
        row = [held.get((condition_text(condition), task, point)) for condition in conditions]
        if None not in row:
            found[task].append(row)
    return {task: np.array(rows, dtype=float) for task, rows in found.items()}


@pytest.mark.parametrize("field", FIELDS)
def test_tables_and_weighted_sums(records, field):
    weighted = dict(zip(map(condition_text, CONDITIONS), (1, -1, 0.5, 2), strict=True))
    weights = {("p", text): weight for text, weight in weighted.items()}
    for given in both(records):
        expected = plain_tables(both(records)[0], CONDITIONS, field)
        same(tables(given, CONDITIONS, field), expected)
        sums = {task: table @ [1, -1, 0.5, 2] for task, table in expected.items()}
        same(Answers(given).sums(weights, field), sums)
        assert Answers(given).sums(weights | {("p", "{}"): 1.0}, field) == {}


def test_one_number_of_examples(records):
    plain, grouped = both(records)
    assert numbers_in(plain) == numbers_in(grouped) == [None, 1]
    for number in (None, 1):
        expected, found = with_number(plain, number), with_number(grouped, number)
        assert isinstance(found, GroupedRecords) and len(found) == len(expected)
        key = lambda r: (r["task"], r["point"], r["condition"]["masks"])  # noqa: E731
        assert sorted(found, key=key) == sorted(expected, key=key) and found[0]["condition"].keys() == {"masks"}
        assert values_of(found, "masks") == [2, 50] and len(joined(found, plain)) == len(found) + len(plain)
        same(tables(found, CONDITIONS[:2]), plain_tables(expected, CONDITIONS[:2], "correct"))


def test_means_of_a_condition(records):
    plain, grouped = both(records)
    weights = {("p", condition_text(condition)): 1.0 for condition in CONDITIONS}
    right = defaultdict(list)
    for record in plain:
        right[condition_text(record["condition"])].append(record["correct"])
    best = max(np.mean(values) for values in right.values())
    assert best_accuracy(Answers(grouped), weights) == pytest.approx(best, abs=1e-12)
    for entry in entries(unknown_probe("p"), grouped):
        own = [r for r in plain if r["condition"] == entry["condition"]]
        tasks = {r["task"] for r in own}
        of_task = {task: [r["correct"] for r in own if r["task"] == task] for task in tasks}
        assert entry["n"] == len(own) and entry["masks"] == 2
        assert ("nll_choice" in entry) is all("nll_choice" in r for r in own)
        assert entry["accuracy"] == pytest.approx(np.mean([np.mean(values) for values in of_task.values()]))
        assert entry["confidence"] == pytest.approx(np.mean([r["confidence"] for r in own]))
        assert as_group(own).has("nll") is all("nll" in r for r in own)
        drawn = accuracy_by_task(grouped)
        for task, values in of_task.items():
            assert drawn[task][condition_text(entry["condition"])] == pytest.approx(np.mean(values))


def test_how_much_was_asked(records):
    for probe, found in count_asked(as_run(records)).items():
        own = [r for r in records if r["probe"] == probe]
        points = {task: {r["point"] for r in own if r["task"] == task} for task in {r["task"] for r in own}}
        counts = [len(asked) for asked in points.values()]
        assert (found.tasks, found.answers) == (tuple(sorted(points)), len(own))
        assert (found.fewest, found.most) == (min(counts), max(counts))


def test_a_point_that_comes_again_counts_once_the_last_time():
    record = plain_record(task="a", point=3)
    again = [record, record | {"point": 1}, record | {"correct": False}]
    same(tables(again, [{}]), {"a": np.array([[1.0], [0.0]])})
