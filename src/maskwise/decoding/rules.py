"""Which rows are committed in a step: pure functions of the open rows' logits and the state.

Shapes: S sequences, W rows of each (a block's masks, padded to the widest), V tokens. Every function is vectorised over
sequences that differ in how much is open, and reads nothing back to the host. Ties go to the left.

A rule answers with `flip` [S, W]: True where a row changes sides. For all rules but ReMDM that means an open row is
committed; ReMDM also masks committed rows again.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwise.decoding.sampling import entropy, log_confidence, log_margin
from maskwise.errors import UserError


@dataclass(frozen=True)
class Rows:
    """What one forward pass says about the rows of a block."""

    logits: Tensor  # [S, W, V] float32, what the rule judges by
    tokens: Tensor  # [S, W] the token each row would take
    open: Tensor  # [S, W] bool, still masked
    held: Tensor | None = None  # [S, W] bool, open rows that may go only when nothing else is left (end tokens)

    def confidence(self) -> Tensor:
        """Log-probability of the proposed tokens; minus infinity where held."""
        return self.unless_held(log_confidence(self.logits, self.tokens))

    def margin(self) -> Tensor:
        """Logarithm of the probability of the likeliest token less that of the second."""
        return self.unless_held(log_margin(self.logits))

    def certainty(self) -> Tensor:
        """Negative entropy."""
        return self.unless_held(-entropy(self.logits))

    def unless_held(self, score: Tensor) -> Tensor:
        return score if self.held is None else score.masked_fill(self.held, float("-inf"))


@dataclass(frozen=True)
class Memory:
    """What KLASS keeps from one step to the next."""

    log_p: Tensor  # [S, W, V] the predictions of the step before
    calm: Tensor  # [S, W] int64, for how many steps running they have hardly moved


@dataclass(frozen=True)
class State:
    """Where the decoding stands. `time` and `after` are the noise levels t > s between which this step goes."""

    count: Tensor | None = None  # [S] int64, how many rows the schedule commits in this step
    time: Tensor | None = None  # [S] float32
    after: Tensor | None = None  # [S] float32, 0 at the last step
    draws: Tensor | None = None  # [S, W] uniform in [0, 1)
    memory: Memory | None = None


@dataclass(frozen=True)
class Choice:
    flip: Tensor  # [S, W] bool
    memory: Memory | None = None


Knobs = Mapping[str, float]


@dataclass(frozen=True)
class Rule:
    """A rule and what it needs.

    counts(masks, steps, knobs) says how many rows go in each step; times(steps, knobs) at which noise levels a rule
    stands that tosses a coin for each row. A rule with neither keeps its own pace and ends when nothing is open.
    filtered: judge by the distribution tokens are drawn from (temperature, top-k, top-p), as Dream does, instead of by
    the model's own, as LLaDA does.
    """

    pick: Callable[[Rows, State, Knobs], Choice]
    counts: Callable[[int, int, Knobs], list[int]] | None = None
    times: Callable[[int, Knobs], list[float]] | None = None
    knobs: Knobs = field(default_factory=dict)
    draws: bool = False
    filtered: bool = False

    @property
    def own_pace(self) -> bool:
        return self.counts is None and self.times is None


# How many, and when


def even_counts(masks: int, steps: int, knobs: Knobs) -> list[int]:
    """As even a split of the masks over the steps as there is, the larger shares first."""
    return [masks // steps + (step < masks % steps) for step in range(steps)]


def dream_times(steps: int, knobs: Knobs) -> list[float]:
    """t_0 = 1 .. t_steps = eps in float32, as Dream's code has them; then 0 for eps, for at the last step all goes."""
    return [*torch.linspace(1, knobs["eps"], steps + 1, dtype=torch.float32).tolist()[:-1], 0.0]


def dream_counts(masks: int, steps: int, knobs: Knobs) -> list[int]:
    """int(masks left * (1 - s/t)) in each step, in float32; what remains goes last."""
    times, left, counts = torch.tensor(dream_times(steps, knobs)), masks, []
    for time, after in pairwise(times):
        counts.append(int(torch.tensor(float(left)) * (1 - after / time)))
        left -= counts[-1]
    return counts


def remdm_times(steps: int, knobs: Knobs) -> list[float]:
    return torch.linspace(1, 0, steps + 1, dtype=torch.float32).tolist()


# Selection


