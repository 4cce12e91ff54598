"""Simulated runs whose truth is known: how often their 95 % intervals contain it, and how wide these are.

1. A cell is a pair of true accuracies (near and far, or few and many masks), the share of questions whose luck is the
   same under both conditions, and the spread of the tasks in logits. Its accuracies go from .03 to .99.
2. Of each cell, runs are drawn: tasks around the true accuracies, then the answers to each task's questions. A contrast
   question has three answers, which share the question's own difficulty.
3. The interval of each run is that of `maskwise.scoring`. Covered: it contains the truth of these tasks over all
   their questions.
4. Scores draw less often from the posterior than a run's 2000 times. A quantile of few draws lies too far in on
   average, by about 1 / draws of the probability in each tail, so the quantiles taken are those that leave as much
   outside on average as a run's own do (`as_of_a_run`). The posteriors of many runs are drawn at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from maskwise.scoring import scores
from maskwise.scoring.intervals import TAILS, difference_interval, share_interval
from maskwise.scoring.scores import (
    PRIOR_PATTERNS,
    PRIOR_POINTS,
    PRIOR_SHARE,
    LowEnd,
    least_relative_loss,
    relative_loss,
    resampled_ends,
    share_of_skill,
)

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(15)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
OF_QUESTION = 1.0  # spread of the difficulty of a question with several answers, in logits
SHARED = (0.2, 0.8)  # of the luck of a question, by its conditions
SPREADS = (0.0, 1.0)  # of the tasks, in logits
ACCURACIES = (0.05, 0.2, 0.33, 0.5, 0.7, 0.85, 0.95, 0.99)
LOSSES = tuple((high, high - loss) for high in (0.4, 0.7, 0.9, 0.97, 0.99) for loss in (0.0, 0.05, 0.2, 0.37))
SKILL_LOST = (0.0, 0.15, 0.5, 1.0)
SKILLED = (0.5, 0.7, 0.9, 0.98)
FALLS = tuple(product((0.6, 0.9), (0.0, 0.05, 0.2, 0.4)))
RESAMPLES = 200
SMALL_RESAMPLES, LARGE = 1000, 150  # of fewer questions than LARGE: their posteriors are the less smooth
AT_ONCE = 20  # runs whose posteriors are drawn together

Formula = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Size:
    """What a preset asks of a probe."""

    preset: str
    tasks: int
    points: int  # per task
    answers: int = 1  # per point


@dataclass(frozen=True)
class Measured:
    """Coverage and median width of each cell."""

    coverage: np.ndarray
    width: np.ndarray

    @property
    def mean(self) -> float:
        return float(self.coverage.mean())


def drawn(
    draws: np.random.Generator, runs: int, size: Size, accuracies: np.ndarray, shared: float, spread: float
) -> tuple[np.ndarray, np.ndarray]:
    """Values [runs, tasks, points, C] under C conditions, and the true accuracies of each run's tasks [runs, C]."""
    conditions = len(accuracies)
    logits = np.log(accuracies / (1 - accuracies)) + spread * draws.standard_normal((runs, size.tasks, 1))
    own = OF_QUESTION if size.answers > 1 else 0.0
    truth = (1 / (1 + np.exp(-(logits[..., None] + own * NODES)))) @ WEIGHTS
    shape = (runs, size.tasks, size.points, size.answers)
    difficulty = own * draws.standard_normal((*shape[:3], 1, 1))
    chance = 1 / (1 + np.exp(-(logits[:, :, None, None, :] + difficulty)))
    alike = draws.random((*shape, 1)) < shared
    luck = np.where(alike, draws.random((*shape, 1)), draws.random((*shape, conditions)))
    right = (luck < chance).astype(float)
    return right.mean(3), truth.mean(1)


def as_of_a_run(quantile: float, draws: int = RESAMPLES) -> float:
    """The quantile of so few draws that has on average as much of the distribution below it as that of a run's draws.

    numpy takes the order statistic 1 + q (n - 1) of n, interpolated; on average k / (n + 1) lies below the k-th.
    """
    below = (1 + quantile * (scores.RESAMPLES - 1)) / (scores.RESAMPLES + 1)
    return (below * (draws + 1) - 1) / (draws - 1)


def least_loss_as_of_a_run(accuracy: np.ndarray, resampled: np.ndarray, _: float) -> float:
    return least_relative_loss(accuracy, resampled, (1 - as_of_a_run(1 - 2 * TAILS[0])) / 2)


def cells(size: Size) -> Iterator[tuple[float, float]]:
    return product(SHARED, SPREADS if size.tasks > 1 else (0.0,))


def accuracy_coverage(size: Size, runs: int, seed: int = 0) -> Measured:
    draws, found = np.random.default_rng(seed), []
    counts = np.full(size.tasks, float(size.points))
    for accuracy, spread in product(ACCURACIES, SPREADS if size.tasks > 1 else (0.0,)):
        values, truth = drawn(draws, runs, size, np.array([accuracy]), 0.0, spread)
        _, low, high = share_interval(values[..., 0].mean(2), counts, values[..., 0].var(2))
        found.append(_cell(low, truth[:, 0], high))
    return Measured(*np.array(found).T)


def difference_coverage(size: Size, runs: int, seed: int = 0) -> Measured:
    draws, found = np.random.default_rng(seed), []
    counts = np.full(size.tasks, float(size.points))
    for pair, (shared, spread) in product(LOSSES, cells(size)):
        values, truth = drawn(draws, runs, size, np.array(pair), shared, spread)
        change = values[..., 1] - values[..., 0]
        gained, lost = change.clip(0).mean(2), (-change).clip(0).mean(2)
        _, low, high = difference_interval(gained, lost, counts, change.var(2))
        found.append(_cell(low, truth[:, 1] - truth[:, 0], high))
    return Measured(*np.array(found).T)


