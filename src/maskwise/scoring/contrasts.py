"""Weighted sums over conditions of the same test points, such as differences and interactions, with intervals.

The interval speaks for these tasks and other questions: points are paired over conditions and stratified by task
(Student's interval of the mean of the tasks' means, Welch's degrees of freedom).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np
from scipy import stats

from maskwise.records.record import Record, condition_text
from maskwise.scoring.intervals import TAILS, none_seen
from maskwise.scoring.scores import Score, null_score, score

Weights = Mapping[str, float]  # a condition as text (`condition_text`) -> its weight


class Answers:
    """The records of a probe by condition and point."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.by_condition: dict[str, dict[tuple[str, int], Record]] = defaultdict(dict)
        for record in records:
            self.by_condition[condition_text(record["condition"])][record["task"], record["point"]] = record

    def contrast(self, weights: Weights, field: str, most: float | None = None) -> Score:
        """The weighted sum of a field, its mean over tasks and interval, over the points that have all conditions.

        most: the largest absolute value the sum can have for a point. With it a sum that never varies within a task has
        an interval too: Wilson's upper bound of none in n is the share of points that may be otherwise.
        """
        sides = [self.by_condition.get(text, {}) for text in weights]
        by_task: dict[str, list[float]] = defaultdict(list)
        for task, point in sorted(set.intersection(*(set(side) for side in sides))):
            total = sum(w * side[task, point][field] for w, side in zip(weights.values(), sides, strict=True))
            by_task[task].append(total)
        return stratified([np.array(values) for values in by_task.values()], most)


def stratified(by_task: Sequence[np.ndarray], most: float | None = None) -> Score:
    """The mean of the tasks' means with its 95 % interval over points; no interval where a task has one point only."""
    if not by_task:
        return null_score()
    value = float(np.mean([values.mean() for values in by_task]))
    counts = np.array([len(values) for values in by_task])
    if counts.min() < 2:
        return score(value, None, None)
    variances = np.array([values.var(ddof=1) for values in by_task]) / counts / len(by_task) ** 2
    if not variances.any():
        if most is None:
            return score(value, None, None)
        share = none_seen(int(counts.sum()))
        return score(value, value - share * (value + most), value + share * (most - value))
    freedom = variances.sum() ** 2 / (variances**2 / (counts - 1)).sum()
    half = float(stats.t.ppf(TAILS[1], freedom) * np.sqrt(variances.sum()))
    if most is None:
        return score(value, value - half, value + half)
    return score(value, max(-most, value - half), min(most, value + half))
