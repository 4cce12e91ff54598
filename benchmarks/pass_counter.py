"""Counts the tokens of all forward passes, where a pass is asked for.

Passes that are replayed from CUDA graphs and passes of copies in other dtypes count too.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from maskwise.decoding.replay import Passes
from maskwise.models.batch import Batch
from maskwise.models.interface import ModelInterface


class PassCounter:
    """Tokens and forward passes; a pass that is asked for within another is counted once."""

    def __init__(self) -> None:
        self.tokens = self.passes = self.depth = 0

    def wrapped(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(owner: Any, batch: Batch, *given: Any, **named: Any) -> Any:
            if self.depth == 0:
                self.tokens += batch.tokens
                self.passes += 1
            self.depth += 1
            try:
                return method(owner, batch, *given, **named)
            finally:
                self.depth -= 1

        return counted


@contextmanager
def counting() -> Iterator[PassCounter]:
    """Counts the passes of every model in this process."""
    places = ((ModelInterface, "hidden"), (ModelInterface, "asked_rows"), (Passes, "hidden"))
    own = [vars(owner)[name] for owner, name in places]
    counter = PassCounter()
    for (owner, name), method in zip(places, own, strict=True):
        setattr(owner, name, counter.wrapped(method))
    try:
        yield counter
    finally:
        for (owner, name), method in zip(places, own, strict=True):
            setattr(owner, name, method)
