"""LLaDA's two remasking strategies."""

from maskwise.decoding.strategies.choosing import best, even_counts
from maskwise.decoding.strategies.state import Choice, Parameters, Rows, State
from maskwise.decoding.strategies.strategy import Strategy

PAPER = "Nie et al., Large Language Diffusion Models, arXiv 2502.09992"


def random(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """`count` rows at random."""
    assert state.draws is not None
    return best(rows.unless_held(state.draws), rows, state)


def low_confidence(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """The `count` most probable tokens (the low-confidence ones stay masked)."""
    return best(rows.confidence(), rows, state)


STRATEGIES = (
    Strategy("random", "tokens at random", random, even_counts, paper=PAPER, draws=True),
    Strategy("low-confidence", "the most probable tokens", low_confidence, even_counts, paper=PAPER),
)
