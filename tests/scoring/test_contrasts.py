"""Contrasts of conditions over the same points: paired sums, Student's interval stratified by task, exact bounds."""

import numpy as np
import pytest
from scipy import stats

from helpers.records import record
from maskwise.scoring.contrasts import Answers, weighted_sums, weights_of
from maskwise.scoring.intervals import bounded_mean, none_seen
from maskwise.scoring.scores import mean_score
from maskwise.support.randomness import numpy_generator


def tasks_of(*values):
    return {f"task {n}": np.array(one, dtype=float) for n, one in enumerate(values)}


def test_one_task_is_students_interval():
    values = numpy_generator("contrast").normal(0.3, 1, 40)
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert bounded_mean(tasks_of(values), None) == pytest.approx((values.mean(), interval.low, interval.high))


def test_differences_between_tasks_do_not_widen_it():
    noise = numpy_generator("strata").normal(0, 1, (4, 30))
    apart, alike = (mean_score(tasks_of(*(noise + shift * np.arange(4)[:, None]))) for shift in (5, 0))
    assert apart["high"] - apart["low"] == pytest.approx(alike["high"] - alike["low"])
    assert apart["value"] == pytest.approx(alike["value"] + 7.5) and apart["n"] == 120


def test_what_never_varies_has_a_bound_and_not_a_width_of_zero():
    share = none_seen(20)
    for value, low, high in ((0.0, -share, share), (-1.0, -1.0, -1 + 2 * share), (1.0, 1 - 2 * share, 1.0)):
        found = bounded_mean(tasks_of([value] * 10, [value] * 10), (-1, 1))
        assert found == pytest.approx((value, low, high))
    assert bounded_mean(tasks_of(np.zeros(10)), None) == (0.0, None, None)  # of nats nothing is known
    assert bounded_mean(tasks_of([1.0]), (-1, 1)) == (1.0, None, None)  # nor of one point
    assert mean_score({})["value"] is None


def test_an_interval_stays_within_the_bounds():
    _, low, high = bounded_mean(tasks_of([1.0, 1.0, 1.0, 0.0]), (-1, 1))
    assert low < 0.75 < high == 1.0


def test_coverage_over_these_tasks():
    """Points drawn anew, tasks that differ: the mean over tasks lies in the interval in at least 94 % of draws."""
    draws, rates = numpy_generator("coverage"), np.array([0.05, 0.2, 0.5, 0.9])
    missed, repeats = 0, 1500
    for _ in range(repeats):
        tasks = [draws.binomial(1, rate, 40).astype(float) - draws.binomial(1, 0.5, 40) for rate in rates]
        _, low, high = bounded_mean(tasks_of(*tasks), (-1, 1))
        missed += not low <= rates.mean() - 0.5 <= high
    assert missed / repeats < 0.06


def test_points_are_paired_and_those_without_all_conditions_left_out():
    few, many = {"masks": 2}, {"masks": 20}
    rows = [(few, 0, 1.0), (few, 1, 2.0), (few, 2, 5.0), (many, 0, 1.5), (many, 1, 3.0)]
    records = [record(probe="p", point=n, condition=which, nll=nll) for which, n, nll in rows]
    weights = weights_of("p", [(many, 1.0), (few, -1.0)])
    assert weighted_sums(records, weights, "nll")["t"].tolist() == [0.5, 1.0]
    assert not weighted_sums(records, weights | weights_of("p", [({"masks": 5}, 1.0)]), "nll")
    assert not weighted_sums(records, weights_of("another", [(many, 1.0)]), "nll")
    assert not Answers(records).sums(weights, "entropy") and not Answers([]).sums(weights, "nll")
