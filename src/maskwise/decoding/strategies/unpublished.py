"""Two strategies that no paper introduces: the smallest entropy, and from left to right."""

from maskwise.decoding.strategies.choosing import best, even_counts
from maskwise.decoding.strategies.state import Choice, Parameters, Rows, State
from maskwise.decoding.strategies.strategy import Strategy


def certainty(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """The `count` smallest entropies."""
    return best(rows.certainty(), rows, state)


def left_to_right(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """The `count` leftmost masks."""
    import torch

    places = torch.arange(rows.open.shape[-1], device=rows.open.device, dtype=torch.float32)
    return best(rows.unless_held(-places.expand(rows.open.shape)), rows, state)


STRATEGIES = (
    Strategy("entropy", "the smallest entropy", certainty, even_counts),
    Strategy("left-to-right", "the leftmost masks", left_to_right, even_counts),
)
