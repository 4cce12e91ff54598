"""Many runs in one table: a row each, with its scores and their intervals, its settings and its versions.

The page sorts without a script: every row carries its rank
under every column, and a radio button chooses which rank orders the rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import relpath
from pathlib import Path
from textwrap import wrap
from typing import Any
from urllib.parse import quote

from rich.table import Table
from rich.text import Text

from maskwise.probes.probe import ScoreRule
from maskwise.records.folder import MANIFEST, no_run
from maskwise.report.pages.jinja_environment import render
from maskwise.report.readings import Reading, differing_settings, rules_by_title
from maskwise.report.words.task_skill import TOO_EASY, in_short, limit_of_run, limit_of_score
from maskwise.scoring.numbers import NBSP, score_interval, score_value
from maskwise.scoring.scores import NO_SKILL, NOT_MEASURED
from maskwise.support.errors import UserError
from maskwise.support.files import OTHER_FOLDER, replace_file, writing
from maskwise.support.grouping import grouped
from maskwise.support.nearest import did_you_mean
from maskwise.support.terminal import counted, one_line, open_console

PAGE, REPORT = "runs.html", "report.html"
NAME_WIDTH, VALUE_WIDTH = 19, 11  # characters of a column on the terminal


@dataclass(frozen=True)
class TableCell:
    """A cell: its text, the text below it, and its sort key; None is sorted last. page: the page it links to."""

    text: str
    below: str = ""
    order: float | str | None = None
    page: Path | None = None

    def link(self, out: Path) -> str:
        """The page as a page in the folder `out` links to it; empty where it was not drawn."""
        if self.page is None or not self.page.exists():
            return ""
        return quote(Path(relpath(self.page.resolve(), out.resolve())).as_posix())


@dataclass(frozen=True)
class TableColumn:
    """`key` is the name that --sort takes."""

    key: str
    title: str
    meaning: str = ""
    is_shared: bool = False  # most runs have the same


VERSION = TableColumn("version", "Version", "of maskwise and torch", True)


@dataclass(frozen=True)
class RunTable:
    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    notes: tuple[str, ...] = ()

    def sorted_by(self, key: str, reverse: bool) -> "RunTable":
        """Unchanged where it has no such column. Rows without a value come last in either direction."""
        keys = [column.key for column in self.columns]
        if key not in keys:
            return self
        return replace(self, rows=tuple(self.rows[place] for place in _order(self, keys.index(key), reverse)))


def runs_in(folders: Sequence[Path]) -> list[Path]:
    """The run folders among these and directly in them, each once."""
    found: list[Path] = []
    for folder in folders:
        if (folder / MANIFEST).exists():
            found.append(folder)
            continue
        inner = sorted(one for one in folder.iterdir() if (one / MANIFEST).exists()) if folder.is_dir() else []
        if not inner:
            raise UserError(f"{folder} is not a run folder, nor does it hold any: {no_run(folder)}")
        found += inner
    return list({folder.resolve(): folder for folder in found}.values())


def run_table(readings: Sequence[Reading]) -> RunTable:
    """A row per run of diagnose; a column per score that any of them has."""
    measured = [
        rules
        for rules in rules_by_title(readings).values()
        if any(rule and one.score(rule.name).value is not None for rule, one in zip(rules, readings, strict=True))
    ]
    named = [next(rule for rule in rules if rule is not None) for rules in measured]
    asked = "preset, points per task, relevant examples and distractors, seed, type"
    columns = (
        TableColumn("model", "Model"),
        *(TableColumn(rule.name, rule.title, rule.meaning) for rule in named),
        TableColumn("settings", "Settings", asked, True),
        VERSION,
    )
    rows = []
    for place, one in enumerate(readings):
        scores = (_score_cell(one, rules[place], readings) for rules in measured)
        rows.append((_model(one), *scores, _settings(one), _versions(one.manifest.versions)))
    differing = ", ".join(name.replace("_", " ") for name in differing_settings(readings))
    notes = (f"These runs differ in {differing}: compare their scores with that in mind.",) if differing else ()
    return RunTable("Scores", columns, tuple(rows), notes)


def _text_cell(text: object, below: str = "") -> TableCell:
    return TableCell(str(text), below, str(text))


def _model(reading: Reading) -> TableCell:
    limit = limit_of_run(reading)
    below = ["" if reading.manifest.complete else "unfinished", in_short(limit) if limit else ""]
    return TableCell(reading.label, "; ".join(filter(None, below)), reading.label, reading.folder / REPORT)


def _score_cell(reading: Reading, rule: ScoreRule | None, readings: Sequence[Reading]) -> TableCell:
    if rule is None:
        return TableCell("–", NOT_MEASURED)
    score = reading.score(rule.name)
    if score.value is None:
        return TableCell("–", score.why or "")
    limit = limit_of_score(rule, reading, readings)
    if limit is not None:
        return TableCell("–", TOO_EASY if limit.shown else NO_SKILL)
    interval = score_interval(score, rule.unit).removesuffix(f"{NBSP}nats")
    return TableCell(score_value(score, rule.unit), interval, score.value)


def _settings(reading: Reading) -> TableCell:
    settings = reading.manifest.settings
    asked = settings.relevant or []  # one number in runs of version 0.1
    relevant = "/".join(map(str, asked if isinstance(asked, list) else [asked])) or None
    parts = [
        settings.preset,
        counted(settings.points, "point"),
        f"{relevant} of {settings.distractors}" if relevant and settings.distractors is not None else "",
        f"seed {settings.seed}",
        "chat" if settings.chat else "",
        str(reading.manifest.model.dtype),
        reading.manifest.model.weights or "",
    ]
    return _text_cell(", ".join(filter(None, parts)))


def _versions(versions: Mapping[str, str]) -> TableCell:
    named = f"maskwise {versions.get('maskwise', 'not known')}"
    return TableCell(named, f"torch {versions['torch']}" if "torch" in versions else "", named)


def sort_tables(tables: Sequence[RunTable], key: str | None, reverse: bool) -> list[RunTable]:
    """Each table that has the column, sorted by it; the others as they are."""
    known = list(dict.fromkeys(column.key for table in tables for column in table.columns))
    if key is None:
        return list(tables)
    if key not in known:
        raise UserError(f"no column {key!r} to sort by{did_you_mean(key, known)}")
    return [table.sorted_by(key, reverse) for table in tables]


def _order(table: RunTable, column: int, reverse: bool) -> list[int]:
    """The places of the rows in their new order; equal ones keep theirs."""
    kept: list[Any] = [row[column].order for row in table.rows]
    known = [place for place, order in enumerate(kept) if order is not None]
    missing = [place for place, order in enumerate(kept) if order is None]
    return sorted(known, key=kept.__getitem__, reverse=reverse) + missing


def print_tables(tables: Sequence[RunTable]) -> None:
    """On standard output, an interval below its value; as many columns side by side as the terminal holds."""
    console = open_console()
    for table in tables:
        numbers = [place for place, column in enumerate(table.columns) if place and not column.is_shared]
        each = max(1, (console.width - NAME_WIDTH) // (VALUE_WIDTH + 2))
        console.print(Text(table.title, "bold"))
        for first in range(0, len(numbers), each):
            console.print(_printed(table, [0, *numbers[first : first + each]]))
        for line in (*_shared_lines(table), *table.notes):
            console.print(Text(one_line(line)))


def _printed(table: RunTable, columns: Sequence[int]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="dim")
    for place in columns:
        shown.add_column(
            table.columns[place].title, overflow="fold", width=None if place else NAME_WIDTH, min_width=VALUE_WIDTH
        )
    for row in table.rows:
        name = "\n".join(wrap(one_line(row[0].text), NAME_WIDTH))  # rich would cut it where the column ends
        texts = [one_line(row[place].text) if place else name for place in columns]
        below = [f"\n{one_line(row[place].below)}" if row[place].below else "" for place in columns]
        shown.add_row(*(Text.assemble((text, "bold"), (more, "dim")) for text, more in zip(texts, below, strict=True)))
    return shown


def _shared_lines(table: RunTable) -> list[str]:
    """Columns that most runs share, settings and versions: one line for all runs with the same."""
    shared = [place for place, column in enumerate(table.columns) if column.is_shared]
    lines = ["; ".join(f"{row[place].text} {row[place].below}".strip() for place in shared) for row in table.rows]
    labels = grouped((line, row[0].text) for line, row in zip(lines, table.rows, strict=True))
    return [f"{'all' if len(labels) == 1 else ', '.join(names)}: {line}" for line, names in labels.items()]


def write_tables(tables: Sequence[RunTable], out: Path) -> Path:
    page = render("registry.html.jinja", tables=[_view(table, out) for table in tables])
    with writing(f"{PAGE} into {out}", OTHER_FOLDER):
        out.mkdir(parents=True, exist_ok=True)
        replace_file(out / PAGE, [page])
    return out / PAGE


def _view(table: RunTable, out: Path) -> dict[str, Any]:
    """With each row's rank by each column, upwards and downwards, as CSS variables."""
    ranks: list[list[str]] = [[] for _ in table.rows]
    for column in range(len(table.columns)):
        for letter, reverse in (("u", False), ("d", True)):
            for rank, place in enumerate(_order(table, column, reverse)):
                ranks[place].append(f"--{letter}{column}:{rank}")
    return {
        "title": table.title,
        "columns": table.columns,
        "rows": [
            {"cells": row, "link": row[0].link(out), "ranks": ";".join(own)}
            for row, own in zip(table.rows, ranks, strict=True)
        ],
        "notes": table.notes,
    }
