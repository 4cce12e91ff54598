"""Shares, changes and means by their laws: closed forms, exact bounds, p-values that agree with their intervals."""

import numpy as np
import pytest
from scipy import stats

from helpers.tables import questions
from maskwise.scoring import intervals
from maskwise.scoring.estimates import change, mean, share
from maskwise.scoring.intervals import difference_interval, mean_interval, none_seen, p_of_mean, share_interval
from maskwise.support.randomness import numpy_generator


def tasks_of(*values):
    return {f"task {n}": np.array(one, dtype=float) for n, one in enumerate(values)}


def ends(one):
    return one.low, one.high


# Shares


def test_the_bound_of_none_seen_is_what_it_says():
    """A share of exactly the bound shows no case in n points with a probability of 5 %."""
    for points in (7, 35, 48):
        assert (1 - none_seen(points)) ** points == pytest.approx(0.05)


def test_where_all_are_right_or_one_task_was_asked_the_bounds_are_those_of_jeffreys():
    for tasks in (1, 2):
        found = share("", questions(*[np.ones(50)] * tasks))
        assert (found.value, found.high) == (1, 1) and found.low == pytest.approx(
            stats.beta.ppf(0.025, 50 * tasks + 0.5, 0.5)
        )
    alone = share("", questions([1], [1], [1]))  # a point each: no spread within
    assert ends(alone) == pytest.approx((stats.beta.ppf(0.025, 3.5, 0.5), 1))
    found = share("", questions([1] * 30 + [0] * 20))
    assert ends(found) == pytest.approx(tuple(stats.beta.ppf([0.025, 0.975], 30.5, 20.5)))


def test_the_interval_of_a_share_is_for_these_tasks_and_the_other_is_over_tasks():
    means = np.array([0.5, 0.7, 0.9, 0.6])
    found = share("", questions(*([1] * round(100 * one) + [0] * round(100 - 100 * one) for one in means)))
    assert found.value == pytest.approx(means.mean()) and found.n == 400
    within = 1.96 * np.sqrt((means * (1 - means) / 100).sum()) / 4
    assert found.high - found.low == pytest.approx(2 * within, rel=0.05)
    low, high = stats.t.interval(0.95, 3, loc=means.mean(), scale=stats.sem(means))
    assert (found.tasks_low, found.tasks_high) == pytest.approx((low, high))
    apart = share("", questions([1, 1, 1], [0, 0, 0]))
    assert (apart.tasks_low, apart.tasks_high) == (0, 1)  # cut at what is possible


def test_no_interval_leaves_the_possible_range():
    shares = np.array([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [0.5, 1.0]])
    for counts in (np.full(2, 1.0), np.full(2, 3.0)):
        _, low, high = share_interval(shares, counts)
        assert (low >= 0).all() and (high <= 1).all() and (low < high).all()
        _, low, high = difference_interval(shares, 1 - shares, counts)
        assert (low >= -1).all() and (high <= 1).all() and (low < high).all()


# Changes


def test_a_change_by_hand():
    before, after = questions([1, 1, 1, 1, 1, 1, 0, 0, 0, 0]), questions([0, 0, 0, 0, 0, 1, 1, 0, 0, 0])
    found = change("", after, before)
    assert found.value == pytest.approx(-0.4) and found.n == 10
    assert -1 < found.low < -0.4 < 0 < found.high  # 5 lost and 1 gained of 10 do not leave zero out
    none = change("", before, before)
    assert none.high == -none.low == pytest.approx(none_seen(10)) and none.value == 0
    assert change("", after[:3], before[3:]).value is None  # not the same questions


def test_the_interval_of_a_change_is_newcombes_of_jeffreys_bounds():
    n, lost, gained = 60, 20, 5
    found = change("", questions([0] * lost + [1] * (n - lost)), questions([1] * (n - gained) + [0] * gained))
    (down, down_low, down_high), (up, up_low, up_high) = (
        (k / n, *stats.beta.ppf([0.025, 0.975], k + 0.5, n - k + 0.5)) for k in (lost, gained)
    )
    r = -np.sqrt(up * down / ((1 - up) * (1 - down)))
    below, above = (
        np.sqrt(one**2 + other**2 - 2 * r * one * other)
        for one, other in ((up - up_low, down_high - down), (up_high - up, down - down_low))
    )
    assert (found.value, *ends(found)) == pytest.approx((up - down, up - down - below, up - down + above))


