"""Live table of the progress of all jobs."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Literal

from rich.live import Live
from rich.table import Table
from rich.text import Text

from maskwise.experiments.sweep.sweep_file import DiagnoseJob
from maskwise.experiments.sweep.workload import Workload
from maskwise.records.folder import record_files
from maskwise.support.terminal import one_line, open_console

JobState = Literal["planned", "running", "finished", "skipped", "failed"]


@dataclass
class JobProgress:
    """A job and how far it is. workload: None where it was finished before."""

    job: DiagnoseJob
    workload: Workload | None = None
    state: JobState = "planned"
    problem: str | None = None
    started: float | None = None
    ended: float | None = None
    answered: int = 0
    read: dict[str, int] = field(default_factory=dict)  # bytes of each file of records

    def count_answers(self) -> None:
        """Counts the lines that were added to the records; a rewritten file is counted from its start."""
        files = record_files(self.job.folder) if self.job.folder.is_dir() else []
        if any(file.stat().st_size < self.read.get(file.name, 0) for file in files) or len(files) < len(self.read):
            self.answered, self.read = 0, {}
        for file in files:
            with file.open("rb") as opened:
                opened.seek(self.read.get(file.name, 0))
                content = opened.read()
            self.answered += content.count(b"\n")
            self.read[file.name] = self.read.get(file.name, 0) + len(content)

    def begin(self) -> None:
        self.state, self.started = "running", perf_counter()

    def end(self, state: JobState, problem: str | None = None) -> None:
        self.state, self.problem, self.ended = state, problem, perf_counter()


class JobBoard:
    """The live table on a terminal; elsewhere a line for each job that ends."""

    def __init__(self, rows: Sequence[JobProgress]) -> None:
        self.rows, self.console = rows, open_console(stderr=True)
        self.live = Live(self.table(), console=self.console, auto_refresh=False)

    def __enter__(self) -> "JobBoard":
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *problem: object) -> None:
        if self.console.is_terminal:
            self.refresh()
            self.live.stop()

    def refresh(self) -> None:
        for row in self.rows:
            if row.state == "running":
                row.count_answers()
        if self.console.is_terminal:
            self.live.update(self.table(), refresh=True)

    def say_ended(self, row: JobProgress) -> None:
        if not self.console.is_terminal:
            sys.stderr.write(f"maskwise: {one_line(row.job.name)}: {row.state}{_reason(row)}\n")

    def table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for title in ("Job", "State", "Answers", "Minutes"):
            table.add_column(title, justify="right" if title in ("Answers", "Minutes") else "left", overflow="fold")
        for row in self.rows:
            answers = "" if row.workload is None else f"{row.answered:,} of {row.workload.answers:,}"
            end = perf_counter() if row.ended is None else row.ended
            minutes = "" if row.started is None else f"{(end - row.started) / 60:.1f}"
            table.add_row(Text(one_line(row.job.name)), Text(f"{row.state}{_reason(row)}"), answers, minutes)
        return table


def _reason(row: JobProgress) -> str:
    return f": {one_line(row.problem)}" if row.problem else ""
