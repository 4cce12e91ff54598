"""Scores from tables of answers, each with its two 95 % intervals (described in intervals.py)."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from typing import Annotated

import numpy as np
import scipy  # scipy.stats, which takes a second to import, is imported when it is first used
from msgspec import UNSET, Meta, UnsetType, structs

from maskwise.records.groups import Group, GroupedRecords, as_group, groups_of, paired
from maskwise.records.record import Condition, Record, condition_text
from maskwise.scoring import intervals
from maskwise.scoring.intervals import SAME, TAILS, Bounds, Ends, bounded_mean, rules_ends, word_rule
from maskwise.support.randomness import numpy_generator
from maskwise.support.typed import Typed
from maskwise.tasks.episodes import CHANCE

LEAST_SKILL = 0.05  # accuracy above chance below which a share of it means nothing
RESAMPLES = 2000
PRIOR_SHARE, PRIOR_POINTS = 1 / 16, (1.0, 2.0)  # the prior's weight: a share of the points, within these bounds
PRIOR_PATTERNS = 4  # over which it is spread in each draw
MOST_CONDITIONS = 10  # up to which all patterns of right and wrong are tried for an exact bound
NOT_MEASURED = "not measured"
NO_SKILL = "no skill above guessing to lose"
LIKELIHOODS = ("nll", "nll_allowed", "nll_choice")

# For each task, what each of its points gave under each of C conditions: [points, C]. Right or not, the share of right
# answers of a question asked several times, or nats.
Tables = dict[str, np.ndarray]
Formula = Callable[[np.ndarray], np.ndarray]
# The low end of an interval from accuracies [C], resampled ones [m, C] and the share of them below it.
LowEnd = Callable[[np.ndarray, np.ndarray, float], float]


class Score(Typed, frozen=True, kw_only=True):
    """A number that sums up a probe, with its two intervals; `why` says why there is none."""

    value: Annotated[float | None, Meta(description="null where it is inconclusive")]
    low: Annotated[float | None, Meta(description="lower end of the 95 % interval: these tasks, new points")]
    high: Annotated[float | None, Meta(description="upper end")]
    why: Annotated[str | None, Meta(description="why the value is null: no skill, not measured, no masks")] = None
    rules_low: Annotated[float | None, Meta(description="lower end of the interval over new word rules")] = None
    rules_high: Annotated[float | None, Meta(description="upper end")] = None
    n: Annotated[int | None, Meta(description="test points")] = None
    differed: Annotated[int | None, Meta(description="of these, answers that differ between conditions")] = None
    over: Annotated[str | UnsetType, Meta(description="the conditions it goes over, where it says so")] = UNSET
    ends: Annotated[
        dict[str, list[float]] | UnsetType,
        Meta(description="of a loss recovered: accuracies with 2 and with the most masks, before and after"),
    ] = UNSET
    tasks: Annotated[
        list[str] | UnsetType, Meta(description="where tasks were selected by their room for a loss: those it rests on")
    ] = UNSET
    left_out: Annotated[
        dict[str, str] | UnsetType, Meta(description="the others: too hard or too easy to show a loss")
    ] = UNSET
    allowed: Annotated["Score | UnsetType", Meta(description="of nats: the part of the format")] = UNSET
    choice: Annotated["Score | UnsetType", Meta(description="of nats: the part of the content")] = UNSET


def null_score(why: str = NOT_MEASURED) -> Score:
    return Score(value=None, low=None, high=None, why=why)


def score(
    value: float | None,
    low: float | None,
    high: float | None,
    rules: Ends = (None, None),
    n: int | None = None,
    differed: int | None = None,
) -> Score:
    return Score(value=value, low=low, high=high, rules_low=rules[0], rules_high=rules[1], n=n, differed=differed)


def tables(records: Sequence[Record], conditions: Sequence[Condition], field: str = "correct") -> Tables:
    """The points that were asked under all of these conditions, by task."""
    groups: dict[str, list[Group]] = defaultdict(list)
    for group in groups_of(records):
        groups[condition_text(group.condition)].append(group)
    sides = [as_group(GroupedRecords(groups[condition_text(condition)])) for condition in conditions]
    return dict(sorted(paired(sides, field).items()))


# Scores that are formulas over accuracies


def bootstrapped(by_task: Tables, formula: Formula, undefined: str = NO_SKILL, low_end: LowEnd | None = None) -> Score:
    """The score `formula` gives with its two intervals.

    formula maps accuracies [m, C] to scores [m], nan where undefined; `undefined` says why that is.

    Primary interval: quantiles of the posterior of the accuracies (a stratified Bayesian bootstrap, Rubin 1981). The
    points of each task, all conditions of a point together, have Dirichlet weights; a prior worth one or two points
    is spread over patterns of answers drawn at random, because a pattern that was not seen may still occur. Draws in
    which the score is undefined are left out. Where no answer differs the exact bound is used instead. Secondary
    interval: Student's t over the word rules' jackknife values. All draws are accuracies between 0 and 1, so the
    primary interval is never outside the range of the score.

    low_end: for a score that is biased upwards under the null, whose draws all lie too high.
    """
    if not by_task:
        return null_score()
    means = np.stack([table.mean(0) for table in by_task.values()])
    value = float(formula(means.mean(0)[None])[0])
    if np.isnan(value):
        return null_score(undefined)
    points = np.concatenate(list(by_task.values()))
    differed = int((np.ptp(points, axis=1) > SAME).sum())
    low, high = resampled_ends(by_task, formula, low_end=low_end) if differed else exact_ends(by_task, formula)
    if low is not None and high is not None:
        low, high = min(low, value), max(high, value)
    return score(value + 0.0, low, high, jackknife_ends(by_task, formula), len(points), differed)


def resampled_ends(
    by_task: Tables, formula: Formula, resamples: int = RESAMPLES, low_end: LowEnd | None = None, tails: Bounds = TAILS
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


def exact_ends(by_task: Tables, formula: Formula) -> Ends:
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


def jackknife_ends(by_task: Tables, formula: Formula) -> Ends:
    """Student's t over the word rules' jackknife values; for a mean they are the rules' own means."""
    grouped: dict[str, list[np.ndarray]] = defaultdict(list)
    for task, table in by_task.items():
        grouped[word_rule(task)].append(table.mean(0))
    rules = np.array([np.mean(tasks, axis=0) for tasks in grouped.values()])
    count = len(rules)
    if count < 2:
        return None, None
    whole, without = formula(rules.mean(0)[None]), formula((rules.sum(0) - rules) / (count - 1))
    values = count * whole - (count - 1) * without
    if np.isnan(values).any() or np.ptp(values) < SAME:
        return None, None
    half = float(scipy.stats.t.ppf(TAILS[1], count - 1) * values.std(ddof=1) / np.sqrt(count))
    return float(whole[0]) - half, float(whole[0]) + half


