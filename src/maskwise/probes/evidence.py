"""From what records measured besides right and wrong ("evidence") to the summary's entries."""

from collections.abc import Iterator, Sequence

from maskwise.probes.probe import with_nll
from maskwise.probes.section import Entry
from maskwise.records.record import Condition, Record
from maskwise.scoring.intervals import mean_over_tasks


def measured_besides(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    """NAME, NAME_low and NAME_high of everything the records of one condition measured, and the NLL."""
    return [one.changed(**evidence_means(group)) for one in with_nll(entry, group)]


def evidence_means(group: Sequence[Record]) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(name for record in group for name in record.evidence):
        values = [(record.task, record.evidence[name]) for record in group if name in record.evidence]
        found[name], found[f"{name}_low"], found[f"{name}_high"] = mean_over_tasks(values)
    return found


def entry_per_target(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    """One entry for each thing looked at (an example, a kind of token, or a kind of token in a layer): "evidence" with
    its "_low" and "_high" over tasks, beside the accuracy of the same prompts."""
    found = []
    for target, values in _targets(group):
        middle, low, high = mean_over_tasks(values)
        condition = {**entry.condition, **target}
        found.append(entry.changed(condition=condition, evidence=middle, evidence_low=low, evidence_high=high))
    return found


def _targets(group: Sequence[Record]) -> Iterator[tuple[Condition, list[tuple[str, float]]]]:
    """(what is looked at, its value in each record with the record's task)"""
    for name, first in group[0]["evidence"].items():
        values = [(record.task, record.evidence[name]) for record in group]
        if not isinstance(first, list):
            yield {"tokens": name}, values
            continue
        key = "example" if name == "examples" else "layer"
        for number in range(len(first)):
            target: Condition = {key: number} if key == "example" else {"tokens": name, key: number}
            yield target, [(task, listed[number]) for task, listed in values]