def skill_coverage(size: Size, chance: float, many: int, runs: int, seed: int = 0) -> Measured:
    """Of (a_1 - mean of the others) / (a_1 - chance), with `many` other conditions: mask tax and localities."""

    def lost(near: np.ndarray, far: np.ndarray) -> np.ndarray:
        return share_of_skill(near - far, near - chance)

    draws, found = np.random.default_rng(seed), []
    for first, share, (shared, spread) in product(SKILLED, SKILL_LOST, cells(size)):
        others = first - share * (first - chance) * np.linspace(0, 1, many + 1)[1:]
        values, truth = drawn(draws, runs, size, np.array([first, *others]), shared, spread)
        found.append(_skill_cell(values, lost, truth, size, draws))
    return Measured(*np.array(found).T)


def degradation_coverage(size: Size, conditions: int, runs: int, seed: int = 0) -> Measured:
    draws, found = np.random.default_rng(seed), []
    for (high, fall), (shared, spread) in product(FALLS, cells(size)):
        values, truth = drawn(draws, runs, size, high - np.linspace(0, fall, conditions), shared, spread)
        found.append(_resampled(values, relative_loss, truth, least_loss_as_of_a_run))
    return Measured(*np.array(found).T)


def _skill_cell(
    values: np.ndarray,
    lost: Callable[[np.ndarray, np.ndarray], np.ndarray],
    truth: np.ndarray,
    size: Size,
    draws: np.random.Generator,
) -> tuple[float, float]:
    """As `_resampled`, of a score of the first condition and the mean of the others."""
    value, wanted = (lost(one[:, 0], one[:, 1:].mean(1)) for one in (values.mean((1, 2)), truth))
    defined = ~np.isnan(value) & ~np.isnan(wanted) & np.ptp(values, axis=-1).any((1, 2))
    values, value, wanted = values[defined], value[defined], wanted[defined]
    resamples = RESAMPLES if size.tasks * size.points >= LARGE else SMALL_RESAMPLES
    tails = [as_of_a_run(tail, resamples) for tail in TAILS]
    ends = [
        np.nanquantile(
            lost(*posterior_of_two(values[first : first + AT_ONCE], size.answers, resamples, draws)), tails, 1
        )
        for first in range(0, len(values), AT_ONCE)
    ]
    low, high = np.concatenate(ends, 1)
    return _cell(np.minimum(low, value), wanted, np.maximum(high, value))


def posterior_of_two(
    values: np.ndarray, answers: int, resamples: int, draws: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Of many runs, draws [runs, resamples] of the accuracy under the first condition and of the mean of the others.

    Their posterior is that of `maskwise.scoring`; points that are alike in both share one Dirichlet weight, since a sum
    of gamma variables is one.
    """
    runs, tasks, points, conditions = values.shape
    levels = answers * (conditions - 1) + 1
    kind = np.rint(answers * values[..., 0]) * levels + np.rint(answers * values[..., 1:].sum(-1))
    kinds = (answers + 1) * levels
    place = np.arange(runs * tasks).reshape(runs, tasks, 1) * kinds + kind.astype(int)
    counts = np.bincount(place.ravel(), minlength=runs * tasks * kinds).reshape(runs, 1, tasks, kinds)
    weight = 1 - (tasks - 1) / (tasks * points)
    prior = float(np.clip(PRIOR_SHARE * tasks * points, *PRIOR_POINTS)) / tasks / PRIOR_PATTERNS
    seen = draws.standard_gamma(weight * counts, (runs, resamples, tasks, kinds))
    unseen = draws.standard_gamma(prior, (runs, resamples, tasks, PRIOR_PATTERNS))
    patterns = draws.integers(0, 2, (*unseen.shape, conditions), dtype=np.int8)
    total = seen.sum(-1) + unseen.sum(-1)
    near = seen @ (np.arange(kinds) // levels / answers) + (unseen * patterns[..., 0]).sum(-1)
    far = seen @ (np.arange(kinds) % levels / (levels - 1)) + (unseen * patterns[..., 1:].mean(-1)).sum(-1)
    return (near / total).mean(-1), (far / total).mean(-1)


def _resampled(values: np.ndarray, formula: Formula, truth: np.ndarray, low_end: LowEnd) -> tuple[float, float]:
    """Of the runs in which the score and the truth are defined, and some answer differs (else the bound is exact)."""
    wanted = formula(truth)
    tails = as_of_a_run(TAILS[0]), as_of_a_run(TAILS[1])
    ends = []
    for run, tables in enumerate(values):
        value = formula(tables.mean((0, 1))[None])[0]
        if np.isnan(value) or np.isnan(wanted[run]) or not np.ptp(tables, axis=-1).any():
            continue
        by_task = {str(task): table for task, table in enumerate(tables)}
        low, high = resampled_ends(by_task, formula, RESAMPLES, low_end, tails)
        ends.append((min(low, value), wanted[run], max(high, value)))
    return _cell(*np.array(ends).T)


def _cell(low: np.ndarray, truth: np.ndarray, high: np.ndarray) -> tuple[float, float]:
    slack = 1e-9
    return float(np.mean((low <= truth + slack) & (truth <= high + slack))), float(np.median(high - low))


FEW_SHOT = (Size("quick", 5, 7), Size("cures", 16, 3), Size("default", 16, 100))
CONTRAST = (Size("quick", 4, 4, 3), Size("default, full", 8, 50, 3))
RECALL = (Size("quick", 1, 7), Size("default", 1, 200))
