"""Ctrl-C, remembered: some imports turn it into an ImportError of their own. And a limit for what may never end."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_pressed: list[int] = []


def note_interrupts() -> None:
    """From here on; not where a shell has Ctrl-C ignored, as for a script's jobs in the background."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _note)


def _note(number: int, frame: FrameType | None) -> None:
    _pressed.append(number)
    raise KeyboardInterrupt


def was_interrupted(problem: BaseException) -> bool:
    """Whether Ctrl-C is behind an exception."""
    return isinstance(problem, KeyboardInterrupt) or (bool(_pressed) and isinstance(problem, Exception))


@contextmanager
def time_limit(seconds: float, problem: Exception) -> Iterator[None]:
    """Raises `problem` once what is inside has taken so much processor time.

    It interrupts what asks for signals now and then: Python code and regular expressions. Only the main thread of a
    process gets signals, and Windows has no such timer: elsewhere nothing is limited.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise problem

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)
