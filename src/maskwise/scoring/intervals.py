"""Means, accuracies and differences with 95 % intervals.

The primary interval is for these tasks with new points: points vary within each task (a stratum), and every task has
the same weight. The secondary interval is for new word rules: Student's t over the word rules, each the mean of the
tasks that share it.

accuracy           Jeffreys' interval (Brown, Cai and DasGupta 2001) of the effective number of points (Korn and
                   Graubard 1998)
paired difference  Jeffreys' bounds of the shares gained and lost, combined (Newcombe 1998; Zou and Donner 2008)
scores             quantiles of the posterior of the accuracies (scores.py)
nats               Student's interval over the points within tasks

Where no answer changed, the bound is exact: 0 of n. tests/scoring/test_coverage.py simulates the coverage of each.

Arrays are [..., tasks]; counts are the points of each task. Everything is computed for all leading places at once.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import scipy  # scipy.stats, which takes a second to import, is imported when it is first used

from maskwise.records.groups import as_group
from maskwise.records.record import Record
from maskwise.support.typed import Typed
from maskwise.tasks.rules import NUMBER_RULES

CONFIDENCE = 0.95
TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
LEAST_DESIGN_EFFECT = 0.25  # how far strata that differ may narrow an interval
SAME = 1e-9  # what differs by less differs by rounding

Ends = tuple[float | None, float | None]
Bounds = tuple[float, float]  # the least and the most a value can be


# Bounds of shares


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


def effective_points(counts: np.ndarray) -> float:
    """The effective number of points of a mean over tasks with equal weights."""
    return float(len(counts) ** 2 / (1 / counts).sum())


def share_interval(
    shares: np.ndarray, counts: np.ndarray, within: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(mean over tasks, low, high) of shares [..., T]: Jeffreys' bounds of the effective number of points.

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
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(difference, low, high) of paired answers, from the shares gained and lost [..., T] of each task's points.

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


# Means


def standard_error(variances: np.ndarray, counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The standard error of a mean over tasks, and Satterthwaite's degrees of freedom."""
    errors = variances / counts
    total = errors.sum(-1)
    free = total**2 / np.maximum((errors**2 / (counts - 1)).sum(-1), np.finfo(float).tiny)
    return np.sqrt(total) / len(counts), np.maximum(free, 1.0)


