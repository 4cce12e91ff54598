"""Pages drawn again from the folders of runs alone, one or many."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwise.report.pages import registry
from maskwise.report.pages.page import shared_folder, write_page
from maskwise.report.pages.registry import RunTable, runs_in
from maskwise.report.readings import Reading, read_all
from maskwise.report.words.finding import finding, with_finding
from maskwise.report.words.printed_summary import print_summary
from maskwise.support.errors import UserError
from maskwise.support.terminal import one_line, safe_text


@dataclass(frozen=True)
class Redrawn:
    """The folders read and the pages written. table: that of several runs."""

    page: Path
    readings: list[Reading]
    tables: list[RunTable]
    table: Path | None = None

    @property
    def summary(self) -> dict[str, Any]:
        table = {} if self.table is None else {"table": str(self.table)}
        return {"report": str(self.page), **table, "runs": [with_finding(one) for one in self.readings]}


def redraw(folders: Sequence[Path], out: Path | None = None, sort: str | None = None, reverse: bool = False) -> Redrawn:
    """The page of one folder, or of several a table and the runs side by side.

    sort, reverse: the column that sorts the table, and its order.
    """
    if twice := [folder for folder in folders if list(folders).count(folder) > 1]:
        raise UserError(f"{twice[0]} is named twice: name each folder once")
    found = runs_in(folders)
    if len(found) == 1 and (sort is not None or reverse):
        raise UserError("--sort and --reverse are for several runs: name more folders")
    readings = read_all(found)
    if len(found) == 1:
        return Redrawn(write_page(readings, out or found[0]), readings, [])
    tables = registry.sort_tables([registry.run_table(readings)], sort, reverse)
    home = out or shared_folder(found)
    table = registry.write_tables(tables, home)
    return Redrawn(write_page(readings, home), readings, tables, table)


def print_redrawn(drawn: Redrawn) -> None:
    """The table or the summary, and where the pages are."""
    if drawn.table is not None:
        registry.print_tables(drawn.tables)
        for path in dict.fromkeys([drawn.table, drawn.page]):
            print(one_line(path))
    else:
        print_summary(drawn.readings[0])
        print(safe_text(f"\n{finding(drawn.readings).sentence}\n{one_line(drawn.page)}"))
