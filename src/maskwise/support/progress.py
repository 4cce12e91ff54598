"""Progress bars, and estimates of the time that is left."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from maskwise.support.terminal import open_console


def progress_bar(silent: bool = False, terminal_only: bool = False) -> Progress:
    """A bar on standard error with the time elapsed and the time left.

    silent: draw nothing. terminal_only: draw nothing where standard error is not a terminal, and remove the bar when it
    is done; for commands whose output is text to be read or piped.
    """
    console = open_console(stderr=True)
    hidden = silent or (terminal_only and not console.is_terminal)
    done = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    time = TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn()
    return Progress(*done, *time, console=console, transient=terminal_only, disable=hidden)


WORTH_SAYING = 60.0  # seconds: shorter work is done before the line is read
LONG = 3600.0  # seconds: a person is asked first


@dataclass
class Forecast:
    """States the size of long work once: how much of what, and the time it will take at the speed of the second batch.
    The first batch warms up (compilation, memory), which on a GPU can take a hundred times as long.

    total: parts of the work. what: in words, with the number. say: of a line and the seconds in it.
    """

    total: float
    what: str
    say: Callable[[str, float], None]
    clock: Callable[[], float] = perf_counter
    batches: int = 0
    done: float = 0
    warm_since: float = 0.0

    def advance(self, count: float) -> None:
        self.batches, self.done = self.batches + 1, self.done + count
        if self.batches == 1:
            self.warm_since = self.clock()
        elif self.batches == 2 and count > 0 and self.done < self.total:
            seconds = (self.clock() - self.warm_since) * (self.total - self.done) / count
            if seconds >= WORTH_SAYING:
                self.say(f"{self.what}: about {in_minutes(seconds)} at the speed of the second batch", seconds)


def in_minutes(seconds: float) -> str:
    """ "3 minutes", "2.5 hours"; what is said of work to come has no more digits."""
    minutes = max(1, round(seconds / 60))
    if minutes < 90:
        return f"{minutes} minute{'s' if minutes > 1 else ''}"
    return f"{seconds / 3600:.2g} hours" if seconds < 360_000 else f"{seconds / 86_400:.2g} days"
