"""Top probability margin."""

from maskwise.decoding.strategies.choosing import best, even_counts
from maskwise.decoding.strategies.state import Choice, Parameters, Rows, State
from maskwise.decoding.strategies.strategy import Strategy


def margin(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """The `count` largest margins between the two most probable tokens."""
    return best(rows.margin(), rows, state)


PAPER = "Kim et al., Train for the Worst, Plan for the Best, arXiv 2502.06768"
STRATEGIES = (Strategy("margin", "the largest margin between the two best tokens", margin, even_counts, paper=PAPER),)
