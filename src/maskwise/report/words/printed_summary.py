"""A run's summary on the terminal: the scores, then each probe's curve with its mask counts."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from maskwise.probes.section import Entry, TextTable
from maskwise.report.readings import Reading, sections_of
from maskwise.report.section import rows_of
from maskwise.report.words.comparison import Row
from maskwise.report.words.published_values import PUBLISHED_HEAD, PUBLISHED_TITLE, published_rows
from maskwise.report.words.sentences import (
    nothing_differed,
    scores_run,
    selected_tasks,
    verdict_number,
    with_conditions,
)
from maskwise.report.words.task_skill import conclusion, in_short, limit_of_run, limit_of_score
from maskwise.scoring.claims import Claim
from maskwise.scoring.numbers import between, number, parts_in_words, percent, score_interval, score_value
from maskwise.support.terminal import counted, one_line, open_console

BAR = 20
FEW = 10  # answers under a condition, below which most measures have no estimate
MOST_ROWS = 8  # scores on the terminal where the tables are left out
INTERVAL = "95 % interval"
SECONDARY = (("in format", "in content"), ("NLL",), (INTERVAL,))  # what a narrow terminal leaves out, the first first
WIDEST = 10_000  # columns, in which a table is as wide as it likes
WIDE = 110  # columns of a terminal that hold a score and its meaning
NATS = {"nll": "NLL", "nll_allowed": "in format", "nll_choice": "in content"}  # the last two add up to the first


@dataclass(frozen=True)
class Fitting:
    """A table of conditions and what was measured under them, fitted to the terminal's width.

    The columns of the conditions tell the rows apart and are never cut. Where there is no room the bars are shortened,
    then heads take two lines, then measures are left out, group by group (`leave_out`), and named below the table.
    """

    title: str
    conditions: Mapping[str, Sequence[str]]
    measures: Mapping[str, Sequence[str]]
    leave_out: Sequence[Sequence[str]]
    bars: Sequence[float] = ()  # shares

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        widest = options.update_width(WIDEST)
        for table in self._layouts():
            if console.measure(table, options=widest).maximum <= options.max_width:
                break
        yield table

    def _layouts(self) -> Iterator[Table]:
        """From the whole table to the narrowest; the last may fold its conditions."""
        for bar in (BAR, BAR // 2) if self.bars else ():
            yield self._table(bar)
        yield self._table()
        yield self._table(two_lines=True)
        gone: list[str] = []
        for names in self.leave_out:
            gone += names
            yield self._table(two_lines=True, gone=gone)

    def _table(self, bar: int = 0, two_lines: bool = False, gone: Sequence[str] = ()) -> Table:
        table = _table(self.title)
        if gone:
            table.caption, table.caption_justify = Text(f"no room for: {', '.join(gone)}", style="dim"), "left"
        measures = {name: cells for name, cells in self.measures.items() if name not in gone}
        for name in self.conditions:
            right = name == "masks"
            table.add_column(Text(one_line(name)), justify="right" if right else "left", overflow="fold")
        for name in measures:
            head = name.replace(" ", "\n", 1) if two_lines and name != INTERVAL else name
            table.add_column(Text(head), justify="right", no_wrap=True)
        if bar:
            table.add_column("", no_wrap=True)
        drawn = [[Text("━" * round(bar * share), style="blue") for share in self.bars]] if bar else []
        for row in zip(*self.conditions.values(), *measures.values(), *drawn, strict=True):
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        return table


def print_summary(reading: Reading, tables: bool = True, others: Sequence[Reading] = ()) -> None:
    """The scores and, with `tables`, all that was measured, on standard output. others: models of the same call.

    Names come from data: they are never read as markup, nor obeyed by the terminal.
    """
    console, summary = open_console(), reading.summary
    planted = reading.manifest.model.planted
    name = one_line(summary.model) + (f" (planted: {one_line(planted)})" if planted else "")
    console.print(Text(f"\n{name}", style="bold"))
    limit = limit_of_run(reading)
    if limit is not None:
        console.print(Text(conclusion(limit)))
    if scores_run(reading):
        console.print(_scores(reading, console.width, tables, others))
    else:
        console.print(Text(_without_scores(reading, tables)))
    for section in sections_of([reading]):
        for one in section.estimates[reading.label][: None if tables else 1]:
            console.print(Text(one_line(f"{section.probe.name}: {one}")))
    if lines := selected_tasks(summary):
        console.print(Text(lines))
    if tables:
        _print_tables(reading, console)
    for note in reading.manifest.notes:
        console.print(Text(one_line(note), style="dim"))


def _print_tables(reading: Reading, console: Console) -> None:
    """A table for each probe, the values that the paper states, and the verdicts on its claims."""
    summary = reading.summary
    for section in sections_of([reading]):
        for figure, title, data in section.figures:
            name = f"{section.probe.name}: {title}" if title else section.probe.name
            console.print(_text_table(TextTable(name, *rows_of(figure, data))))
    for name, entries in summary.probes.items():
        if reading.probe(name).measured is not None:
            continue
        columns = reading.probe(name).columns
        short = [entry for entry in entries if not {"example", "layer"} & entry.condition.keys()]
        if columns is not None:
            if columns:
                console.print(_measures(name, columns, entries))
        elif short:
            console.print(_curve(name, short))
        elif entries:
            console.print(Text(f"{one_line(name)}: {len(entries)} values, drawn in the report", style="dim"))
    for probe in reading.probes:
        for table in probe.tables(summary) if probe.tables is not None else []:
            console.print(_text_table(table))
    if summary.published:
        console.print(_text_table(TextTable(PUBLISHED_TITLE, PUBLISHED_HEAD, published_rows(summary))))
    if summary.other_format:
        console.print(Text(f"{summary.other_format}.", style="bold"))
    if summary.claims:
        console.print(_claims(summary.claims))


def _without_scores(reading: Reading, tables: bool) -> str:
    """Where the results of probes without a score are, and whether there are enough answers for them."""
    asked = [(name, entry.n) for name, entries in reading.summary.probes.items() for entry in entries]
    names = ", ".join(dict.fromkeys(one_line(name) for name, _ in asked)) or "this run"
    where = "the report and the tables below" if tables else "the report (--verbose prints them here)"
    most = max((n for _, n in asked), default=0)
    few = f"; at most {counted(most, 'answer')} per condition: too few, ask more questions" if most < FEW else ""
    return f"{names}: no score; the measures are in {where}{few}"


def _scores(reading: Reading, width: int, tables: bool, others: Sequence[Reading]) -> Table:
    """The table of scores, with their definitions if there is room on the line."""
    table = Table("score", "value", "95 % interval", box=None, pad_edge=False, header_style="dim")
    explained = width >= WIDE
    if explained:
        table.add_column("what it is")
    for rule in scores_run(reading)[: None if tables else MOST_ROWS]:
        score = reading.summary.scores[rule.name]
        notes = [score_interval(score, rule.unit), nothing_differed(score)] if score.value is not None else []
        limit = limit_of_score(rule, reading, others)
        if limit is not None:
            notes = [in_short(limit)]
        meaning = "; ".join(filter(None, [with_conditions(rule.meaning, score.over), parts_in_words(score)]))
        table.add_row(
            rule.title,
            Text("–" if limit is not None else score_value(score, rule.unit), style="bold"),
            "; ".join(filter(None, notes)) or score.why,
            *([Text(meaning, style="dim")] if explained else []),
        )
    return table


def _measures(probe: str, columns: Mapping[str, str], entries: list[Entry]) -> Fitting:
    """A row per condition with what the probe measures; the accuracy of the first token would say little."""
    keys = list(entries[0].condition)
    measures = {"n": [str(entry.n) for entry in entries]} | {
        name: ["" if (value := entry.get(key)) is None else f"{value:.3f}" for entry in entries]
        for key, name in columns.items()
    }
    return Fitting(probe, _conditions(keys, entries), measures, leave_out=tuple([name] for name in [*measures][:1:-1]))


def _conditions(keys: Sequence[str], entries: list[Entry]) -> dict[str, list[str]]:
    return {key: [one_line(entry.condition.get(key, "")) for entry in entries] for key in keys}


def _claims(claims: list[Claim]) -> Table:
    table = _table("the papers' claims: 95 % intervals, verdicts by Holm's procedure over this table")
    for name in ("claim", "measured", "verdict"):
        table.add_column(name)
    for claim in claims:
        table.add_row(claim.claim, f"{claim.measure}: {verdict_number(claim)}", Text(claim.verdict, "bold"))
    return table


def _text_table(found: TextTable) -> Table:
    """The first column is text, the others are numbers."""
    table = _table(found.title)
    for place, name in enumerate(found.head):
        table.add_column(Text(one_line(name)), justify="right" if place else "left", overflow="fold")
    for row in found.rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    return table


def _table(title: str) -> Table:
    shown = Text(one_line(title), style="bold")
    return Table(title=shown, title_justify="left", box=None, pad_edge=False, header_style="dim")


def _curve(probe: str, entries: list[Entry]) -> Fitting:
    """A row per condition. The columns are what the probe varied; what it held fixed is in the title."""
    keys = list(dict.fromkeys(key for entry in entries for key in entry.condition if key != "masks"))
    fixed = [key for key in keys if len({entry.condition.get(key) for entry in entries}) == 1 and len(entries) > 1]
    nats = [key for key in NATS if any(key in entry for entry in entries)]
    with_evidence = any("evidence" in entry.measures for entry in entries)
    measures = {
        "n": [str(entry.n) for entry in entries],
        "accuracy": [percent(entry.accuracy, 1) for entry in entries],
        INTERVAL: [between(entry.low, entry.high, 1) for entry in entries],
        **{NATS[key]: [number(entry.get(key)) for entry in entries] for key in nats},
        **({"measured": [number(entry.measures.get("evidence")) for entry in entries]} if with_evidence else {}),
    }
    return Fitting(
        ", ".join([probe, *(f"{key} {entries[0].condition[key]}" for key in fixed)]),
        _conditions([key for key in keys if key not in fixed], entries) | {"masks": list(map(_masks, entries))},
        measures,
        leave_out=tuple(found for names in SECONDARY if (found := [name for name in names if name in measures])),
        bars=[] if len(nats) > 1 else [entry.accuracy or 0.0 for entry in entries],  # with three of nats: no room
    )


def _masks(entry: Entry) -> str:
    """Their number; of a block diffusion model also how many of them the answer sees, where those are fewer."""
    seen, all_of_them = entry.masks if entry.visible is UNSET else entry.visible, str(entry.masks)
    return all_of_them if seen == entry.masks else f"{seen} of {all_of_them} visible"


def print_changes(labels: Sequence[str], rows: Sequence[Row]) -> None:
    """A comparison on standard output: each measure of each model, and the change from the first.

    Where there is no room for it on one line, an interval stands below the change: an end of it alone on a line would
    be read as another number. So does the number of masks that a value is of.
    """
    console = open_console()

    def fitted(cell: str) -> str:
        return cell if console.width >= WIDE else cell.replace(" (", "\n(", 1)

    table = Table(box=None, pad_edge=False, header_style="dim")
    changed = ["change"] if len(labels) == 2 else [f"change: {label}" for label in labels[1:]]
    for name in ("", *labels, *changed):
        table.add_column(Text(one_line(name)), overflow="fold")  # cut short, two names may look the same
    for row in rows:
        values = (Text(fitted(value), style="bold") for value in row.values)
        table.add_row(row.name, *values, *(Text(fitted(change)) for change in row.changes))
    console.print(table)
