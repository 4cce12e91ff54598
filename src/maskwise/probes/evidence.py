"""Summary entries from further measurements in the records ("evidence")."""

from collections.abc import Sequence

from maskwise.records.record import Record
from maskwise.scoring.intervals import Estimate, mean_over_tasks

TIMES_INPUT = "_times_input"  # ends the names of gradient x input in the evidence of records


def evidence_means(group: Sequence[Record]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(name for record in group for name in record.evidence):
        values = [(record.task, record.evidence[name]) for record in group if name in record.evidence]
        found |= Estimate.of(mean_over_tasks(values)).named(name)
    return found
