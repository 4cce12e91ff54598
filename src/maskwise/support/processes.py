"""Errors of runs with several processes (torchrun, accelerate) if one of them ends."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist

from maskwise.support.errors import UserError


def is_left_alone(problem: BaseException) -> bool:
    """True if an error means that another process has ended; gloo has no error type for it."""
    return isinstance(problem, dist.DistError) or (isinstance(problem, RuntimeError) and "gloo" in str(problem))


@contextmanager
def one_line_if_left_alone(out: Path) -> Iterator[None]:
    """Ends with one line that says what is kept, if another process was killed."""
    try:
        yield
    except RuntimeError as problem:
        if not is_left_alone(problem):
            raise
        raise UserError(
            f"another process of this run has ended: what was saved is kept in {out}, start all of them again to go on"
        ) from None
