"""Summary entries from further measurements in the records ("evidence")."""

from collections.abc import Iterator, Sequence

from maskwise.probes.section import Entry
from maskwise.records.record import Condition, Record, condition_text
from maskwise.scoring.intervals import Estimate, mean_over_tasks

TIMES_INPUT = "_times_input"  # ends the names of gradient x input in the evidence of records
GRADIENT_INPUT = "gradient_input"  # its name in entries


def evidence_means(group: Sequence[Record]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(name for record in group for name in record.evidence):
        values = [(record.task, record.evidence[name]) for record in group if name in record.evidence]
        found |= Estimate.of(mean_over_tasks(values)).named(name)
    return found


def entry_per_target(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    """One entry for each thing looked at (an example, a kind of token, or a kind of token in a layer): "evidence" with
    its "_low" and "_high" over tasks, with the accuracy of the same prompts; likewise "gradient_input" where the
    records have it."""
    found: dict[str, Entry] = {}
    for target, measure, values in _targets(group):
        ends = Estimate.of(mean_over_tasks(values)).named(measure)
        condition = {**entry.condition, **target}
        name = condition_text(condition)
        found[name] = found.get(name, entry).changed(condition=condition, **ends)
    return list(found.values())


def _targets(group: Sequence[Record]) -> Iterator[tuple[Condition, str, list[tuple[str, float]]]]:
    """(what is looked at, the measure, its value in each record with the record's task)"""
    for name, first in group[0]["evidence"].items():
        values = [(record.task, record.evidence[name]) for record in group if name in record.evidence]
        of, measure = name.removesuffix(TIMES_INPUT), GRADIENT_INPUT if name.endswith(TIMES_INPUT) else "evidence"
        if not isinstance(first, list):
            yield {"tokens": of}, measure, values
            continue
        key = "example" if of == "examples" else "layer"
        for number in range(len(first)):
            target: Condition = {key: number} if key == "example" else {"tokens": of, key: number}
            yield target, measure, [(task, listed[number]) for task, listed in values]