def test_a_change_weighs_tasks_alike_and_knows_their_spread():
    """One task always loses, the other never: nothing varies within a task, so the interval is as narrow as it gets."""
    found = change("", questions(np.zeros(100), np.ones(100)), questions(np.ones(100), np.ones(100)))
    assert found.value == -0.5 and found.high - found.low < 0.08  # unstratified: 0.14
    assert found.tasks_low == -1 and found.tasks_high > 0  # Student's interval, cut at what is possible


def test_several_intervals_that_hold_together_are_wider():
    draws = numpy_generator("level")
    before, after = (questions(draws.integers(0, 2, 50)) for _ in range(2))
    alone, together = change("", after, before), change("", after, before, level=0.01)
    assert together.low < alone.low and alone.high < together.high and together.value == alone.value


# Means


def test_the_mean_of_one_task_has_students_interval():
    values = numpy_generator("contrast").normal(0.3, 1, 40)
    interval = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    found = mean("", questions(values))
    assert (found.value, *ends(found)) == pytest.approx((values.mean(), interval.low, interval.high))
    assert found.p == pytest.approx(stats.ttest_1samp(values, 0).pvalue)


def test_differences_between_tasks_do_not_widen_it():
    noise = numpy_generator("strata").normal(0, 1, (4, 30))
    apart, alike = (mean("", questions(*(noise + shift * np.arange(4)[:, None]))) for shift in (5, 0))
    assert apart.high - apart.low == pytest.approx(alike.high - alike.low)
    assert apart.value == pytest.approx(alike.value + 7.5) and apart.n == 120
    assert apart.tasks_low < apart.low and apart.high < apart.tasks_high  # tasks differ by more than points


def test_what_never_varies_has_a_bound_and_not_a_width_of_zero():
    unseen = none_seen(20)
    for value, low, high in ((0.0, -unseen, unseen), (-1.0, -1.0, -1 + 2 * unseen), (1.0, 1 - 2 * unseen, 1.0)):
        found = mean_interval(tasks_of([value] * 10, [value] * 10), (-1, 1))
        assert found == pytest.approx((value, low, high))
    assert mean_interval(tasks_of(np.zeros(10))) == (0.0, None, None)  # of nats nothing is known
    assert mean_interval(tasks_of([1.0]), (-1, 1)) == (1.0, None, None)  # nor of one point
    none = questions([1.0])[:0]
    assert [(one.value, one.unit) for one in (mean("", none, ""), share("", none))] == [(None, ""), (None, "%")]


def test_an_interval_stays_within_the_bounds():
    _, low, high = mean_interval(tasks_of([1.0, 1.0, 1.0, 0.0]), (-1, 1))
    assert low < 0.75 < high == 1.0


def test_a_p_value_and_its_interval_agree():
    draws = np.random.default_rng(1)
    for values in (draws.normal(0.3, 1, 30), np.ones(30), np.zeros(30), -np.ones(9)):
        strata = tasks_of(values)
        value, *both = mean_interval(strata, (-1.5, 1.5))
        for end in both:
            if abs(end - value) > 1e-9:
                assert p_of_mean(strata, end, (-1.5, 1.5)) == pytest.approx(0.05)


def test_pearsons_r_has_fishers_interval():
    x, y = numpy_generator("r").normal(size=(2, 30))
    r, low, high = intervals.correlation(x, y)
    assert r == pytest.approx(np.corrcoef(x, y)[0, 1])
    assert (low, high) == pytest.approx(
        tuple(np.tanh(np.arctanh(r) + np.array([-1, 1]) * 1.96 / np.sqrt(27))), abs=1e-4
    )
    assert intervals.correlation(x[:3], y[:3])[0] is None and intervals.correlation(x, np.ones(30))[0] is None