def ranks(score: Tensor, open: Tensor) -> Tensor:
    """The place of each row when its sequence is sorted by score, best first, ties to the left, closed rows last.

    An open row at minus infinity still stands before every closed one.
    """
    lowest = torch.finfo(score.dtype).min
    score = score.clamp(min=lowest).masked_fill(~open, float("-inf"))
    order = score.argsort(dim=-1, descending=True, stable=True)
    places = torch.arange(score.shape[-1], device=score.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)


def best(score: Tensor, rows: Rows, state: State) -> Choice:
    """The `count` rows of the highest score."""
    assert state.count is not None
    return Choice((ranks(score, rows.open) < state.count[:, None]) & rows.open)


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


# The rules


def random(rows: Rows, state: State, knobs: Knobs) -> Choice:
    assert state.draws is not None
    return best(rows.unless_held(state.draws), rows, state)


def low_confidence(rows: Rows, state: State, knobs: Knobs) -> Choice:
    """LLaDA: the `count` most probable tokens (the low-confidence ones stay masked)."""
    return best(rows.confidence(), rows, state)


def margin(rows: Rows, state: State, knobs: Knobs) -> Choice:
    return best(rows.margin(), rows, state)


def certainty(rows: Rows, state: State, knobs: Knobs) -> Choice:
    return best(rows.certainty(), rows, state)


def left_to_right(rows: Rows, state: State, knobs: Knobs) -> Choice:
    places = torch.arange(rows.open.shape[-1], device=rows.open.device, dtype=torch.float32)
    return best(rows.unless_held(-places.expand(rows.open.shape)), rows, state)


def threshold(rows: Rows, state: State, knobs: Knobs) -> Choice:
    """Fast-dLLM: every row with probability >= tau, at least the best one."""
    score = rows.confidence()
    return _passing(score >= _log(knobs["tau"]), ranks(score, rows.open), rows)


def factor(rows: Rows, state: State, knobs: Knobs) -> Choice:
    """Fast-dLLM: the n best rows for the largest n with (n + 1) (1 - c_(n)) < f, at least one.

    The left side grows with n, so the n that satisfy it are the first ones.
    """
    score = rows.confidence()
    place = ranks(score, rows.open)
    doubt = -torch.expm1(score)
    return _passing((place + 2) * doubt < knobs["f"], place, rows)


def entropy_bound(rows: Rows, state: State, knobs: Knobs) -> Choice:
    """The longest prefix in order of entropy whose entropies without the largest add up to at most gamma."""
    score = rows.certainty()
    place = ranks(score, rows.open)
    ordered = _in_rank_order((-score).masked_fill(~rows.open, float("inf")), place)
    before = F.pad(ordered.cumsum(dim=-1)[..., :-1], (1, 0))
    return _passing(before.gather(-1, place) <= knobs["gamma"], place, rows)


def klass(rows: Rows, state: State, knobs: Knobs) -> Choice:
    """Rows with probability > tau whose prediction moved by less than eps (KL) for two steps running, else the best."""
    log_p = rows.logits.log_softmax(dim=-1)
    if state.memory is None:
        calm = torch.zeros_like(rows.tokens)
    else:
        p = log_p.exp()
        moved = torch.where(p > 0, p * (log_p - state.memory.log_p), 0.0).sum(dim=-1)
        calm = torch.where(moved < knobs["eps"], state.memory.calm + 1, 0)
    score = rows.confidence()
    stable = (score > _log(knobs["tau"])) & (calm >= 2) & rows.open
    stable = stable if rows.held is None else stable & ~rows.held
    first = (ranks(score, rows.open) == 0) & rows.open
    return Choice(torch.where(stable.any(dim=-1, keepdim=True), stable, first), Memory(log_p, calm))


def remdm(rows: Rows, state: State, knobs: Knobs) -> Choice:
    """ReMDM: a mask is resolved with (a_s - (1 - sigma) a_t) / (1 - a_t), a committed row masked again with sigma.

    a_t = 1 - t; sigma = min(eta, (1 - a_s) / a_t), so nothing is masked again in the last step.
    """
    assert state.draws is not None and state.time is not None and state.after is not None
    kept_now, kept_after = 1 - state.time[:, None], 1 - state.after[:, None]
    largest = torch.where(kept_now > 0, (1 - kept_after) / kept_now, 1.0)
    sigma = largest.clamp(max=min(knobs["eta"], 1.0))
    resolve = (kept_after - (1 - sigma) * kept_now) / (1 - kept_now)
    return Choice(state.draws < torch.where(rows.open, resolve, sigma))


