"""Formulas of accuracies, and their 95 % intervals by draws from the posterior of these."""

from collections.abc import Callable
from itertools import product

import numpy as np

from maskwise.scoring import intervals
from maskwise.scoring.intervals import SAME, TAILS, Bounds, Ends, Interval, Strata
from maskwise.support.randomness import numpy_generator
from maskwise.tasks.episodes import CHANCE

LEAST_SKILL = 0.05  # accuracy above chance below which a share of it means nothing
LEAST_LOSS = 0.02  # of accuracy before, for a share of it to mean anything
RESAMPLES = 2000
PRIOR_SHARE, PRIOR_POINTS = 1 / 16, (1.0, 2.0)  # the prior's weight: a share of the points, within these bounds
PRIOR_PATTERNS = 4  # over which it is spread in each draw
MOST_CONDITIONS = 10  # up to which all patterns of right and wrong are tried for an exact bound
NO_SKILL = "no skill above guessing to lose"
TOO_LITTLE_LOSS = "too little was lost"

# From accuracies [m, C] under C conditions to scores [m], nan where undefined.
Formula = Callable[[np.ndarray], np.ndarray]
# The low end of an interval from accuracies [C], resampled ones [m, C] and the share of them below it.
LowEnd = Callable[[np.ndarray, np.ndarray, float], float]


def bootstrapped(by_task: Strata, formula: Formula, low_end: LowEnd | None = None) -> Interval:
    """The score that `formula` gives, with its interval. by_task: what each point of a task gave, [points, C].

    The interval: quantiles of the posterior of the accuracies (a stratified Bayesian bootstrap, Rubin 1981). The points
    of each task, all conditions of a point together, have Dirichlet weights; a prior worth one or two points is spread
    over patterns of answers drawn at random, because a pattern that was not seen may still occur. Draws in which the
    score is undefined are left out. Where no answer differs the exact bound is used instead. All draws are accuracies
    between 0 and 1, so the interval is never outside the range of the score.

    low_end: for a score that is biased upwards under the null, whose draws all lie too high.
    """
    value = float(formula(np.mean([table.mean(0) for table in by_task.values()], axis=0)[None])[0])
    if np.isnan(value):
        return None, None, None
    differed = any((np.ptp(table, axis=1) > SAME).any() for table in by_task.values())
    low, high = resampled_ends(by_task, formula, low_end=low_end) if differed else exact_ends(by_task, formula)
    if low is not None and high is not None:
        low, high = min(low, value), max(high, value)
    return value + 0.0, low, high


def resampled_ends(
    by_task: Strata, formula: Formula, resamples: int = RESAMPLES, low_end: LowEnd | None = None, tails: Bounds = TAILS
) -> Ends:
    strata = list(by_task.values())
    if min(map(len, strata)) < 2:  # no spread within the tasks: all points as one, which can only widen
        strata = [np.concatenate(strata)]
    points = sum(map(len, strata))
    if points < 2:
        return None, None
    draws = numpy_generator("bootstrap")
    weight = 1 - (len(strata) - 1) / points  # each task's own mean takes a degree of freedom
    prior = float(np.clip(PRIOR_SHARE * points, *PRIOR_POINTS)) / len(strata)
    accuracy = np.mean([posterior_means(table, weight, prior, resamples, draws) for table in strata], axis=0)
    found = formula(accuracy)
    if np.isnan(found).all():
        return None, None
    low, middle, high = np.nanquantile(found, (tails[0], 0.5, tails[1]))
    if low_end is not None:
        observed = np.mean([table.mean(0) for table in strata], axis=0)
        low = low_end(observed, accuracy, tails[0])
        high -= max(0.0, middle - formula(observed[None])[0])  # the draws are biased upwards once more
    return float(low), float(high)


def posterior_means(
    table: np.ndarray, weight: float, prior: float, resamples: int, draws: np.random.Generator
) -> np.ndarray:
    """Draws [resamples, C] of a task's accuracies: Dirichlet weights over its points and over random patterns.

    A random pattern is right or wrong with probability 1/2 under each condition. Equal rows share one weight, so that a
    million points cost no more than the patterns of answers they show.
    """
    rows, counts = distinct_rows(table)
    seen = draws.standard_gamma(weight * counts, size=(resamples, len(rows)))
    unseen = draws.standard_gamma(prior / PRIOR_PATTERNS, size=(resamples, PRIOR_PATTERNS))
    patterns = draws.integers(0, 2, size=(resamples, PRIOR_PATTERNS, table.shape[1]))
    total = seen.sum(1) + unseen.sum(1)
    return (seen @ rows + np.einsum("rp,rpc->rc", unseen, patterns)) / total[:, None]


