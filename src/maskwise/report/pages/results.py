"""Results that are not runs (toy): JSON, a figure, and a page of one file, in a folder."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table
from rich.text import Text

from maskwise.report.figures.bars import Chart
from maskwise.report.pages.jinja_environment import render
from maskwise.support.files import OTHER_FOLDER, refuse_checkpoint_folder, replace_file, to_json, writing
from maskwise.support.terminal import one_line, open_console, safe_text
from maskwise.support.typed import Typed


@dataclass(frozen=True)
class Result:
    """What a person sees of it. `name` is that of the command and of the files; `rows` are the table's lines."""

    name: str
    title: str
    facts: str
    sentences: Sequence[str]
    chart: Chart
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    notes: Sequence[str]

    def table(self) -> Table:
        return _table(self.head, self.rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for place, name in enumerate(head):
        table.add_column(name, justify="right" if place else "left", no_wrap=place > 0, overflow="fold")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    return table


def make_folder(folder: Path) -> Path:
    """Made before the work begins, so that a bad name costs nothing."""
    refuse_checkpoint_folder(folder)
    with writing(f"into {folder}", OTHER_FOLDER):
        folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_result(folder: Path, found: Typed, result: Result) -> Path:
    """NAME.json, NAME.svg, NAME.png and NAME.html; returns the page's path."""
    svg, png = result.chart.files()
    drawn = result.chart.for_page(f"{result.title}. {' '.join(result.sentences)}")
    page = page_of_result(folder, result)
    with writing(f"into {folder}", OTHER_FOLDER):
        replace_file(folder / f"{result.name}.json", [to_json(found, indent=2), "\n"])
        replace_file(folder / f"{result.name}.svg", [svg])
        replace_file(folder / f"{result.name}.png", png)
        replace_file(page, [render("result.html.jinja", result=result, **drawn)])
    return page


def page_of_result(folder: Path, result: Result) -> Path:
    return folder / f"{result.name}.html"


def print_result(result: Result, folder: Path) -> None:
    """The tables on the terminal, what they show, and where the page is."""
    page = page_of_result(folder, result)
    print(safe_text(f"{result.title}\n{result.facts}\n"))
    open_console().print(result.table())
    for sentence in result.sentences:
        print(safe_text(f"\n{sentence}"))
    print(f"\nfigure: {one_line(page.with_suffix('.svg'))}\npage:   {one_line(page)}")
