"""Questions asked several times, as consecutive points: the question is what is drawn, with all that was asked of it.

What was asked of a question under a condition becomes one record, whose numbers are means: "correct" is the share of
right answers. Intervals over these records speak for other questions.
"""

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from maskwise.records.record import Record, condition_text

AVERAGED = ("correct", "nll", "nll_allowed", "nll_choice")


def by_question(records: Sequence[Record], times: int) -> Sequence[Record]:
    """One record per question and condition, of whatever was asked of it so far."""
    if times == 1:
        return records
    asked: dict[tuple[str, int, str], list[Record]] = defaultdict(list)
    for record in records:
        asked[_question(record, times)].append(record)
    return [
        {"task": task, "point": question, "condition": same[0]["condition"]}
        | {name: float(np.mean([one[name] for one in same])) for name in AVERAGED if all(name in one for one in same)}
        for (task, question, _), same in asked.items()
    ]


def asked_in_full(records: Sequence[Record], times: int) -> list[Record]:
    """The records of questions that were asked every time under a condition: an unfinished run may hold others."""
    count: dict[tuple[str, int, str], int] = defaultdict(int)
    for record in records:
        count[_question(record, times)] += 1
    return [record for record in records if count[_question(record, times)] == times]


def _question(record: Record, times: int) -> tuple[str, int, str]:
    return record["task"], record["point"] // times, condition_text(record["condition"])
