"""Measures of the recall probe: the kinds of its errors, and its two scores.

With a_near and a_far the accuracies at the nearest and the farthest distance, with the question last, the fewest masks
and no fillers, NLL_near and NLL_far likewise, and n pairs, the scores are

    recall locality  (a_near - a_far) / (a_near - 1/n)
    recall nats      NLL_far - NLL_near, the negative log-likelihood of the right value
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from msgspec import structs

from maskwise.probes.section import Entry
from maskwise.records.record import Condition, Record
from maskwise.scoring.intervals import Estimate, accuracy_interval
from maskwise.scoring.scores import Score, nats_score, null_score, skill_lost, tables
from maskwise.tasks.recall_pairs import DISTANCES, NEAR

LAST, FIRST = "right", "left"
# Which wrong answers there are, by the distance from the asked pair to the one whose value was answered.
ERRORS: Mapping[str, Callable[[int], bool]] = {
    "the pair before": lambda offset: offset == -1,
    "the pair after": lambda offset: offset == 1,
    "2 to 5 pairs away": lambda offset: 2 <= abs(offset) <= 5,
    "more than 5 pairs away": lambda offset: abs(offset) > 5,
}
NO_VALUE = "no pair's value"


def near_pair(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    """The baseline: a near pair, everything else alike."""
    return next((c for c in conditions if c == {**condition, "distance": NEAR}), None)


def measures(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    """Besides accuracy and likelihood: guessing, the mean number of pairs between, the share of each kind of error."""
    more = {
        "chance": chance_of(group),
        "between": float(np.mean([record.evidence["between"] for record in group])),
        "errors": {kind: _share(group, kind) for kind in (*ERRORS, NO_VALUE)},
    }
    return [entry.changed(**more)]


def chance_of(group: Sequence[Record]) -> float:
    return 1 / group[0]["evidence"]["pairs"]


def error_of(record: Record) -> str | None:
    """The kind of error, None of a right answer."""
    offset = record.evidence["offset"]
    if record.correct:
        return None
    return NO_VALUE if offset is None else next((kind for kind, holds in ERRORS.items() if holds(offset)), NO_VALUE)


def _share(group: Sequence[Record], kind: str) -> dict[str, float | None]:
    found = accuracy_interval([structs.replace(record, correct=error_of(record) == kind) for record in group])
    return Estimate.of(found).named("share")


def recall_locality(records: Sequence[Record]) -> Score:
    ends = near_and_far([record.condition for record in records])
    return skill_lost(tables(records, ends), chance_of(records)) if ends else null_score()


def recall_nats(records: Sequence[Record]) -> Score:
    ends = near_and_far([record.condition for record in records])
    return nats_score(records, ends, [-1.0, 1.0]) if ends else null_score()


def near_and_far(conditions: Sequence[Condition]) -> list[Condition]:
    """The nearest and the farthest distance with the question last and the fewest masks, as locality is defined for
    every probe; empty where one of them was not asked."""
    side = by_distance(conditions, LAST)
    return [side[0], side[-1]] if len(side) > 1 and side[0]["distance"] == NEAR else []


def by_distance(conditions: Sequence[Condition], question: str) -> list[Condition]:
    """The conditions of one side with the fewest masks and no fillers, nearest first."""
    side = [c for c in conditions if c["question"] == question and c["fillers"] == 0]
    fewest = min((c["masks"] for c in side), default=0)
    found = {c["distance"]: c for c in side if c["masks"] == fewest}
    return [found[distance] for distance in DISTANCES if distance in found]