def rules_interval(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Student's interval of the mean over word rules, [..., G] -> [...]."""
    groups = values.shape[-1]
    half = scipy.stats.t.ppf(TAILS[1], groups - 1) * values.std(-1, ddof=1) / np.sqrt(groups)
    return values.mean(-1) - half, values.mean(-1) + half


# Of (task, value) pairs and records


def word_rule(task: str) -> str:
    """The word rule of a task (animal-smallest -> animal); a task of another kind stands for itself."""
    name, _, number = task.rpartition("-")
    return name if number in NUMBER_RULES else task


def by_task(values: Iterable[tuple[str, float]]) -> dict[str, np.ndarray]:
    """The values of each task's points."""
    found: dict[str, list[float]] = defaultdict(list)
    for task, value in values:
        found[task].append(value)
    return {task: np.array(listed, dtype=float) for task, listed in found.items()}


def points_of(strata: dict[str, np.ndarray]) -> np.ndarray:
    return np.array([len(values) for values in strata.values()], dtype=float)


def means_of(strata: dict[str, np.ndarray]) -> np.ndarray:
    return np.array([values.mean() for values in strata.values()])


def variances_of(strata: dict[str, np.ndarray]) -> np.ndarray:
    """The variance of a point of each task; p (1 - p) if points are right or wrong."""
    return np.array([values.var() for values in strata.values()])


def over_rules(task_means: dict[str, float], bounds: Bounds | None = None) -> Ends:
    """The secondary interval: Student's t over the word rules, cut at the bounds of the measure.

    None where there are fewer than two rules or all agree."""
    rules: dict[str, list[float]] = defaultdict(list)
    for task, mean in task_means.items():
        rules[word_rule(task)].append(mean)
    values = np.array([np.mean(means) for means in rules.values()])
    if len(values) < 2 or np.ptp(values) < SAME:
        return None, None
    low, high = rules_interval(values)
    least, most = bounds or (-np.inf, np.inf)
    return max(float(low), least), min(float(high), most)


def over_tasks(strata: Mapping[str, np.ndarray], bounds: Bounds | None = None) -> Ends:
    """Student's interval over the tasks, each its own mean, cut at the bounds: for other tasks, as the papers shade.

    None where there are fewer than two tasks or all agree."""
    values = means_of(dict(strata))
    if len(values) < 2 or np.ptp(values) < SAME:
        return None, None
    low, high = rules_interval(values)
    least, most = bounds or (-np.inf, np.inf)
    return max(float(low), least), min(float(high), most)


def p_of_mean(strata: dict[str, np.ndarray], against: float = 0.0, bounds: Bounds | None = None) -> float | None:
    """Two-sided: the level at which the end of the mean's Student interval would lie at `against`.

    Where no value differs from another, that of the exact bound of none in so many within `bounds`; None without."""
    value, known = float(means_of(strata).mean()), mean_error(strata)
    if known is not None:
        error, free = known
        return float(2 * scipy.stats.t.sf(abs(value - against) / error, free))
    points = sum(map(len, strata.values()))
    if bounds is None or points < 2:
        return None
    room = value - bounds[0] if value > against else bounds[1] - value
    share = min(1.0, abs(value - against) / room) if room > 0 else 1.0
    return float((1 - share) ** effective_points(points_of(strata)))


def rules_ends(strata: dict[str, np.ndarray], bounds: Bounds | None = None) -> Ends:
    """The secondary interval of the mean over tasks; bounds: the smallest and the largest a value can be."""
    return over_rules(dict(zip(strata, means_of(strata).tolist(), strict=True)), bounds)


def stratified_mean(strata: dict[str, np.ndarray], tails: Bounds = TAILS) -> tuple[float, float | None, float | None]:
    """(mean over tasks, low, high): the primary interval of a measure that is no share.

    No interval where there is one point only, or where no value differs from another: nothing bounds the unseen ones.
    """
    middle, known = float(means_of(strata).mean()), mean_error(strata)
    if known is None:
        return middle, None, None
    error, free = known
    half = float(scipy.stats.t.ppf(tails[1], free)) * error
    return middle, middle - half, middle + half


def mean_error(strata: dict[str, np.ndarray]) -> tuple[float, float] | None:
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


def bounded_mean(
    strata: dict[str, np.ndarray], bounds: Bounds | None, tails: Bounds = TAILS
) -> tuple[float, float | None, float | None]:
    """`stratified_mean` of values within `bounds`. Where none varies within its task, some may lie at either bound: the
    exact bound of none in so many says how many."""
    mean, low, high = stratified_mean(strata, tails)
    if bounds is None:
        return mean, low, high
    least, most = bounds
    if low is None or high is None:
        if sum(map(len, strata.values())) < 2:
            return mean, None, None
        unseen = float(none_seen(effective_points(points_of(strata)), tails))
        return mean, mean - unseen * (mean - least), mean + unseen * (most - mean)
    return mean, max(low, least), min(high, most)


def mean_over_tasks(values: Iterable[tuple[str, float]]) -> tuple[float, float | None, float | None]:
    """(task, value) pairs -> the mean of the tasks' means with its primary interval."""
    return stratified_mean(by_task(values))


def accuracy_interval(group: Sequence[Record]) -> tuple[float, float, float]:
    """Accuracy, mean over tasks, with its primary interval (low, high); "correct" may be a share."""
    accuracy, low, high = _share_of(as_group(group).by_task("correct"))
    return float(accuracy), float(low), float(high)


def _share_of(strata: dict[str, np.ndarray]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return share_interval(means_of(strata), points_of(strata), variances_of(strata))


ENDS = ("", "_low", "_high")  # of the names of an estimate in JSON


class Estimate(Typed, frozen=True, kw_only=True):
    """A number with its 95 % interval."""

    value: float | None
    low: float | None
    high: float | None

    @classmethod
    def of(cls, found: Iterable[Any] = (None, None, None)) -> "Estimate":
        """From (value, low, high), as the functions above give them."""
        value, low, high = (None if one is None else float(one) for one in found)
        return cls(value=value, low=low, high=high)

    def named(self, name: str) -> dict[str, float | None]:
        return {name + end: value for end, value in zip(ENDS, (self.value, self.low, self.high), strict=True)}


def stratified_share(strata: dict[str, np.ndarray]) -> Estimate:
    """The share of points that are 1, mean over tasks, with its primary interval."""
    return Estimate.of(_share_of(strata))


def paired_share(strata: dict[str, np.ndarray], within: np.ndarray | None = None, tails: Bounds = TAILS) -> Estimate:
    """The mean over tasks of changes of right answers, -1 to 1 each, with the interval of a paired difference."""
    gained, lost = (np.array([(sign * change).clip(0).mean() for change in strata.values()]) for sign in (1, -1))
    return Estimate.of(difference_interval(gained, lost, points_of(strata), within, tails))


def correlation(x: Sequence[float], y: Sequence[float]) -> Estimate:
    """Pearson's r with Fisher's interval; null with fewer than four pairs or where one side does not vary."""
    if len(x) < 4 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return Estimate.of()
    found = scipy.stats.pearsonr(x, y)
    return Estimate.of((found.statistic, *found.confidence_interval(CONFIDENCE)))
