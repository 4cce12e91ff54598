"""The progress bar of every command that takes long."""

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from maskwise.support.terminal import open_console


def progress_bar(silent: bool = False, terminal_only: bool = False) -> Progress:
    """A bar on standard error with the time elapsed and the time left.

    silent: draw nothing. terminal_only: draw nothing where standard error is not a terminal, and remove the bar when it
    is done; for commands whose output is text to be read or piped.
    """
    console = open_console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        transient=terminal_only,
        disable=silent or (terminal_only and not console.is_terminal),
    )
