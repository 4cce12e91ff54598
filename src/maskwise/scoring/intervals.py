"""Means and accuracies with 95 % intervals."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from maskwise.records.record import Record

CONFIDENCE = 0.95
TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)


def reach(values: Sequence[float]) -> float:
    """Half the width of Student's interval of a mean."""
    return float(stats.t.ppf(TAILS[1], len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values)))


def widened_tails(units: int) -> tuple[float, float]:
    """Where to cut a bootstrap of so many units for a 95 % interval (Hesterberg's expanded percentile interval).

    Its spread is that of a sample divided by n instead of n - 1, and its tails are normal instead of Student's.
    """
    if units < 2:
        return TAILS
    tail = float(stats.norm.sf(stats.t.ppf(TAILS[1], units - 1) * np.sqrt(units / (units - 1))))
    return tail, 1 - tail


def mean_over_tasks(values: Iterable[tuple[str, float]]) -> tuple[float, float | None, float | None]:
    """(task, value) pairs -> the mean of the tasks' means, Student's interval over tasks (of one task: over points)."""
    by_task: dict[str, list[float]] = defaultdict(list)
    for task, value in values:
        by_task[task].append(value)
    means = [float(np.mean(found)) for found in by_task.values()]
    sample = means if len(means) > 1 else next(iter(by_task.values()))
    middle = float(np.mean(means))
    if len(sample) < 2:
        return middle, None, None
    return middle, middle - reach(sample), middle + reach(sample)


def accuracy_interval(group: Sequence[Record]) -> tuple[float, float, float]:
    """(mean over tasks, low, high): Student's 95 % interval over tasks.

    Where the tasks do not differ, or there is one task only, Wilson's interval over the points.
    """
    by_task: dict[str, list[bool]] = defaultdict(list)
    for record in group:
        by_task[record["task"]].append(record["correct"])
    means = [float(np.mean(right)) for right in by_task.values()]
    accuracy = float(np.mean(means))
    if len(set(means)) > 1:
        half = reach(means)
        return accuracy, max(0.0, accuracy - half), min(1.0, accuracy + half)
    right = sum(record["correct"] for record in group)
    interval = stats.binomtest(right, len(group)).proportion_ci(CONFIDENCE, method="wilson")
    return accuracy, float(interval.low), float(interval.high)


def none_seen(points: int) -> float:
    """What share may be otherwise when not one of so many points is: Wilson's upper bound of 0 in n."""
    return float(stats.binomtest(0, points).proportion_ci(CONFIDENCE, method="wilson").high)


def correlation(x: Sequence[float], y: Sequence[float]) -> dict[str, float | None]:
    """Pearson's r with Fisher's interval; null with fewer than four pairs or where one side does not vary."""
    if len(x) < 4 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return {"value": None, "low": None, "high": None}
    found = stats.pearsonr(x, y)
    interval = found.confidence_interval(CONFIDENCE)
    return {"value": float(found.statistic), "low": float(interval.low), "high": float(interval.high)}
