"""What was asked and answered: one record per test point and condition.

A record: {"model", "probe", "task", "point", "condition": {...}, "masks", "predicted", "answer", "correct",
"confidence", "entropy", "nll"}, "nll_allowed" and "nll_choice" where the question has a list of answers (nll is their
sum: -log P(an answer of the list) and -log P(the right one | one of the list); records of earlier versions lack them),
and "evidence" where a probe measures more. Each probe's file says what its condition holds.
"""

import functools
import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any

Condition = dict[str, int | float | str]
Record = dict[str, Any]
Key = tuple[str, str, int, str]


def still_to_ask(
    probe: str, task: str, points: Sequence[int], conditions: Sequence[Condition], done: Collection[Key]
) -> Iterator[tuple[Key, int, Condition]]:
    """Each point under each condition that no record holds yet, with its key."""
    for point in points:
        for condition in conditions:
            key = make_key(probe, task, point, condition)
            if key not in done:
                yield key, point, condition


def make_key(probe: str, task: str, point: int, condition: Condition) -> Key:
    """What makes a record the only one of its kind in a run."""
    return probe, task, point, condition_text(condition)


def condition_text(condition: Condition) -> str:
    """A condition as one string, the same for equal conditions."""
    return _sorted_json(tuple(condition.items()))


def condition_texts(records: Sequence[Record]) -> list[str]:
    """Of each record. Records that were read share their conditions, so each text is made once."""
    known: dict[int, str] = {}
    found = []
    for record in records:
        condition = record["condition"]
        text = known.get(id(condition))
        if text is None:
            text = known[id(condition)] = condition_text(condition)
        found.append(text)
    return found


@functools.cache  # a million records share a few dozen conditions
def _sorted_json(items: tuple[tuple[str, int | float | str], ...]) -> str:
    return json.dumps(dict(items), sort_keys=True)


def key_of(record: Record) -> Key:
    return make_key(record["probe"], record["task"], record["point"], record["condition"])


def condition_order(condition: Condition) -> tuple[Any, ...]:
    """A sort key that goes by the first entry, then the next, and puts 2 before 10 and numbers before words."""
    return tuple((name, isinstance(value, str), value) for name, value in condition.items())
