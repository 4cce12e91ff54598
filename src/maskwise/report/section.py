"""What page, terminal and JSON show of one probe: its docstring, its estimates, its figures and their tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import cleandoc
from typing import Any

import numpy as np

from maskwise.probes.probe import FIRST, Figure, Probe, estimates
from maskwise.records.table import Table, Tables
from maskwise.report import chart
from maskwise.report.chart import text_of
from maskwise.scoring.estimates import POINTS, SHARE, Estimate, in_unit, of_relevant, relevant_numbers

KNOWN = {"model", "measure", "unit", "value", "low", "high", "n", "p", "tasks_low", "tasks_high"}
KNOWN |= {"change", "change_low", "change_high"}


@dataclass(frozen=True)
class Section:
    """A probe in one run or several. tables: of each run, by its label; a run that lacks the probe is left out."""

    probe: Probe
    runs: Mapping[str, Tables]

    @cached_property
    def asked(self) -> dict[str, Tables]:
        return {label: tables for label, tables in self.runs.items() if len(tables.get(self.probe.name, ()))}

    @cached_property
    def estimates(self) -> dict[str, list[Estimate]]:
        """Of each model; the first model's tables are among the others' (FIRST)."""
        first = next(iter(self.asked.values()), None)
        return {
            label: estimates(self.probe, tables, None if tables is first else first)
            for label, tables in self.asked.items()
        }

    @cached_property
    def figures(self) -> list[tuple[Figure, str, Table]]:
        """(figure, title, table), once for each number of relevant examples; figures without rows are left out."""
        numbers = list(dict.fromkeys(n for t in self.asked.values() for n in relevant_numbers(t[self.probe.name])))
        found = []
        for number in numbers:
            for figure in self.probe.figures:
                table = self._table(figure, number, number == numbers[0])
                title = figure.title if len(numbers) == 1 else f"{figure.title} ({number} relevant)".strip()
                if len(table):
                    found.append((figure, title, table))
        return found

    def _table(self, figure: Figure, number: int | None, is_main: bool) -> Table:
        import pandas as pd

        parts, first = [], next(iter(self.asked.values()))
        for label, tables in self.asked.items():
            same = {name: of_relevant(table, number, is_main) for name, table in tables.items()}
            if tables is not first:
                same[FIRST] = of_relevant(first[self.probe.name], number, is_main)
            own = same[self.probe.name]
            data = figure.data(own, same) if len(own) else pd.DataFrame()
            if len(data):
                parts.append(data.assign(model=label) if len(self.runs) > 1 else data)
        return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()

    @cached_property
    def drawn(self) -> list[dict[str, bytes]]:
        """The files of each figure."""
        return [chart.files(chart.draw(figure, table)) for figure, _, table in self.figures]

    @property
    def advice(self) -> dict[str, str]:
        given = self.probe.advice
        said = {} if given is None else {label: given(found) for label, found in self.estimates.items() if found}
        return {label: line for label, line in said.items() if line}

    @property
    def finding(self) -> str:
        """The first estimate, of each model."""
        firsts = {label: found[0] for label, found in self.estimates.items() if found}
        if len(firsts) < 2:
            return "".join(map(str, firsts.values()))
        name = next(iter(firsts.values())).name
        return f"{name}: " + "; ".join(f"{label} {one.short}" for label, one in firsts.items())

    def view(self, prefix: str, stated: Mapping[str, Mapping[tuple[str, str], Any]]) -> dict[str, Any]:
        """What section.html.jinja shows. prefix: of the ids in its drawings. stated: of each model (screen.py)."""
        heading, *text = self.probe.paragraphs
        name, _, question = heading.partition(": ")
        figures = []
        for number, ((figure, title, table), own) in enumerate(zip(self.figures, self.drawn, strict=True)):
            both = own["svg"].decode(), chart.svg(chart.draw(figure, table, narrow=True))
            wide, narrow = (
                chart.inline(drawn, f"{prefix}{number}{size}", title or question)
                for drawn, size in zip(both, "wn", strict=True)
            )
            figures.append({"title": title, "wide": wide, "narrow": narrow, "table": rows_of(figure, table)})
        return {
            "name": self.probe.name,
            "title": name,
            "question": question[:1].upper() + question[1:] or name,
            "finding": self.finding,
            "text": [(part.startswith(" "), cleandoc(part)) for part in text],
            "estimates": {
                label: [(one, stated.get(label, {}).get((self.probe.name, one.name), "")) for one in found]
                for label, found in self.estimates.items()
            },
            "figures": figures,
            "advice": self.advice,
        }


def rows_of(figure: Figure, table: Table) -> tuple[list[str], list[list[str]]]:
    """A figure's table in words: (heads, rows). Page and terminal show the same."""
    keys = [c for c in dict.fromkeys(("model", figure.panel, figure.series, figure.x)) if c is not None and c in table]
    heads = {figure.x: figure.label or figure.x}
    columns = {heads.get(c, c): [text_of(one, c) for one in table[c]] for c in keys}
    measures = list(table["measure"]) if "measure" in table and "measure" not in keys else []
    if len(set(measures)) > 1:
        columns["measure"] = [text_of(one, "measure") for one in measures]
    units = table["unit"] if "unit" in table else [figure.unit] * len(table)
    columns[figure.y or "value"] = [
        _interval(*one) for one in zip(*_ends(table, "value", "low", "high"), units, strict=True)
    ]
    if "tasks_low" in table:
        ends = zip(*_ends(table, "tasks_low", "tasks_high"), units, strict=True)
        columns["over tasks"] = [_between(*one) for one in ends]
    if "change" in table:
        changes = zip(*_ends(table, "change", "change_low", "change_high"), units, strict=True)
        columns["change"] = [_interval(a, b, c, POINTS if unit == SHARE else unit, True) for a, b, c, unit in changes]
    for extra in (c for c in table if c not in KNOWN and c not in keys and not str(c).startswith("_")):
        columns[extra] = ["" if _none(one) else text_of(one) for one in table[extra]]
    if "n" in table:
        columns["n"] = ["" if _none(one) else f"{int(one):,}" for one in table["n"]]
    shown = {head: cells for head, cells in columns.items() if any(cells)}
    return [*shown], [list(row) for row in zip(*shown.values(), strict=True)]


def _ends(table: Table, *names: str) -> list[list[Any]]:
    return [list(table[name]) if name in table else [None] * len(table) for name in names]


def _none(value: Any) -> bool:
    return value is None or bool(isinstance(value, float) and np.isnan(value))


def _between(low: Any, high: Any, unit: str, signed: bool = False) -> str:
    return "" if _none(low) or _none(high) else f"{in_unit(low, unit, signed)} to {in_unit(high, unit, signed)}"


def _interval(value: Any, low: Any, high: Any, unit: str, signed: bool = False) -> str:
    """`84.4 % (79.9 to 88.1)`"""
    if _none(value):
        return ""
    between = _between(low, high, unit, signed)
    return f"{in_unit(value, unit, signed)} {unit}".rstrip() + (f" ({between})" if between else "")


def sections(probes: Sequence[Any], runs: Mapping[str, Tables]) -> list[Section]:
    """Of the probes that one of the runs asked, in the order given."""
    found = [Section(probe, runs) for probe in probes]
    return [one for one in found if one.asked]
