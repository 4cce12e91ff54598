"""The tensor functions of the unmasking strategies: which rows a step commits, given their logits and the state.

strategies.py lists the strategies with their parameters and papers.

Shapes: S sequences, W rows of each (a block's masks, padded to the widest), V tokens. Every function is vectorised over
sequences that differ in how much is open, and reads nothing back to the host. Ties go to the left.

A strategy answers with `flip` [S, W]: True where an open row is committed, or (ReMDM only) a committed row is masked
again.
"""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwise.decoding.end_of_step import best_rows, ranks
from maskwise.decoding.sampling import log_margin
from maskwise.decoding.state import Choice, Memory, Parameters, Rows, State


def even_counts(masks: int, steps: int, parameters: Parameters) -> list[int]:
    """As even a split of the masks over the steps as there is, the larger shares first."""
    return [masks // steps + (step < masks % steps) for step in range(steps)]


def dream_times(steps: int, parameters: Parameters) -> list[float]:
    """Dream's times from 1 to eps, in float32 as in its code; the last is 0, so that the last step commits all."""
    return [*torch.linspace(1, parameters["eps"], steps + 1, dtype=torch.float32).tolist()[:-1], 0.0]


def dream_counts(masks: int, steps: int, parameters: Parameters) -> list[int]:
    """Dream's counts: int(masks left * (1 - s/t)) in each step, in float32; the last step commits what remains."""
    times = torch.tensor(dream_times(steps, parameters))
    left, counts = masks, []
    for time, after in pairwise(times):
        counts.append(int(torch.tensor(float(left)) * (1 - after / time)))
        left -= counts[-1]
    return counts


def remdm_times(steps: int, parameters: Parameters) -> list[float]:
    return torch.linspace(1, 0, steps + 1, dtype=torch.float32).tolist()


# Selection


def best(score: Tensor, rows: Rows, state: State) -> Choice:
    """The `count` rows of the highest score."""
    assert state.count is not None
    return Choice(best_rows(score, rows.open, state.count))


def _passing(passes: Tensor, place: Tensor, rows: Rows) -> Choice:
    """The rows that pass a test, never fewer than one: the first in rank goes anyway."""
    if rows.held is not None:
        passes = passes & ~rows.held
    return Choice((passes | (place == 0)) & rows.open)


def _in_rank_order(values: Tensor, place: Tensor) -> Tensor:
    """values [S, W] laid out by rank."""
    return torch.empty_like(values).scatter_(-1, place, values)


def _log(probability: float) -> float:
    return math.log(probability) if probability > 0 else -math.inf


# The strategies


def random(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """LLaDA's random remasking: `count` rows at random."""
    assert state.draws is not None
    return best(rows.unless_held(state.draws), rows, state)


def low_confidence(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """LLaDA: the `count` most probable tokens (the low-confidence ones stay masked)."""
    return best(rows.confidence(), rows, state)


def margin(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """Kim et al., arXiv 2502.06768: the `count` largest margins between the two most probable tokens."""
    return best(rows.margin(), rows, state)


def certainty(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """The `count` smallest entropies."""
    return best(rows.certainty(), rows, state)


def left_to_right(rows: Rows, state: State, parameters: Parameters) -> Choice:
    places = torch.arange(rows.open.shape[-1], device=rows.open.device, dtype=torch.float32)
    return best(rows.unless_held(-places.expand(rows.open.shape)), rows, state)


def threshold(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """Fast-dLLM: every row with probability >= tau, at least the best one."""
    score = rows.confidence()
    return _passing(score >= _log(parameters["tau"]), ranks(score, rows.open), rows)


def factor(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """Fast-dLLM: the n best rows for the largest n with (n + 1) (1 - c_(n)) < f, at least one.

    The left side grows with n, so the n that satisfy it are the first ones.
    """
    score = rows.confidence()
    place = ranks(score, rows.open)
    doubt = -torch.expm1(score)
    return _passing((place + 2) * doubt < parameters["f"], place, rows)


def entropy_bound(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """EB-Sampler: the longest prefix in order of entropy whose entropies, without the largest, sum to at most gamma."""
    score = rows.certainty()
    place = ranks(score, rows.open)
    ordered = _in_rank_order((-score).masked_fill(~rows.open, float("inf")), place)
    before = F.pad(ordered.cumsum(dim=-1)[..., :-1], (1, 0))
    return _passing(before.gather(-1, place) <= parameters["gamma"], place, rows)


def klass(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """KLASS: rows with probability > tau whose prediction changed by a KL below eps in two steps, else the best."""
    log_p = rows.logits.log_softmax(dim=-1)
    if state.memory is None:
        calm = torch.zeros_like(rows.tokens)
    else:
        p = log_p.exp()
        moved = torch.where(p > 0, p * (log_p - state.memory.log_p), 0.0).sum(dim=-1)
        calm = torch.where(moved < parameters["eps"], state.memory.calm + 1, 0)
    score = rows.confidence()
    stable = (score > _log(parameters["tau"])) & (calm >= 2) & rows.open
    stable = stable if rows.held is None else stable & ~rows.held
    first = (ranks(score, rows.open) == 0) & rows.open
    return Choice(torch.where(stable.any(dim=-1, keepdim=True), stable, first), Memory(log_p, calm))


def remdm(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """ReMDM: a mask is resolved with (a_s - (1 - sigma) a_t) / (1 - a_t), a committed row masked again with sigma.

    a_t = 1 - t; sigma = min(eta, (1 - a_s) / a_t), so nothing is masked again in the last step.
    """
    assert state.draws is not None and state.time is not None and state.after is not None
    kept_now, kept_after = 1 - state.time[:, None], 1 - state.after[:, None]
    largest = torch.where(kept_now > 0, (1 - kept_after) / kept_now, 1.0)
    sigma = largest.clamp(max=min(parameters["eta"], 1.0))
    resolve = (kept_after - (1 - sigma) * kept_now) / (1 - kept_now)
    return Choice(state.draws < torch.where(rows.open, resolve, sigma))


def dream_origin(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """Dream: each mask is committed with probability 1 - s/t; s is 0 at the last step, so all that remain go."""
    assert state.draws is not None and state.time is not None and state.after is not None
    return Choice((state.draws < (1 - state.after / state.time)[:, None]) & rows.open)


def dream_maskgit_plus(rows: Rows, state: State, parameters: Parameters) -> Choice:
    return best(_ordering(rows.log_p, rows, state, parameters), rows, state)


def dream_topk_margin(rows: Rows, state: State, parameters: Parameters) -> Choice:
    return best(_ordering(log_margin(rows.logits), rows, state, parameters), rows, state)


def dream_entropy(rows: Rows, state: State, parameters: Parameters) -> Choice:
    """Negative entropy with Dream's own 1e-10 inside the logarithm."""
    p = rows.logits.softmax(dim=-1)
    score = rows.unless_held((p * (p + 1e-10).log()).sum(dim=-1))
    return best(score if parameters["alg_temp"] == 0 else _drawn(score, state, parameters), rows, state)


def _ordering(log_score: Tensor, rows: Rows, state: State, parameters: Parameters) -> Tensor:
    """What orders the rows: the score's logarithm, which separates scores near 1, or with Dream's alg_temp a draw."""
    if parameters["alg_temp"] > 0:
        log_score = _drawn(log_score.exp(), state, parameters)
    return rows.unless_held(log_score)


def _drawn(score: Tensor, state: State, parameters: Parameters) -> Tensor:
    """Rows without replacement by softmax(score / alg_temp): the Gumbel trick."""
    assert state.draws is not None
    return score / parameters["alg_temp"] - (-state.draws.double().log()).log().float()
