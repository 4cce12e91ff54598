"""The type of probes: what is asked, what is measured, how it is drawn. The docstring is its help, page and docs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import signature
from typing import Any, Literal

from maskwise.probes import select_tasks
from maskwise.probes.questions import Questions
from maskwise.probes.setup import Preset
from maskwise.records.record import FieldTypes, ProbeFields, RecordFields, struct_of
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import SCALE, SHARE, Estimate, of_relevant, relevant_numbers
from maskwise.tasks.datasets import Dataset

FIRST = "first model"  # among the other tables of a probe: its own of the first of several models

# What a model must have to be asked, and why others are not.
NEEDS = {
    "masks": "an autoregressive model has no mask token",
    "whole sequences": "a block diffusion model decodes block by block, which this probe does not measure",
    "blocks": "the model does not decode in blocks",
    "gradients": "",  # of the answer; every model has them, and a run then shows those of two prompts token by token
}


@dataclass(frozen=True)
class Figure:
    """Columns of the table that `data(table, others)` gives, which has value, low and high.

    kind: "line", "points" (named places on x), "diagonal" (both axes are shares) or "scatter". series: a line each;
    panel: a small drawing each. log: the small counts of x are widened. guessing: a dotted line.
    """

    data: Callable[[Table, Tables], Table]
    x: str
    label: str
    y: str = "Accuracy"
    title: str = ""
    series: str | None = None
    panel: str | None = None
    guessing: float | None = None
    unit: str = SHARE  # of a table without a column `unit`
    kind: Literal["line", "points", "diagonal", "scatter"] = "line"
    log: bool = False


@dataclass(frozen=True)
class Probe:
    """One question to a model. The name is that of the command line, of the records and of the file.

    doc: the file's docstring: a line for help and headings, then what is asked, how to read it, and in what it differs
    from the paper. ask: of (setup, **parameters); the defaults in its signature are the probe's parameters, `sizes`
    those that differ in a preset. metrics: (its table, tables of other probes) -> estimates, the first is the finding.
    condition, evidence: the fields of its records. needs: of NEEDS. takes: whether it asks about a data set given with
    --data. advice: of the estimates, a line or None.
    """

    name: str
    doc: str
    ask: Callable[..., Iterable[Questions]]
    metrics: Callable[[Table, Tables], list[Estimate]]
    figures: Sequence[Figure] = ()
    condition: FieldTypes | None = None
    evidence: FieldTypes | type[ProbeFields] | None = None
    needs: frozenset[str] = frozenset()
    presets: tuple[Preset, ...] = ("full",)
    sizes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    takes: Callable[[Dataset], bool] = lambda data: False
    advice: Callable[[Sequence[Estimate]], str | None] | None = None

    @property
    def parameters(self) -> dict[str, Any]:
        given = signature(self.ask).parameters.values()
        return {one.name: one.default for one in given if one.default is not one.empty}

    @cached_property
    def record_fields(self) -> RecordFields:
        """The structs that its records are checked by."""
        condition = None if self.condition is None else struct_of(self.condition, closed=True)
        return RecordFields(condition, struct_of(own) if isinstance(own := self.evidence, Mapping) else own)

    @property
    def about(self) -> str:
        """The heading's question, for help."""
        heading = self.paragraphs[0]
        return heading.partition(": ")[2] or heading

    @property
    def paragraphs(self) -> list[str]:
        """Of the docstring: the heading first; indented ones are schematics and formulas."""
        first, _, rest = self.doc.strip().partition("\n")
        return [first.rstrip("."), *(part.strip("\n").rstrip() for part in rest.split("\n\n") if part.strip())]


def estimates(probe: Probe, tables: Tables, first: Tables | None = None) -> list[Estimate]:
    """What a probe measures in a run's tables, for each number of relevant examples, the main one first.

    With --select-tasks shares and changes rest on the tasks that leave room for a loss."""
    others = {**tables, **({} if first is None or probe.name not in first else {FIRST: first[probe.name]})}
    numbers = relevant_numbers(tables[probe.name])
    found = []
    for number in numbers:
        is_main = number == numbers[0]
        same = {name: of_relevant(other, number, is_main) for name, other in others.items()}
        named = "" if is_main else f", {number} example{'s' if number != 1 else ''}"
        own = probe.metrics(same[probe.name], same)
        if select_tasks.NAME in same and "relevant" in same[probe.name]:
            own = resting_on(select_tasks.tasks_with_room(same[select_tasks.NAME]), probe, same, own)
        found += [replace(one, name=one.name + named) for one in own]
    return found


def resting_on(tasks: Sequence[str], probe: Probe, tables: Tables, found: Sequence[Estimate]) -> list[Estimate]:
    """The estimates with those in percent or points over these tasks alone."""
    kept = {name: table[table.task.isin(tasks)] for name, table in tables.items()}
    rested = {one.name: one for one in probe.metrics(kept[probe.name], kept)} if tasks else {}
    none = [Estimate(one.name, None, unit=one.unit, why="no task leaves room for a loss") for one in found]
    return [rested.get(one.name, no) if one.unit in SCALE else one for one, no in zip(found, none, strict=True)]


def measured(probes: Iterable[Probe], tables: Tables) -> dict[str, list[Estimate]]:
    """The estimates of each probe that was asked, the first of them its finding."""
    return {probe.name: estimates(probe, tables) for probe in probes if len(tables.get(probe.name, ()))}