def jackknife_over_tasks(by_task: Tables, formula: Formula) -> Ends:
    """Student's t over the tasks' jackknife values; for a mean they are the tasks' own means."""
    tasks = np.array([table.mean(0) for table in by_task.values()])
    count = len(tasks)
    if count < 2:
        return None, None
    whole, without = formula(tasks.mean(0)[None]), formula((tasks.sum(0) - tasks) / (count - 1))
    values = count * whole - (count - 1) * without
    if np.isnan(values).any() or np.ptp(values) < SAME:
        return None, None
    half = float(scipy.stats.t.ppf(TAILS[1], count - 1) * values.std(ddof=1) / np.sqrt(count))
    return float(whole[0]) - half, float(whole[0]) + half


# Scores in nats


def nats_score(records: Sequence[Record], conditions: Sequence[Condition], weights: Sequence[float]) -> Score:
    """The weighted sum, over conditions, of the negative log-likelihood of the right answer, mean over tasks.

    Points are paired: each gives one value. Where the records hold both parts of the likelihood the score has
    "allowed" and "choice", scores of their own that add up to it: what was lost to the format and to the content.
    """
    found = {
        field: mean_score({t: table @ np.array(weights) for t, table in tables(records, conditions, field).items()})
        for field in LIKELIHOODS
    }
    whole = found["nll"]
    if whole.value is None or any(part.n != whole.n for part in found.values()):
        return whole
    return structs.replace(whole, allowed=found["nll_allowed"], choice=found["nll_choice"])


def mean_score(strata: dict[str, np.ndarray], bounds: Bounds | None = None) -> Score:
    """The mean over tasks of one value per point, with both intervals; `bounds` are the values' own."""
    if not strata:
        return null_score()
    value, low, high = bounded_mean(strata, bounds)
    return score(value, low, high, rules_ends(strata, bounds), sum(map(len, strata.values())))


# What formulas are made of


def share_of_skill(part: np.ndarray, skill: np.ndarray) -> np.ndarray:
    """part / skill, nan where there is too little skill to divide by."""
    return np.where(skill >= LEAST_SKILL, part / np.maximum(skill, LEAST_SKILL), np.nan)


def skill_lost(by_task: Tables, chance: float = CHANCE) -> Score:
    """The share of the skill under the first of two conditions that is lost under the second, of tables [points, 2]."""
    return bootstrapped(by_task, lambda right: share_of_skill(right[:, 0] - right[:, 1], right[:, 0] - chance))


def relative_loss(accuracy: np.ndarray) -> np.ndarray:
    """(max - min) / max over C conditions, [n, C] -> [n]; nan where even the best has too little skill."""
    best = accuracy.max(1)
    return np.where(best - CHANCE >= LEAST_SKILL, (best - accuracy.min(1)) / np.maximum(best, LEAST_SKILL), np.nan)


def least_relative_loss(accuracy: np.ndarray, resampled: np.ndarray, tail: float) -> float:
    """The low end of `relative_loss`: the best and the worst of C accuracies differ where all are the same in truth.

    As in Tukey's studentised range: all C differ from their truths by less than the spread of the resampled errors
    between conditions, but for a share 2 x `tail` of the draws; so much of the range may be luck. Twice, because a
    range is an absolute value: with two conditions this is their difference beyond its own two-sided interval.
    """
    luck = np.quantile(np.ptp(resampled - resampled.mean(0), axis=1), 1 - 2 * tail)
    return float(max(0.0, np.ptp(accuracy) - luck) / accuracy.max())


def direction(found: Score) -> int:
    """+1 or -1 where the interval lies on one side of zero, 0 where it does not or is not known."""
    low, high = found.low, found.high
    if low is None or high is None:
        return 0
    if low > 0:
        return 1
    return -1 if high < 0 else 0
