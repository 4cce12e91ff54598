"""Several processes that share a run (torchrun, accelerate): what is said when one of them is gone."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch.distributed as dist

from maskwise.support.errors import UserError


def is_left_alone(problem: BaseException) -> bool:
    """Whether an error says that another process does not answer any more; gloo has no type of its own for it."""
    return isinstance(problem, dist.DistError) or (isinstance(problem, RuntimeError) and "gloo" in str(problem))


@contextmanager
def one_line_if_left_alone(out: Path) -> Iterator[None]:
    """A process whose companion was killed ends, and says what is kept."""
    try:
        yield
    except RuntimeError as problem:
        if not is_left_alone(problem):
            raise
        raise UserError(
            f"another process of this run has ended: what was saved is kept in {out}, start all of them again to go on"
        ) from None
