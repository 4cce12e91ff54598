"""Ctrl-C, remembered: some imports turn it into an ImportError of their own."""

import signal
from types import FrameType

_pressed: list[int] = []


def note_interrupts() -> None:
    signal.signal(signal.SIGINT, _note)


def _note(number: int, frame: FrameType | None) -> None:
    _pressed.append(number)
    raise KeyboardInterrupt


def was_interrupted(problem: BaseException) -> bool:
    """Whether Ctrl-C is behind an exception."""
    return isinstance(problem, KeyboardInterrupt) or (bool(_pressed) and isinstance(problem, Exception))