def dream_origin(rows: Rows, state: State, knobs: Knobs) -> Choice:
    """Each mask with probability 1 - s/t; `after` is 0 at the last step, so all that remain go."""
    assert state.draws is not None and state.time is not None and state.after is not None
    return Choice((state.draws < (1 - state.after / state.time)[:, None]) & rows.open)


def dream_maskgit_plus(rows: Rows, state: State, knobs: Knobs) -> Choice:
    return best(_jumbled(log_confidence(rows.logits, rows.tokens), rows, state, knobs), rows, state)


def dream_topk_margin(rows: Rows, state: State, knobs: Knobs) -> Choice:
    return best(_jumbled(log_margin(rows.logits), rows, state, knobs), rows, state)


def dream_entropy(rows: Rows, state: State, knobs: Knobs) -> Choice:
    """Negative entropy with Dream's own 1e-10 inside the logarithm."""
    p = rows.logits.softmax(dim=-1)
    score = rows.unless_held((p * (p + 1e-10).log()).sum(dim=-1))
    return best(score if knobs["alg_temp"] == 0 else _drawn(score, state, knobs), rows, state)


def _jumbled(log_score: Tensor, rows: Rows, state: State, knobs: Knobs) -> Tensor:
    """The score itself orders the rows, or with Dream's alg_temp a draw does; its logarithm is the finer to compare."""
    return rows.unless_held(log_score if knobs["alg_temp"] == 0 else _drawn(log_score.exp(), state, knobs))


def _drawn(score: Tensor, state: State, knobs: Knobs) -> Tensor:
    """Rows without replacement by softmax(score / alg_temp): the Gumbel trick."""
    assert state.draws is not None
    return score / knobs["alg_temp"] - (-state.draws.double().log()).log().float()


# Knobs that are probabilities or small by their nature; none is negative. Outside, rules leave masks unfilled.
AT_MOST_ONE = {"tau", "eta", "eps"}
_DREAM = {"eps": 1e-3, "alg_temp": 0.0}

RULES: dict[str, Rule] = {
    "random": Rule(random, even_counts, draws=True),
    "low-confidence": Rule(low_confidence, even_counts),
    "margin": Rule(margin, even_counts),
    "entropy": Rule(certainty, even_counts),
    "left-to-right": Rule(left_to_right, even_counts),
    "threshold": Rule(threshold, knobs={"tau": 0.9}),
    "factor": Rule(factor, knobs={"f": 1.0}),
    "entropy-bound": Rule(entropy_bound, knobs={"gamma": 0.1}),
    "klass": Rule(klass, knobs={"tau": 0.9, "eps": 0.01}),
    "remdm": Rule(remdm, times=remdm_times, knobs={"eta": 0.02}, draws=True),
    "dream-origin": Rule(dream_origin, times=dream_times, knobs={"eps": 1e-3}, draws=True, filtered=True),
    "dream-maskgit-plus": Rule(dream_maskgit_plus, dream_counts, knobs=_DREAM, draws=True, filtered=True),
    "dream-topk-margin": Rule(dream_topk_margin, dream_counts, knobs=_DREAM, draws=True, filtered=True),
    "dream-entropy": Rule(dream_entropy, dream_counts, knobs=_DREAM, draws=True, filtered=True),
}


def find_rule(name: str, knobs: Knobs | None = None) -> tuple[Rule, dict[str, float]]:
    """The rule and its knobs, the given ones in place of the defaults."""
    if name not in RULES:
        raise UserError(f"unknown rule {name!r}: choose one of {', '.join(RULES)}")
    rule, given = RULES[name], dict(knobs or {})
    for knob, value in given.items():
        if knob not in rule.knobs:
            known = ", ".join(rule.knobs) or "none"
            raise UserError(f"rule {name} has no knob {knob!r}: it has {known}")
        most = 1.0 if knob in AT_MOST_ONE else sys.float_info.max
        if not 0 <= value <= most:
            within = "between 0 and 1" if knob in AT_MOST_ONE else "a number, 0 or more"
            raise UserError(f"{knob} of rule {name} is {value}: it must be {within}")
    return rule, {**rule.knobs, **given}


def parse_knobs(written: Sequence[str]) -> dict[str, float]:
    """["tau=0.8"] -> {"tau": 0.8}"""
    knobs = {}
    for setting in written:
        name, _, value = setting.partition("=")
        try:
            knobs[name] = float(value)
        except ValueError:
            raise UserError(f"{setting!r} is not a knob and its number, like tau=0.8") from None
    return knobs
