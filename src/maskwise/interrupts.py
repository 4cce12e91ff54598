"""Ctrl-C, remembered: some imports turn it into an ImportError of their own."""

import signal
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
