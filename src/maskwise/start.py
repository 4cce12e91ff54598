"""What the command `maskwise` runs: it imports the rest itself, so that Ctrl-C during the imports is one line too."""

import sys
import warnings
from contextlib import suppress
from typing import TextIO

from maskwise.support.errors import UserNotice
from maskwise.support.imports import Process
from maskwise.support.interrupts import note_interrupts, was_interrupted


def main() -> None:
    try:
        note_interrupts()
        Process.runs_a_command = True
        show_notices_as_lines()
        from maskwise.cli import app

        app()
    except BaseException as problem:
        if not was_interrupted(problem):
            raise
        sys.stderr.write("maskwise: interrupted\n")
        sys.exit(2)


def show_notices_as_lines() -> None:
    """Our own warnings as the command's other lines on standard error; those of other packages stay as they are."""
    as_python_does = warnings.showwarning

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if not issubclass(category, UserNotice):
            return as_python_does(message, category, filename, lineno, file, line)
        from maskwise.support.terminal import one_line

        if (out := file or sys.stderr) is not None:  # it may be closed
            with suppress(OSError):
                out.write(f"maskwise: {one_line(message)}\n")

    warnings.showwarning = show
