"""The distribution of what a decoding rule writes, by enumeration instead of sampling (ours).

A canvas with a few masks is a small probability tree: in each step the rows propose tokens, independently of each other
(temperature 1), and the rule commits some of them. All proposals and all of the rule's own coin tosses are walked
through, so what comes out is exact up to rounding. The cost grows like vocabulary ^ masks: for toys and for tests.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

import torch
from torch import Tensor

from maskwise.decoding.rules import Memory, Rows, Rule, State, find_rule

COIN_GRID = 4096  # points at which a coin's threshold is looked for: probabilities of single coins are exact to 1/4096

Canvas = tuple[int, ...]
Predict = Callable[[Sequence[Canvas]], list[Tensor]]  # canvases -> for each the logits of all its positions, [n, V]


@dataclass(frozen=True)
class Outcomes:
    """What a decoding ends in, and the mean number of forward passes it takes."""

    probability: dict[Canvas, float]
    forwards: float


@dataclass(frozen=True)
class _Branch:
    canvas: Canvas
    probability: float
    memory: Memory | None = None


def outcomes(
    predict: Predict,
    canvas: Canvas,
    mask_id: int,
    rule: str,
    steps: int | None = None,
    given: Mapping[str, float] | None = None,
) -> Outcomes:
    """The distribution over filled canvases under a rule, with the given knobs in place of its own.

    `steps` as in `generate`: one token a step when left out; rules that keep their own pace take none.
    """
    found, knobs = find_rule(rule, given)
    slots = [place for place, token in enumerate(canvas) if token == mask_id]
    count = steps or len(slots)
    counts = found.counts(len(slots), count, knobs) if found.counts else None
    times = found.times(count, knobs) if found.times else None
    branches = [_Branch(canvas, 1.0)]
    done: dict[Canvas, float] = defaultdict(float)
    forwards = 0.0
    step = 0
    while branches:
        forwards += sum(branch.probability for branch in branches)
        state = State(
            count=None if counts is None else torch.tensor([counts[step]]),
            time=None if times is None else torch.tensor([times[step]]),
            after=None if times is None else torch.tensor([times[step + 1]]),
        )
        step += 1
        going = []
        tosses: dict[
            tuple[bool, ...], tuple[Tensor, Tensor]
        ] = {}  # they depend on which rows are open, and on no token
        logits = predict([branch.canvas for branch in branches])
        for branch, seen in zip(branches, logits, strict=True):
            rows = seen[slots].float().index_fill(1, torch.tensor([mask_id]), -torch.inf)
            pattern = tuple(branch.canvas[place] == mask_id for place in slots)
            if pattern not in tosses:
                tosses[pattern] = _tosses(torch.tensor(pattern), rows.shape[1], found, state, knobs)
            for after in _step(branch, rows, slots, mask_id, found, state, knobs, tosses[pattern]):
                # ReMDM may mask again what is full, so only a rule that keeps its own pace ends with the last mask.
                if mask_id not in after.canvas if found.own_pace else step == count:
                    done[after.canvas] += after.probability
                else:
                    going.append(after)
        branches = _merged(going)
    return Outcomes(dict(done), forwards)


def _step(
    branch: _Branch,
    logits: Tensor,
    slots: list[int],
    mask_id: int,
    rule: Rule,
    state: State,
    knobs: dict[str, float],
    tosses: tuple[Tensor, Tensor],
) -> Iterator[_Branch]:
    """All canvases one step may lead to, with their probabilities. logits [W, V]."""
    now = torch.tensor([branch.canvas[place] for place in slots])
    open = now == mask_id
    state = replace(state, memory=branch.memory)
    proposals, chance = _proposals(logits, open, now)
    draws, share = tosses
    tokens = proposals.repeat(len(share), 1)  # every toss with every proposal
    some = len(tokens)
    rows = Rows(logits.expand(some, -1, -1), tokens, open.expand(some, -1))
    choice = rule.pick(rows, _repeated(state, some, draws.repeat_interleave(len(chance), dim=0)), knobs)
    written = torch.where(choice.flip & rows.open, tokens, torch.where(choice.flip, mask_id, now))
    base = logits.shape[-1] ** torch.arange(len(slots))
    codes, which = (written * base).sum(dim=-1).unique(return_inverse=True)
    total = torch.zeros(len(codes), dtype=torch.float64)
    total.index_add_(0, which, chance.repeat(len(share)) * share.repeat_interleave(len(chance)))
    lines = codes[:, None] // base % logits.shape[-1]
    memory = choice.memory  # the same for all proposals
    kept = None if memory is None else Memory(memory.log_p[:1], memory.calm[:1])
    for line, probability in zip(lines.tolist(), total.tolist(), strict=True):
        if probability > 0:
            canvas = list(branch.canvas)
            for place, token in zip(slots, line, strict=True):
                canvas[place] = token
            yield _Branch(tuple(canvas), branch.probability * probability, kept)


def _proposals(logits: Tensor, open: Tensor, now: Tensor) -> tuple[Tensor, Tensor]:
    """Every combination of tokens the open rows may propose, [S, W], and its probability, [S]; closed rows stand."""
    p = logits.double().softmax(dim=-1)
    choices = [row.nonzero()[:, 0].tolist() if is_open else [int(token)]
               for row, is_open, token in zip(p, open, now, strict=True)]  # fmt: skip
    tokens = torch.tensor(list(product(*choices)))
    each = p.expand(len(tokens), -1, -1).gather(-1, tokens[..., None])[..., 0]
    return tokens, torch.where(open, each, 1.0).prod(dim=-1)


def _tosses(open: Tensor, vocabulary: int, rule: Rule, state: State, knobs: dict[str, float]) -> tuple[Tensor, Tensor]:
    """What the rule's own draws may amount to, [D, W], and with which probabilities, [D].

    Rules with a count rank their rows by the draws, so only the draws' order matters. Rules with a time toss one coin
    a row, so each row's draw is either below its threshold (written as 0) or not (almost 1).
    """
    width = len(open)
    if not rule.draws:
        return torch.zeros(1, width), torch.ones(1, dtype=torch.float64)
    if rule.times is None:
        orders = torch.tensor(list(permutations(range(width))))
        return (orders + 0.5) / width, torch.full((len(orders),), 1 / len(orders), dtype=torch.float64)
    grid = ((torch.arange(COIN_GRID) + 0.5) / COIN_GRID)[:, None].expand(-1, width)
    nothing = torch.zeros(1, 1, vocabulary).expand(COIN_GRID, width, -1)
    rows = Rows(nothing, torch.zeros(COIN_GRID, width, dtype=torch.int64), open.expand(COIN_GRID, -1))
    heads = rule.pick(rows, _repeated(state, COIN_GRID, grid), knobs).flip.double().mean(dim=0)
    coins = torch.tensor(list(product((True, False), repeat=width)))
    chance = torch.where(coins, heads, 1 - heads).prod(dim=-1)
    return torch.where(coins, 0.0, 1 - 1e-6)[chance > 0], chance[chance > 0]


def _repeated(state: State, some: int, draws: Tensor) -> State:
    """The state of one sequence as that of `some` equal ones with draws of their own, [some, W]."""

    def lines(value: Tensor | None) -> Tensor | None:
        return None if value is None else value.expand(some, *value.shape[1:])

    memory = state.memory
    if memory is not None:
        memory = Memory(memory.log_p.expand(some, -1, -1), memory.calm.expand(some, -1))
    return State(lines(state.count), lines(state.time), lines(state.after), draws, memory)


def _merged(branches: Sequence[_Branch]) -> list[_Branch]:
    """Branches that stand on the same canvas go on as one; those with a memory differ in it and stay apart."""
    if any(branch.memory is not None for branch in branches):
        return list(branches)
    total: dict[Canvas, float] = defaultdict(float)
    for branch in branches:
        total[branch.canvas] += branch.probability
    return [_Branch(canvas, probability) for canvas, probability in total.items()]
