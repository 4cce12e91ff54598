"""The tab Runs: a sortable list of run folders; a click on one opens its report."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradio as gr

from maskwise.studio.controls import CHEAP, DRAWING_JOB, NONE, html, lead, toast
from maskwise.studio.folders import found_runs, listed_runs, page_of, run_rows
from maskwise.studio.views import page_view
from maskwise.support.errors import UserError


def runs_tab(tab: gr.Tab, root: Path) -> None:
    lead("Click a run to open its report. The menu ⋮ of a column sorts the list.")
    table = gr.Dataframe(
        headers=["Run", "Model", "Date"],
        interactive=False,
        max_height=280,
        show_label=False,
        elem_id="runs",
        column_widths=[225, 200, 145, 125, 130, 130, 130, 130],
        wrap=True,
        buttons=[],
    )
    opened = gr.State(None)
    other = gr.Dropdown([NONE], value=NONE, label="Compare with", visible=False, elem_id="second-run")
    page = html("page")

    def open_run(event: gr.SelectData) -> tuple[Any, ...]:
        name = event.row_value[0]
        return name, gr.Dropdown([NONE, *(one for one in found_runs(root) if one != name)], value=NONE, visible=True)

    def draw(name: str | None, second: str) -> Any:
        try:
            return page_view(page_of(root, name, None if second == NONE else second))
        except UserError as problem:
            toast(problem)
            return gr.skip()

    def fill() -> Iterator[Any]:
        """Names, models and dates at once; the scores follow run by run."""
        for runs in listed_runs(root):
            headers, rows = run_rows(runs)
            yield gr.Dataframe(value=rows, headers=headers)

    tab.select(fill, None, table, show_progress="hidden", api_visibility="private", concurrency_id="listing")
    chosen = table.select(open_run, None, [opened, other], **CHEAP)
    chosen.then(draw, [opened, other], page, api_name="page", **DRAWING_JOB)
    other.input(draw, [opened, other], page, api_visibility="private", **DRAWING_JOB)
