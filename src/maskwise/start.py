"""What the command `maskwise` runs: it imports the rest itself, so that Ctrl-C during the imports is one line too."""

import sys

from maskwise.imports import Process
from maskwise.interrupts import note_interrupts, was_interrupted


def main() -> None:
    try:
        note_interrupts()
        Process.runs_a_command = True
        from maskwise.cli import app

        app()
    except BaseException as problem:
        if not was_interrupted(problem):
            raise
        sys.stderr.write("maskwise: interrupted\n")
        sys.exit(2)
