"""Scores against the formulas written out, and intervals by their laws."""

import json
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from helpers.records import manifest
from maskwise.probes.library import mask_count as mask_probe
from maskwise.probes.library.mask_count import degradation, mask_nats, mask_tax
from maskwise.probes.summary import entries, summarise
from maskwise.records.folder import RunOnDisk
from maskwise.records.record import Record
from maskwise.scoring.intervals import accuracy_interval, none_seen
from maskwise.scoring.scores import NO_SKILL, NOT_MEASURED, bootstrapped, null_score
from maskwise.support.files import to_json
from maskwise.support.typed import json_object


def record(probe, task, point, condition, correct, **more):
    asked = {"model": "m", "probe": probe, "task": task, "point": point, "condition": condition, "masks": 1}
    answer = {"predicted": "A", "answer": "A", "correct": correct, "confidence": 0.5, "entropy": 1.0, "nll": 1.0}
    return Record(**(asked | answer | more))


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


def test_null_where_there_is_no_skill_or_nothing_was_measured():
    null, unskilled = null_score(NOT_MEASURED), null_score(NO_SKILL)
    assert mask_tax(masks(k2=38, k50=90)) == unskilled  # .38 is less than .05 above chance
    assert mask_tax(masks(k2=39, k50=30))["value"] is not None
    assert degradation(masks(k1=38, k2=30)) == unskilled
    assert mask_tax(masks(k1=90, k5=80)) == mask_tax(masks(k2=90)) == mask_tax([]) == null
    assert degradation([]) == null


@settings(max_examples=10)
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
    records = [
        *counted("mask-count", {"masks": 2}, points, points, ["t"]),
        *counted("mask-count", {"masks": 9}, right, points, ["t"]),
    ]
    score = mask_tax(records)
    spread = np.sqrt(0.7 * 0.3 / points) / (2 / 3)
    assert score["value"] == pytest.approx(1 - (0.7 - 1 / 3) / (2 / 3))
    assert score["high"] - score["low"] == pytest.approx(2 * 1.96 * spread, rel=0.1)


def test_a_perfect_model_pays_nothing_whatever_the_counts():
    for counts in ((1, 2, 5, 20, 100), (1, 2, 5, 10, 20, 50, 100, 200)):
        records = [r for k in counts for r in counted("mask-count", {"masks": k}, 9, 9, ["a", "b"])]
        tax, lost, unseen = mask_tax(records), degradation(records), none_seen(18)
        assert (tax["value"], tax["n"], tax["differed"]) == (lost["value"], lost["n"], lost["differed"]) == (0, 18, 0)
        # A share of 1 - .05^(1/18) of the points may be wrong under all but one of the conditions, or under one.
        assert lost["low"] == 0 and lost["high"] == pytest.approx(unseen)
        assert tax["high"] == pytest.approx(unseen / (2 / 3)) and tax["low"] < 0


def test_answers_that_change_places_within_their_tasks_are_not_called_the_same():
    records = [
        record("mask-count", task, point, {"masks": k}, (point + (k > 2)) % 2 == 0 or point > 3)
        for task in "abcd"
        for k in (2, 50)
        for point in range(20)
    ]
    score = mask_tax(records)
    assert score["value"] == 0 and score["low"] < 0 < score["high"]


def test_one_point_has_no_interval():
    records = [*counted("mask-count", {"masks": 2}, 1, 1, ["t"]), *counted("mask-count", {"masks": 9}, 0, 1, ["t"])]
    found = mask_tax(records)
    assert (found["value"], found["low"], found["high"]) == (pytest.approx(1.5), None, None)


