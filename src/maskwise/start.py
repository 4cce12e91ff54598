"""What the command `maskwise` runs. It imports the rest itself, so that Ctrl-C during the imports is one line too."""

import sys


def main() -> None:
    try:
        from maskwise.support.interrupts import note_interrupts

        note_interrupts()
        _run()
    except KeyboardInterrupt:
        _exit_with("interrupted")
    except SystemExit as stop:
        if stop.code != 130:  # typer's, without a word, for an interrupt outside the command itself
            raise
        _exit_with("interrupted")
    except Exception as problem:
        from maskwise.support.interrupts import was_interrupted

        if not was_interrupted(problem):
            raise
        _exit_with("interrupted")


def _run() -> None:
    from maskwise.support.notices import show_notices_as_lines

    show_notices_as_lines()
    from maskwise.cli import app

    try:
        try:
            app()
        finally:  # a full disk or a closed pipe may show only when the last output is written
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as problem:
        if problem.filename is not None:
            raise
        import os

        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is left is written at exit: it must not fail again
        _exit_with(f"cannot write the output: {(problem.strerror or str(problem)).lower()}")


def _exit_with(problem: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(f"maskwise: {problem}\n")
    sys.exit(2)
