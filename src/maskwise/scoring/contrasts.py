"""Weighted sums over conditions of the same test points, such as differences and interactions.

Points are paired over conditions: only those asked under all of them count.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from maskwise.records.groups import groups_of, paired
from maskwise.records.record import Condition, Record, condition_text

# What a record of a probe under a condition counts for: (probe, condition as text) -> weight.
ConditionWeights = Mapping[tuple[str, str], float]


class Answers:
    """Records by probe and condition."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.of = {(group.probe, condition_text(group.condition)): group for group in groups_of(records)}

    def sums(self, weights: ConditionWeights, field: str) -> dict[str, np.ndarray]:
        """The weighted sum of a field over conditions for each point that has it under all of them, by task."""
        if not all(key in self.of for key in weights):
            return {}
        tables = paired([self.of[key] for key in weights], field)
        return {task: table @ np.array(list(weights.values())) for task, table in sorted(tables.items())}


def weighted_sums(
    records: Sequence[Record], weights: ConditionWeights, field: str = "correct"
) -> dict[str, np.ndarray]:
    return Answers(records).sums(weights, field)


def weights_of(probe: str, weighted: Iterable[tuple[Condition, float]]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = defaultdict(float)
    for condition, weight in weighted:
        found[probe, condition_text(condition)] += weight
    return dict(found)