def test_the_interval_of_an_accuracy_speaks_for_these_tasks():
    """Tasks that differ do not widen it; the one for new rules is Student's over the word rules."""
    shares = {"verb-smallest": 50, "verb-largest": 70, "animal-smallest": 90, "colour-largest": 60}
    group = [r for task, right in shares.items() for r in counted("location", {}, right, 100, [task])]
    entry = entries(mask_probe.PROBE, [r | {"condition": {"masks": 2}} for r in group])[0]
    means = np.array(list(shares.values())) / 100
    assert entry["accuracy"] == pytest.approx(means.mean())
    within = 1.96 * np.sqrt((means * (1 - means) / 100).sum()) / 4
    assert entry["high"] - entry["low"] == pytest.approx(2 * within, rel=0.05)
    rules = [0.6, 0.9, 0.6]  # the two tasks with verbs are one rule
    low, high = stats.t.interval(0.95, 2, loc=np.mean(rules), scale=stats.sem(rules))
    assert (entry["rules_low"], entry["rules_high"]) == pytest.approx((low, 1)) and high > 1  # 113 % is no accuracy


def test_where_all_are_right_or_one_task_was_asked_the_bounds_are_those_of_jeffreys():
    for tasks in (["a"], ["a", "b"]):
        accuracy, low, high = accuracy_interval(counted("location", {}, 50, 50, tasks))
        points = 50 * len(tasks)
        assert (accuracy, high) == (1, 1) and low == pytest.approx(stats.beta.ppf(0.025, points + 0.5, 0.5))
    _, low, high = accuracy_interval(counted("location", {}, 1, 1, ["a", "b", "c"]))  # a point each: no spread within
    assert (low, high) == pytest.approx((stats.beta.ppf(0.025, 3.5, 0.5), 1))
    _, low, high = accuracy_interval(counted("location", {}, 30, 50, ["a"]))
    assert (low, high) == pytest.approx(stats.beta.ppf([0.025, 0.975], 30.5, 20.5))


def test_the_bound_of_none_seen_is_what_it_says():
    """A share of exactly the bound shows no case in n points with a probability of 5 %."""
    for points in (7, 35, 48):
        assert (1 - none_seen(points)) ** points == pytest.approx(0.05)


def test_nats_lost_by_hand():
    nats = {2: 0.5, 20: 0.7, 200: 1.5}
    records = [
        record("mask-count", task, point, {"masks": k}, True, nll=lost + 0.01 * point)
        for task in ("a", "b")
        for point in range(3)
        for k, lost in nats.items()
    ]
    assert mask_nats(records)["value"] == pytest.approx(((0.7 - 0.5) + (1.5 - 0.5)) / 2)
    assert mask_nats([r for r in records if r["condition"]["masks"] != 2]) == null_score()


def test_degradation_names_the_mask_counts_it_spans():
    assert degradation(masks(k1=95, k2=90, k50=60))["over"] == "k = 1, 2, 50"


def test_a_million_points_cost_what_their_patterns_cost():
    draws = np.random.default_rng(0)
    by_task = {f"{task}-smallest": (draws.random((60_000, 8)) < 0.8).astype(float) for task in range(16)}
    before = time.perf_counter()
    found = bootstrapped(by_task, lambda accuracy: accuracy[:, 0] - accuracy[:, 1:].mean(1))
    assert time.perf_counter() - before < 20
    assert found["n"] == 960_000 and found["high"] - found["low"] < 0.004


def test_points_a_stopped_run_did_not_reach_are_left_out_of_scores():
    whole, part = masks(k2=90, k50=60), masks(k2=90, k50=60)
    part = [r for r in part if not (r["condition"]["masks"] == 2 and r["point"] >= 50)]
    assert mask_tax(part)["value"] == pytest.approx(1 - (1 - 1 / 3) / (1 - 1 / 3))
    assert mask_tax(whole)["value"] != mask_tax(part)["value"]


def test_entries_are_ordered_by_number_and_carry_masks_and_n():
    records = masks(k100=50, k2=90, k20=70)
    assert [entry["condition"]["masks"] for entry in entries(mask_probe.PROBE, records)] == [2, 20, 100]


def test_summary_is_plain_json():
    summary = summarise(RunOnDisk(Path("somewhere"), manifest(probes=["mask-count", "location"]), masks(k2=90, k50=60)))
    assert json.loads(json.dumps(json_object(summary), allow_nan=False)) == json_object(summary)
    assert json.loads(to_json(summary)) == json_object(summary)
    assert list(summary.probes) == ["mask-count"]
