"""Pages drawn again from folders alone: runs of diagnose and searches of advise, one of them or many."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwise.report.pages import registry
from maskwise.report.pages.advice import Search, is_search, read_search, write_search
from maskwise.report.pages.page import shared_folder, write_page
from maskwise.report.pages.registry import RunTable, runs_in
from maskwise.report.readings import Reading, read_all
from maskwise.report.words.advice_text import advice_text
from maskwise.report.words.finding import finding, with_finding
from maskwise.report.words.printed_summary import print_summary
from maskwise.support.errors import UserError
from maskwise.support.terminal import one_line, safe_text


@dataclass(frozen=True)
class Redrawn:
    """The folders read and the pages written. table: that of several runs; left_out: unfinished searches."""

    page: Path
    readings: list[Reading]
    searches: list[Search]
    tables: list[RunTable]
    table: Path | None = None
    left_out: tuple[UserError, ...] = ()

    @property
    def summary(self) -> dict[str, Any]:
        table = {} if self.table is None else {"table": str(self.table)}
        alone = self.table is None and not self.searches
        searches = {} if alone else {"searches": [search.found for search in self.searches]}
        return {"report": str(self.page), **table, "runs": [with_finding(one) for one in self.readings], **searches}


def redraw(folders: Sequence[Path], out: Path | None = None, sort: str | None = None, reverse: bool = False) -> Redrawn:
    """The page of one folder, or of several a table and the runs side by side.

    sort, reverse: the column that sorts the table, and its order.
    """
    if twice := [folder for folder in folders if list(folders).count(folder) > 1]:
        raise UserError(f"{twice[0]} is named twice: name each folder once")
    found = runs_in(folders)
    runs = [folder for folder in found if not is_search(folder)]
    searches, left_out = [], []
    for folder in found:
        if folder not in runs:
            try:
                searches.append(read_search(folder))
            except UserError as problem:
                if len(found) == 1:
                    raise
                left_out.append(problem)
    if len(found) == 1 and (sort is not None or reverse):
        raise UserError("--sort and --reverse are for several runs: name more folders")
    readings = read_all(runs) if runs else []
    if len(found) == 1:
        home = out or found[0]
        page = write_page(readings, home) if readings else write_search(searches[0], home)
        return Redrawn(page, readings, searches, [])
    tables = [registry.run_table(readings)] if readings else []
    tables += [registry.search_table(searches)] if searches else []
    tables = registry.sort_tables(tables, sort, reverse)
    home = out or shared_folder([*runs, *(search.folder for search in searches)])
    table = registry.write_tables(tables, home)
    page = write_page(readings, home) if readings else table
    return Redrawn(page, readings, searches, tables, table, tuple(left_out))


def print_redrawn(drawn: Redrawn) -> None:
    """The table, the advice or the summary, and where the pages are."""
    if drawn.table is not None:
        registry.print_tables(drawn.tables)
        for path in dict.fromkeys([drawn.table, drawn.page]):
            print(one_line(path))
    elif drawn.searches:
        print(safe_text(advice_text(drawn.searches[0], drawn.page)))
    else:
        print_summary(drawn.readings[0])
        print(safe_text(f"\n{finding(drawn.readings).sentence}\n{one_line(drawn.page)}"))
