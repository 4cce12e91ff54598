"""Shares, changes and means with their 95 % intervals, as plain tuples (value, low, high).

An interval is for these tasks with new points (questions): points vary within each task (a stratum), and every task has
the same weight. `over_tasks` is the one for other tasks: Student's t over the tasks, each its own mean.

share    Jeffreys' interval (Brown, Cai and DasGupta 2001) of the effective number of points (Korn and Graubard 1998)
change   Jeffreys' bounds of the shares gained and lost, combined (Newcombe 1998; Zou and Donner 2008)
mean     Student's interval over the points within tasks
ratio    quantiles of the posterior of the accuracies (scores.py)

Where no answer changed, the bound is exact: 0 of n. tests/scoring/test_coverage.py simulates the coverage of each.

Arrays are [..., tasks]; counts are the points of each task. Everything is computed for all leading places at once.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy  # scipy.stats, which takes a second to import, is imported when it is first used

CONFIDENCE = 0.95
TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
LEAST_DESIGN_EFFECT = 0.25  # how far strata that differ may narrow an interval
SAME = 1e-9  # what differs by less differs by rounding

Ends = tuple[float | None, float | None]
Interval = tuple[float | None, float | None, float | None]  # value, low, high
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]  # likewise
Bounds = tuple[float, float]  # the least and the most a value can be
Strata = Mapping[str, np.ndarray]  # the values of each task's points


# Shares


def jeffreys_bounds(
    share: np.ndarray, points: np.ndarray | float, tails: Bounds = TAILS
) -> tuple[np.ndarray, np.ndarray]:
    """Quantiles of the posterior of a share [...] of so many points (any positive number) under Jeffreys' prior.

    Brown, Cai and DasGupta (2001): with 0 of n the lower bound is 0, with n of n the upper one is 1.
    """
    seen, unseen = share * points, (1 - share) * points
    low, high = (scipy.special.betaincinv(seen + 0.5, unseen + 0.5, tail) for tail in tails)
    return np.where(seen > SAME, low, 0.0), np.where(unseen > SAME, high, 1.0)


def none_seen(points: np.ndarray | float, tails: Bounds = TAILS) -> Any:
    """The upper bound of a share of which 0 of n points were seen, exact: 1 - .05^(1/n), about 3.0 / n.

    One-sided at 95 %, since a share has no lower side than 0.
    """
    return 1 - (2 * tails[0]) ** (1 / points)


def p_by_guessing(right: int, n: int, guessing: float) -> float:
    """The probability of as many right answers by guessing: a one-sided exact binomial test."""
    return float(scipy.special.bdtrc(right - 1, n, guessing)) if right > 0 else 1.0


def effective_points(counts: np.ndarray) -> float:
    """The effective number of points of a mean over tasks with equal weights."""
    return float(len(counts) ** 2 / (1 / counts).sum())


def share_interval(shares: np.ndarray, counts: np.ndarray, within: np.ndarray | None = None) -> Arrays:
    """Of the mean over tasks of shares [..., T]: Jeffreys' bounds of the effective number of points.

    That is the number of points of a simple sample with the variance found within the tasks (Korn and Graubard 1998).
    `within` [..., T] is that variance where a point is a question asked several times, its value the share of right
    answers.
    """
    share = shares.mean(-1)
    within = shares * (1 - shares) if within is None else within
    low, high = jeffreys_bounds(share, _informative_points(within, share * (1 - share), counts))
    return share, low, high


def difference_interval(
    gained: np.ndarray, lost: np.ndarray, counts: np.ndarray, within: np.ndarray | None = None, tails: Bounds = TAILS
) -> Arrays:
    """Of the difference of paired answers, from the shares gained and lost [..., T] of each task's points.

    `within` [..., T] is the variance of a point's change where it is no answer but a share of several. `tails` are
    narrower where several intervals are to hold together.

    Jeffreys' bounds of both shares, combined by the square-and-add rule with their negative correlation (Newcombe 1998;
    Zou and Donner 2008). Where no answer changed: the exact bound of the share that may have (`none_seen`).
    """
    up, down = gained.mean(-1), lost.mean(-1)
    change = up - down
    within = gained + lost - (gained - lost) ** 2 if within is None else within
    points = _informative_points(within, up + down - change**2, counts)
    (up_low, up_high), (down_low, down_high) = jeffreys_bounds(up, points, tails), jeffreys_bounds(down, points, tails)
    correlation = -np.sqrt(up * down / np.maximum((1 - up) * (1 - down), SAME))

    def reach_of(one: np.ndarray, other: np.ndarray) -> np.ndarray:
        return np.sqrt(one**2 + other**2 - 2 * correlation * one * other)

    unseen, changed = none_seen(points, tails), up + down > SAME
    low = np.where(changed, change - reach_of(up - up_low, down_high - down), -unseen)
    high = np.where(changed, change + reach_of(up_high - up, down - down_low), unseen)
    return change, np.maximum(low, -1.0), np.minimum(high, 1.0)


def _informative_points(within: np.ndarray, overall: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The number of points of a simple sample with the variance found within the tasks, one to four times theirs.

    within [..., T] is the variance of a point of each task, overall [...] that of a point of any. If a task has one
    point, or nothing varies, the tasks are pooled, which can only widen the interval: the sum of unequal coins has less
    variance than that of as many equal ones (Hoeffding 1956).
    """
    points = effective_points(counts)
    if counts.min() < 2:
        return np.full(overall.shape, points)
    found = (within / (counts - 1)).sum(-1) / len(counts) ** 2
    simple = overall / points
    students = (scipy.stats.t.ppf(TAILS[1], counts.sum() - len(counts)) / scipy.stats.norm.ppf(TAILS[1])) ** 2
    effect = np.where(simple > SAME, students * found / np.maximum(simple, SAME), 1.0)
    return points / effect.clip(LEAST_DESIGN_EFFECT, 1.0)