def distinct_rows(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The rows of a table [n, C] once each, and how often they come. Where all values are 0 or 1 a row is a number."""
    right = table > 0
    if (table != right).any():
        rows, counts = np.unique(table, axis=0, return_counts=True)
        return rows, counts
    codes = right @ (1 << np.arange(table.shape[1], dtype=np.int64))
    _, first, counts = np.unique(codes, return_index=True, return_counts=True)
    return table[first], counts


def exact_ends(by_task: Strata, formula: Formula) -> Ends:
    """Where no answer differed: the least and the most the score can be if as many points as the exact bound of none in
    n allows show one other pattern of answers."""
    means = np.mean([table.mean(0) for table in by_task.values()], axis=0)
    unseen = float(intervals.none_seen(intervals.effective_points(intervals.points_of(by_task))))
    found = formula((1 - unseen) * means + unseen * patterns_of(len(means)))
    if np.isnan(found).all():
        return None, None
    return float(np.nanmin(found)), float(np.nanmax(found))


def patterns_of(conditions: int) -> np.ndarray:
    """Right and wrong under each of C conditions, [patterns, C]: all of them, or one condition against all others."""
    if conditions <= MOST_CONDITIONS:
        return np.array(list(product((0.0, 1.0), repeat=conditions)))
    return np.concatenate([np.eye(conditions), 1 - np.eye(conditions)])


def jackknife_over_tasks(by_task: Strata, formula: Formula) -> Ends:
    """Student's t over the tasks' jackknife values; for a mean they are the tasks' own means."""
    tasks = np.array([table.mean(0) for table in by_task.values()])
    count = len(tasks)
    if count < 2:
        return None, None
    whole, without = formula(tasks.mean(0)[None]), formula((tasks.sum(0) - tasks) / (count - 1))
    values = count * whole - (count - 1) * without
    half = None if np.isnan(values).any() else intervals.students_half(values)
    return (None, None) if half is None else (float(whole[0]) - half, float(whole[0]) + half)


# What formulas are made of


def share_of_skill(part: np.ndarray, skill: np.ndarray) -> np.ndarray:
    """part / skill, nan where there is too little skill to divide by."""
    return np.where(skill >= LEAST_SKILL, part / np.maximum(skill, LEAST_SKILL), np.nan)


def relative_loss(accuracy: np.ndarray) -> np.ndarray:
    """(max - min) / max over C conditions, [n, C] -> [n]; nan where even the best has too little skill."""
    best = accuracy.max(1)
    return np.where(best - CHANCE >= LEAST_SKILL, (best - accuracy.min(1)) / np.maximum(best, LEAST_SKILL), np.nan)


def share_recovered(accuracy: np.ndarray) -> np.ndarray:
    """(after - most) / (few - most) of [n, (few, most, after)] -> [n]; nan where too little was lost."""
    few, most, after = accuracy.T
    return np.where(few - most >= LEAST_LOSS, (after - most) / np.maximum(few - most, LEAST_LOSS), np.nan)


def loss_removed(accuracy: np.ndarray) -> np.ndarray:
    """1 - `relative_loss` after / before of [n, 2 C], before first, -> [n]; nan where too little was lost."""
    before, after = (relative_loss(side) for side in np.split(accuracy, 2, axis=1))
    return np.where(before >= LEAST_LOSS, 1 - after / np.maximum(before, LEAST_LOSS), np.nan)


def least_relative_loss(accuracy: np.ndarray, resampled: np.ndarray, tail: float) -> float:
    """The low end of `relative_loss`: the best and the worst of C accuracies differ where all are the same in truth.

    As in Tukey's studentised range: all C differ from their truths by less than the spread of the resampled errors
    between conditions, but for a share 2 x `tail` of the draws; so much of the range may be luck. Twice, because a
    range is an absolute value: with two conditions this is their difference beyond its own two-sided interval.
    """
    luck = np.quantile(np.ptp(resampled - resampled.mean(0), axis=1), 1 - 2 * tail)
    return float(max(0.0, np.ptp(accuracy) - luck) / accuracy.max())
