"""Scores from tables of answers: a formula over accuracies, with a paired bootstrap interval.

A score is {"value", "low", "high", "why"}; `why` says in words why a value is null, else it is null itself.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from maskwise.randomness import numpy_generator
from maskwise.records.record import Condition, Record, condition_text
from maskwise.scoring.intervals import widened_tails
from maskwise.tasks.episodes import CHANCE

LEAST_SKILL = 0.05  # accuracy above chance below which a share of it means nothing
RESAMPLES = 2000
DIGITS = 12  # beyond them is rounding
NOT_MEASURED = "not measured"
NO_SKILL = "no skill above guessing to lose"

Score = dict[str, Any]
# For each task, whether each of its points was answered right under each of C conditions: [points, C].
Tables = list[np.ndarray]


def null_score(why: str = NOT_MEASURED) -> Score:
    return {"value": None, "low": None, "high": None, "why": why}


def score(value: float, low: float | None, high: float | None) -> Score:
    return {"value": value, "low": low, "high": high, "why": None}


def tables(records: Sequence[Record], conditions: Sequence[Condition]) -> Tables:
    """The points that were asked under all of these conditions, by task."""
    columns = {condition_text(condition): column for column, condition in enumerate(conditions)}
    rows: dict[tuple[str, int], list[float]] = defaultdict(lambda: [np.nan] * len(conditions))
    for record in records:
        column = columns.get(condition_text(record["condition"]))
        if column is not None:
            rows[record["task"], record["point"]][column] = record["correct"]
    by_task: dict[str, list[list[float]]] = defaultdict(list)
    for (task, _), row in sorted(rows.items()):
        if not np.isnan(row).any():
            by_task[task].append(row)
    return [np.array(rows) for rows in by_task.values()]


def bootstrapped(by_task: Tables, formula: Callable[[np.ndarray], np.ndarray], undefined: str = NO_SKILL) -> Score:
    """The score `formula` gives, with a 95 % bootstrap interval.

    formula maps accuracies [n, C] to scores [n], nan where undefined; `undefined` says why that is. Tasks are resampled
    first. Where no resample of tasks changes the score, points are resampled instead, all conditions of a point
    together. Resamples in which the score is undefined are left out.

    Where no answer differs the score is 0 from 0 to 0; another score that no resample changes has no interval.
    """
    if not by_task:
        return null_score()
    means = np.stack([table.mean(0) for table in by_task])
    value = float(formula(means.mean(0)[None])[0])
    if np.isnan(value):
        return null_score(undefined)
    for units in (means, np.concatenate(by_task)):
        weights = numpy_generator("bootstrap").multinomial(len(units), [1 / len(units)] * len(units), size=RESAMPLES)
        resampled = formula(weights @ units / len(units)).round(DIGITS)
        low, high = np.nanquantile(resampled, widened_tails(len(units)))
        if low < high:
            return score(value, float(low), float(high))
    if round(value, DIGITS) == 0:
        return score(0.0, 0.0, 0.0)
    return score(value, None, None)


def share_of_skill(part: np.ndarray, skill: np.ndarray) -> np.ndarray:
    """part / skill, nan where there is too little skill to divide by."""
    return np.where(skill >= LEAST_SKILL, part / np.maximum(skill, LEAST_SKILL), np.nan)


def relative_loss(accuracy: np.ndarray) -> np.ndarray:
    """(max - min) / max over C conditions, [n, C] -> [n]; nan where even the best has too little skill."""
    best = accuracy.max(1)
    return np.where(best - CHANCE >= LEAST_SKILL, (best - accuracy.min(1)) / np.maximum(best, LEAST_SKILL), np.nan)


def direction(found: Score) -> int:
    """+1 or -1 where the interval lies on one side of zero, 0 where it does not or is not known."""
    low, high = found["low"], found["high"]
    if low is None or high is None:
        return 0
    if low > 0:
        return 1
    return -1 if high < 0 else 0
