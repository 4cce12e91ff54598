"""Scores against the formulas written out, and intervals by their laws."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from maskwise.probes import mask_count as mask_probe
from maskwise.probes import natural_text
from maskwise.probes.location import locality
from maskwise.probes.mask_count import degradation, mask_tax
from maskwise.probes.summary import entries, summarise
from maskwise.records.folder import Run
from maskwise.scoring.changes import paired_difference
from maskwise.scoring.intervals import accuracy_interval
from maskwise.scoring.scores import NO_SKILL, NOT_MEASURED, bootstrapped


def record(probe, task, point, condition, correct, **more):
    asked = {"model": "m", "probe": probe, "task": task, "point": point, "condition": condition, "masks": 1}
    answer = {"predicted": "A", "answer": "A", "correct": correct, "confidence": 0.5, "entropy": 1.0, "nll": 1.0}
    return asked | answer | more


def counted(probe, condition, right, points, tasks=("t1", "t2")):
    """`right` of `points` answered right in each task."""
    return [record(probe, task, point, condition, point < right) for task in tasks for point in range(points)]


def masks(**rights):
    return [r for k, right in rights.items() for r in counted("mask-count", {"masks": int(k[1:])}, right, 100)]


def test_formulas_by_hand():
    records = masks(k1=95, k2=90, k5=80, k50=60, k200=40)
    c = 1 / 3
    a = {1: 0.95, 2: 0.90, 5: 0.80, 50: 0.60, 200: 0.40}
    tax = 1 - np.mean([(a[k] - c) / (a[2] - c) for k in (5, 50, 200)])
    assert mask_tax(records)["value"] == pytest.approx(tax)
    assert degradation(records)["value"] == pytest.approx((0.95 - 0.40) / 0.95)
    rights = {"right": {40: 90, 20: 33, 0: 50}, "left": {0: 80, 20: 33, 40: 70}, "middle": {0: 10, 20: 99, 40: 10}}
    sides = [
        r
        for side, by_location in rights.items()
        for at, right in by_location.items()
        for r in counted("question-position", {"question": side, "location": at}, right, 100)
    ]
    expected = np.mean([(0.9 - 0.5) / (0.9 - c), (0.8 - 0.7) / (0.8 - c)])
    assert locality(sides)["value"] == pytest.approx(expected)
    last_only = [
        r for at, right in ((0, 50), (20, 33), (40, 90)) for r in counted("location", {"location": at}, right, 100)
    ]
    assert locality(last_only)["value"] == pytest.approx((0.9 - 0.5) / (0.9 - c))


def test_null_where_there_is_no_skill_or_nothing_was_measured():
    null = {"value": None, "low": None, "high": None, "why": NOT_MEASURED}
    unskilled = null | {"why": NO_SKILL}
    assert mask_tax(masks(k2=38, k50=90)) == unskilled  # .38 is less than .05 above chance
    assert mask_tax(masks(k2=39, k50=30))["value"] is not None
    assert degradation(masks(k1=38, k2=30)) == unskilled
    assert mask_tax(masks(k1=90, k5=80)) == mask_tax(masks(k2=90)) == mask_tax([]) == null
    assert locality([]) == degradation([]) == null
    assert locality(counted("location", {"location": 0}, 9, 10)) == null
    one_side_weak = [
        r
        for side, right in (("right", (90, 50)), ("left", (35, 30)))
        for at, share in zip((40, 0) if side == "right" else (0, 40), right, strict=True)
        for r in counted("question-position", {"question": side, "location": at}, share, 100)
    ]
    assert locality(one_side_weak) == unskilled


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(60, 100), st.integers(40, 100)), min_size=2, max_size=6))
def test_a_bootstrap_interval_holds_its_value_and_is_the_same_each_time(tasks):
    records = [
        r
        for number, (two, many) in enumerate(tasks)
        for k, right in ((2, two), (50, many))
        for r in counted("mask-count", {"masks": k}, right, 100, [f"t{number}"])
    ]
    score = mask_tax(records)
    assert score["low"] <= score["value"] <= score["high"]
    assert score == mask_tax(list(reversed(records)))


def test_bootstrap_of_one_task_is_as_wide_as_the_binomial():
    """One task, k=2 always right: the tax is a linear map of a binomial share, whose spread is known."""
    points, right = 400, 280
    records = [*counted("mask-count", {"masks": 2}, points, points, ["t"]),
               *counted("mask-count", {"masks": 9}, right, points, ["t"])]  # fmt: skip
    score = mask_tax(records)
    spread = np.sqrt(0.7 * 0.3 / points) / (2 / 3)
    assert score["value"] == pytest.approx(1 - (0.7 - 1 / 3) / (2 / 3))
    assert score["high"] - score["low"] == pytest.approx(2 * 1.96 * spread, rel=0.1)


def test_a_perfect_model_pays_nothing_whatever_the_counts():
    for counts in ((1, 2, 5, 20, 100), (1, 2, 5, 10, 20, 50, 100, 200)):
        records = [r for k in counts for r in counted("mask-count", {"masks": k}, 9, 9, ["a", "b"])]
        assert mask_tax(records) == degradation(records) == {"value": 0, "low": 0, "high": 0, "why": None}


def test_answers_that_change_places_within_their_tasks_are_not_called_the_same():
    records = [
        record("mask-count", task, point, {"masks": k}, (point + (k > 2)) % 2 == 0 or point > 3)
        for task in "abcd" for k in (2, 50) for point in range(20)
    ]  # fmt: skip
    score = mask_tax(records)
    assert score["value"] == 0 and score["low"] < 0 < score["high"]


def test_one_point_has_no_interval():
    records = [*counted("mask-count", {"masks": 2}, 1, 1, ["t"]), *counted("mask-count", {"masks": 9}, 0, 1, ["t"])]
    assert mask_tax(records) == {"value": pytest.approx(1.5), "low": None, "high": None, "why": None}


@pytest.mark.parametrize(("tasks", "points", "spread"), [(16, 100, 0.0), (16, 25, 0.1), (6, 25, 0.05)])
def test_a_score_lies_in_its_interval_as_often_as_promised(tasks, points, spread):
    """400 runs of tasks that differ by `spread`, asked the same points under two conditions 0.1 apart."""
    draws, hits, widths = np.random.default_rng(1), 0, []
    for _ in range(400):
        levels = 0.6 + spread * draws.standard_normal((tasks, 1, 1))
        changes = 0.1 + spread * draws.standard_normal((tasks, 1, 1))
        luck = draws.random((tasks, points, 2))
        right = luck < levels + np.concatenate([np.zeros_like(changes), -changes], 2)
        score = bootstrapped([table.astype(float) for table in right], lambda accuracy: accuracy[:, 0] - accuracy[:, 1])
        hits += score["low"] <= 0.1 <= score["high"]
        widths.append(score["high"] - score["low"])
    assert 0.915 <= hits / 400 <= 0.98
    # Two shares of `points` points, and tasks that differ: the standard error is known.
    error = np.sqrt((0.24 + 0.25 - spread**2) / points + spread**2) / np.sqrt(tasks)
    assert np.mean(widths) == pytest.approx(2 * stats.t.ppf(0.975, tasks - 1) * error, rel=0.2)


def test_accuracy_interval_over_tasks_is_students():
    shares = {"a": 50, "b": 70, "c": 90, "d": 60}
    group = [r for task, right in shares.items() for r in counted("location", {}, right, 100, [task])]
    means = np.array(list(shares.values())) / 100
    low, high = stats.t.interval(0.95, 3, loc=means.mean(), scale=stats.sem(means))
    assert accuracy_interval(group) == pytest.approx((means.mean(), low, high))


def test_accuracy_interval_is_wilsons_where_tasks_tell_nothing():
    for tasks in (["a"], ["a", "b"]):
        accuracy, low, high = accuracy_interval(counted("location", {}, 50, 50, tasks))
        n = 50 * len(tasks)
        assert (accuracy, high) == (1, pytest.approx(1)) and low == pytest.approx(1 / (1 + 1.96**2 / n), abs=1e-4)


def test_mcnemar_by_hand():
    base = [record("p", "t", point, {}, correct) for point, correct in enumerate([1, 1, 1, 1, 1, 1, 0, 0, 0, 0])]
    now = [record("p", "t", point, {}, correct) for point, correct in enumerate([0, 0, 0, 0, 0, 1, 1, 0, 0, 0])]
    result = paired_difference(now, base)
    assert result["difference"] == pytest.approx(-0.4)
    assert result["p"] == pytest.approx(2 * (1 + 6) / 2**6)  # 5 lost, 1 gained: both tails of 0 and 1 in 6
    assert paired_difference(now[:3], base[3:]) == {"difference": 0.0, "p": 1.0}


def test_points_a_stopped_run_did_not_reach_are_left_out_of_scores():
    whole, part = masks(k2=90, k50=60), masks(k2=90, k50=60)
    part = [r for r in part if not (r["condition"]["masks"] == 2 and r["point"] >= 50)]
    assert mask_tax(part)["value"] == pytest.approx(1 - (1 - 1 / 3) / (1 - 1 / 3))
    assert mask_tax(whole)["value"] != mask_tax(part)["value"]


def test_entries_are_ordered_by_number_and_carry_masks_and_n():
    records = masks(k100=50, k2=90, k20=70)
    assert [entry["condition"]["masks"] for entry in entries(mask_probe.PROBE, records)] == [2, 20, 100]
    text = [
        record(
            "natural-text", "text", n, {"after": "masks", "count": count}, True, nll=float(count + n), masks=count + 1
        )
        for count in (0, 10)
        for n in range(3)
    ]
    first, second = entries(natural_text.PROBE, text)
    assert (first["nll"], second["nll"], second["masks"], second["n"]) == (1.0, 11.0, 11, 3)
    assert (first["nll_low"], first["nll_high"]) == pytest.approx(stats.t.interval(0.95, 2, loc=1, scale=1 / 3**0.5))


def test_summary_is_plain_json():
    manifest = {"model": {"name": "m", "mask_id": 7}, "settings": {"probes": ["mask-count", "location"]}}
    summary = summarise(Run(Path("somewhere"), manifest, masks(k2=90, k50=60)))
    assert json.loads(json.dumps(summary, allow_nan=False)) == summary
    assert list(summary["probes"]) == ["mask-count"]
