"""Shared code of strategies: rows chosen by rank or by a test, and the rows per step. Imports torch when used.

Shapes: S sequences, W rows of each (a block's masks, padded to the widest). Every function is vectorised over sequences
that differ in how much is open, and reads nothing back to the host. Ties go to the left.
"""

import math
from typing import TYPE_CHECKING

from maskwise.decoding.strategies.state import Choice, Parameters, Rows, State

if TYPE_CHECKING:
    from torch import Tensor


def even_counts(masks: int, steps: int, parameters: Parameters) -> list[int]:
    """As even a split of the masks over the steps as there is, the larger shares first."""
    return [masks // steps + (step < masks % steps) for step in range(steps)]


def best(score: "Tensor", rows: Rows, state: State) -> Choice:
    """The `count` rows of the highest score [S, W]."""
    from maskwise.decoding.end_of_step import best_rows

    assert state.count is not None
    return Choice(best_rows(score, rows.open, state.count))


def ranks(score: "Tensor", rows: Rows) -> "Tensor":
    """The rank of each row by score, best first, closed rows last. [S, W] -> [S, W]."""
    from maskwise.decoding.end_of_step import ranks as ranks_among_open

    return ranks_among_open(score, rows.open)


def passing(passes: "Tensor", rank: "Tensor", rows: Rows) -> Choice:
    """The rows that pass a test [S, W], never fewer than one: the first in rank is committed anyway."""
    if rows.held is not None:
        passes = passes & ~rows.held
    return Choice((passes | (rank == 0)) & rows.open)


def log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf
