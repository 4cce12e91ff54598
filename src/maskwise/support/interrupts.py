"""Recording of Ctrl-C, which some imports turn into an ImportError, and time limits."""

import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Any

_pressed: list[int] = []


def note_interrupts() -> None:
    """Starts recording Ctrl-C, unless the shell ignores it, as for background jobs."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _note)


def _note(number: int, frame: FrameType | None) -> None:
    _pressed.append(number)
    raise KeyboardInterrupt


def was_interrupted(problem: BaseException) -> bool:
    """True if an exception was caused by Ctrl-C."""
    return isinstance(problem, KeyboardInterrupt) or (bool(_pressed) and isinstance(problem, Exception))


def time_limit(seconds: float, problem: Exception) -> AbstractContextManager[None]:
    """Raises `problem` if the block takes more than this processor time.

    In the main thread by a signal, which Python code and regular expressions check regularly. Other threads get no
    signals, and Windows has no such timer: there the clock is checked before each line of Python, so that a single
    operation is not interrupted.
    """
    if threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer"):
        return _alarm(seconds, problem)
    return _Clock(seconds, problem)


@contextmanager
def _alarm(seconds: float, problem: Exception) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise problem

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before or signal.SIG_DFL)


class _Clock:
    """A trace function of this thread: called before each line of the frames that begin under it."""

    def __init__(self, seconds: float, problem: Exception) -> None:
        self.end, self.problem = time.thread_time() + seconds, problem

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        sys.settrace(self._look)

    def __exit__(self, *problem: object) -> None:
        sys.settrace(self.before)

    def _look(self, frame: FrameType, event: str, argument: Any) -> Any:
        leaving = frame.f_code is _Clock.__exit__.__code__
        if not leaving and time.thread_time() > self.end:
            raise self.problem
        return self._look
