"""Contrasts of conditions over the same points: Student's interval, stratified by task, and exact bounds."""

import numpy as np
import pytest
from scipy import stats

from maskwise.randomness import numpy_generator
from maskwise.records.record import condition_text
from maskwise.scoring.contrasts import Answers, stratified
from maskwise.scoring.intervals import none_seen


def test_one_task_is_students_interval():
    values = numpy_generator("contrast").normal(0.3, 1, 40)
    found = stratified([values])
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found["value"], found["low"], found["high"]) == pytest.approx((values.mean(), interval.low, interval.high))


def test_differences_between_tasks_do_not_widen_it():
    noise = numpy_generator("strata").normal(0, 1, (4, 30))
    apart, alike = (stratified(list(noise + shift * np.arange(4)[:, None])) for shift in (5, 0))
    assert apart["high"] - apart["low"] == pytest.approx(alike["high"] - alike["low"])
    assert apart["value"] == pytest.approx(alike["value"] + 7.5)


def test_what_never_varies_has_a_bound_and_not_a_width_of_zero():
    share = none_seen(20)
    for value, low, high in ((0.0, -share, share), (-1.0, -1.0, -1 + 2 * share), (1.0, 1 - 2 * share, 1.0)):
        found = stratified([np.full(10, value), np.full(10, value)], most=1)
        assert (found["low"], found["high"]) == pytest.approx((low, high))
    assert stratified([np.zeros(10)])["low"] is None  # of nats nothing is known
    assert stratified([np.ones(1), np.zeros(9)], most=1)["low"] is None
    assert stratified([])["value"] is None


def test_coverage_over_these_tasks():
    """Points drawn anew, tasks that differ: the mean over tasks lies in the interval in at least 94 % of draws."""
    draws, rates = numpy_generator("coverage"), np.array([0.05, 0.2, 0.5, 0.9])
    missed, repeats = 0, 1500
    for _ in range(repeats):
        tasks = [draws.binomial(1, rate, 40).astype(float) - draws.binomial(1, 0.5, 40) for rate in rates]
        found = stratified(tasks, most=1)
        missed += not found["low"] <= rates.mean() - 0.5 <= found["high"]
    assert missed / repeats < 0.06


def test_points_are_paired_and_those_without_all_conditions_left_out():
    conditions = {"a": {"masks": 2}, "b": {"masks": 20}}
    rows = [("a", 0, 1.0), ("a", 1, 2.0), ("a", 2, 5.0), ("b", 0, 1.5), ("b", 1, 3.0)]
    records = [{"task": "t", "point": point, "condition": conditions[name], "nll": nll} for name, point, nll in rows]
    weights = {condition_text(conditions["b"]): 1.0, condition_text(conditions["a"]): -1.0}
    assert Answers(records).contrast(weights, "nll")["value"] == pytest.approx(0.75)
    assert Answers(records).contrast({**weights, '{"masks": 5}': 1.0}, "nll")["value"] is None
