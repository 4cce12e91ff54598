"""Dream's four values of `alg`, which judge by the distribution after temperature, top-k and top-p."""

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from maskwise.decoding.strategies.choosing import best
from maskwise.decoding.strategies.state import Choice, Parameters, Rows, State
from maskwise.decoding.strategies.strategy import Parameter, Strategy

if TYPE_CHECKING:
    from torch import Tensor


def dream_times(steps: int, parameters: Parameters) -> list[float]:
    """Dream's times from 1 to eps, in float32 as in its code; the last is 0, so that the last step commits all."""
    import torch

    return [*torch.linspace(1, parameters["eps"], steps + 1, dtype=torch.float32).tolist()[:-1], 0.0]


def dream_counts(masks: int, steps: int, parameters: Parameters) -> list[int]:
    """Dream's counts: int(masks left * (1 - s/t)) in each step, in float32; the last step commits what remains."""
    import torch

    times = torch.tensor(dream_times(steps, parameters))
    left, counts = masks, []
    for time, after in pairwise(times):
        counts.append(int(torch.tensor(float(left)) * (1 - after / time)))
        left -= counts[-1]
    return counts


def origin(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """Each mask is committed with probability 1 - s/t; s is 0 at the last step, so all that remain are committed."""
    assert state.draws is not None and state.time is not None and state.after is not None
    return Choice((state.draws < (1 - state.after / state.time)[:, None]) & rows.open)


def maskgit_plus(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """The `count` most probable tokens."""
    return best(_ordering(rows.log_p, rows, state, parameters), rows, state)


def topk_margin(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """The `count` largest margins between the two most probable tokens."""
    from maskwise.decoding.sampling import log_margin

    return best(_ordering(log_margin(rows.logits), rows, state, parameters), rows, state)


def entropy(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """The `count` smallest entropies, with Dream's own 1e-10 inside the logarithm."""
    p = rows.logits.softmax(dim=-1)
    score = rows.unless_held((p * (p + 1e-10).log()).sum(dim=-1))
    return best(score if parameters["alg_temp"] == 0 else _drawn(score, state, parameters), rows, state)


def _ordering(log_score: "Tensor", rows: Rows, state: State, parameters: Parameters) -> "Tensor":
    """The ranking of rows: the score's logarithm, which separates scores near 1, or with Dream's alg_temp a draw."""
    if parameters["alg_temp"] > 0:
        log_score = _drawn(log_score.exp(), state, parameters)
    return rows.unless_held(log_score)


def _drawn(score: "Tensor", state: State, parameters: Parameters) -> "Tensor":
    """Rows without replacement by softmax(score / alg_temp): the Gumbel trick."""
    assert state.draws is not None
    return score / parameters["alg_temp"] - (-state.draws.double().log()).log().float()


_dream = partial(
    Strategy, paper="Ye et al., Dream 7B: Diffusion Large Language Models, arXiv 2508.15487", draws=True, filtered=True
)
_counted = partial(
    _dream, count_function=dream_counts, parameters=(Parameter("eps", 1e-3, 1), Parameter("alg_temp", 0.0))
)

STRATEGIES = (
    _dream(
        "dream-origin",
        "each mask at random (Dream's alg origin)",
        origin,
        time_function=dream_times,
        parameters=(Parameter("eps", 1e-3, 1),),
    ),
    _counted("dream-maskgit-plus", "the most probable tokens (Dream's alg maskgit_plus)", maskgit_plus),
    _counted("dream-topk-margin", "the largest margins (Dream's alg topk_margin)", topk_margin),
    _counted("dream-entropy", "the smallest entropies (Dream's alg entropy)", entropy),
)
