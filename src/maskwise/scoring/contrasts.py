"""Weighted sums over conditions of the same test points, such as differences and interactions.

Points are paired over conditions: only those asked under all of them count.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from maskwise.records.record import Condition, Record, condition_text, condition_texts

# What a record of a probe under a condition counts for: (probe, condition as text) -> weight.
Weights = Mapping[tuple[str, str], float]


class Answers:
    """Records by probe and condition, then by task and point."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.of: dict[tuple[str, str], dict[tuple[str, int], Record]] = defaultdict(dict)
        for record, text in zip(records, condition_texts(records), strict=True):
            self.of[record["probe"], text][record["task"], record["point"]] = record

    def sums(self, weights: Weights, field: str) -> dict[str, np.ndarray]:
        """Of each point that has this field under all of these conditions, the weighted sum of it, by task."""
        sides = [self.of.get(key, {}) for key in weights]
        found: dict[str, list[float]] = defaultdict(list)
        for task, point in sorted(set.intersection(*(set(side) for side in sides)) if sides else ()):
            records = [side[task, point] for side in sides]
            if all(field in record for record in records):
                total = sum(w * record[field] for w, record in zip(weights.values(), records, strict=True))
                found[task].append(total)
        return {task: np.array(values, dtype=float) for task, values in found.items()}


def weighted_sums(records: Sequence[Record], weights: Weights, field: str = "correct") -> dict[str, np.ndarray]:
    return Answers(records).sums(weights, field)


def weights_of(probe: str, weighted: Iterable[tuple[Condition, float]]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], float] = defaultdict(float)
    for condition, weight in weighted:
        found[probe, condition_text(condition)] += weight
    return dict(found)
