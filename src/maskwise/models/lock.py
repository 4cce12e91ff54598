"""One thread at a time: a model is laid out anew, recorded and asked in place, so its callers take turns."""

from threading import RLock
from typing import Any


class Turns:
    """A lock that its holder may take again. A copy of what it belongs to has one of its own."""

    def __init__(self) -> None:
        self._lock = RLock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *problem: object) -> None:
        self._lock.release()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Turns":
        return Turns()

    def __reduce__(self) -> tuple[type, tuple[()]]:
        return Turns, ()
