"""Fast-dLLM's two parallel decoding strategies."""

from maskwise.decoding.strategies.choosing import log, passing, ranks
from maskwise.decoding.strategies.state import Choice, Parameters, Rows, State
from maskwise.decoding.strategies.strategy import Parameter, Strategy

PAPER = "Wu et al., Fast-dLLM, arXiv 2505.22618"


def threshold(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """Every row with probability >= tau, at least the best one."""
    score = rows.confidence()
    return passing(score >= log(parameters["tau"]), ranks(score, rows), rows)


def factor(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """The n best rows for the largest n with (n + 1) (1 - c_(n)) < f, at least one.
    The left side grows with n, so the n that satisfy it are the first ones."""
    score = rows.confidence()
    rank = ranks(score, rows)
    doubt = -score.expm1()
    return passing((rank + 2) * doubt < parameters["f"], rank, rows)


STRATEGIES = (
    Strategy(
        "threshold",
        "every token with probability tau or more",
        threshold,
        parameters=(Parameter("tau", 0.9, 1, "threshold"),),
        paper=PAPER,
    ),
    Strategy(
        "factor",
        "the n most probable tokens, n by their confidence",
        factor,
        parameters=(Parameter("f", 1.0, published="factor"),),
        paper=PAPER,
    ),
)