# Of the points of each task


def points_of(strata: Strata) -> np.ndarray:
    return np.array([len(values) for values in strata.values()], dtype=float)


def means_of(strata: Strata) -> np.ndarray:
    return np.array([values.mean() for values in strata.values()])


def variances_of(strata: Strata) -> np.ndarray:
    """The variance of a point of each task; p (1 - p) if points are right or wrong."""
    return np.array([values.var() for values in strata.values()])


def paired_share(strata: Strata, within: np.ndarray | None = None, tails: Bounds = TAILS) -> Arrays:
    """Of the mean over tasks of changes of right answers, -1 to 1 each: the interval of a paired difference."""
    gained, lost = (np.array([(sign * change).clip(0).mean() for change in strata.values()]) for sign in (1, -1))
    return difference_interval(gained, lost, points_of(strata), within, tails)


def mean_interval(strata: Strata, bounds: Bounds | None = None, tails: Bounds = TAILS) -> Interval:
    """Of the mean over tasks of values that are within `bounds`.

    Where none varies within its task, some may lie at either bound: the exact bound of none in so many says how many.
    Without bounds there is no interval then, nor where there is one point only.
    """
    mean, known = float(means_of(strata).mean()), mean_error(strata)
    least, most = bounds or (-np.inf, np.inf)
    if known is not None:
        error, free = known
        half = float(scipy.stats.t.ppf(tails[1], free)) * error
        return mean, max(mean - half, least), min(mean + half, most)
    if bounds is None or points_of(strata).sum() < 2:
        return mean, None, None
    unseen = float(none_seen(effective_points(points_of(strata)), tails))
    return mean, mean - unseen * (mean - least), mean + unseen * (most - mean)


def mean_error(strata: Strata) -> tuple[float, float] | None:
    """The standard error of the mean over tasks and its degrees of freedom; None where nothing varies within tasks."""
    counts, values = points_of(strata), np.concatenate(list(strata.values()))
    if len(values) < 2 or np.ptp(values) < SAME:
        return None
    if counts.min() < 2:  # the tasks' own spread is not known: all points as one task, which can only widen
        return float(values.std(ddof=1) / np.sqrt(effective_points(counts))), float(len(values) - 1)
    variances = np.array([one.var(ddof=1) for one in strata.values()])
    if variances.max() < SAME**2:
        return None
    error, free = standard_error(variances, counts)
    return float(error), float(free)


def standard_error(variances: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The standard error of a mean over tasks, and Satterthwaite's degrees of freedom."""
    errors = variances / counts
    total = errors.sum(-1)
    free = total**2 / np.maximum((errors**2 / (counts - 1)).sum(-1), np.finfo(float).tiny)
    return np.sqrt(total) / len(counts), np.maximum(free, 1.0)


def p_of_mean(strata: Strata, against: float = 0.0, bounds: Bounds | None = None) -> float | None:
    """Two-sided: the level at which the end of the mean's Student interval would lie at `against`.

    Where no value differs from another, that of the exact bound of none in so many within `bounds`; None without."""
    value, known = float(means_of(strata).mean()), mean_error(strata)
    if known is not None:
        error, free = known
        return float(2 * scipy.stats.t.sf(abs(value - against) / error, free))
    if bounds is None or points_of(strata).sum() < 2:
        return None
    room = value - bounds[0] if value > against else bounds[1] - value
    share = min(1.0, abs(value - against) / room) if room > 0 else 1.0
    return float((1 - share) ** effective_points(points_of(strata)))


def over_tasks(strata: Strata, bounds: Bounds | None = None) -> Ends:
    """Student's interval over the tasks, each its own mean, cut at the bounds: for other tasks, as the papers shade.

    None where there are fewer than two tasks or all agree."""
    values = means_of(strata)
    mean, half = float(values.mean()), students_half(values)
    least, most = bounds or (-np.inf, np.inf)
    return (None, None) if half is None else (max(mean - half, least), min(mean + half, most))


def students_half(values: np.ndarray) -> float | None:
    """Half of Student's interval of the mean of values [n]; None where they are fewer than two or all agree."""
    if len(values) < 2 or np.ptp(values) < SAME:
        return None
    return float(scipy.stats.t.ppf(TAILS[1], len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values)))


def correlation(x: Any, y: Any) -> Interval:
    """Pearson's r with Fisher's interval; None with fewer than four pairs or where one side does not vary."""
    if len(x) < 4 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None, None, None
    found = scipy.stats.pearsonr(x, y)
    low, high = found.confidence_interval(CONFIDENCE)
    return float(found.statistic), float(low), float(high)
