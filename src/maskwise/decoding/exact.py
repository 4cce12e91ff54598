"""Exact output distribution of an unmasking strategy, by enumeration instead of sampling (ours).

A canvas with a few masks is a small probability tree: in each step the rows propose tokens, independently of each other
(temperature 1), and the strategy commits some of them. All proposals and all of the strategy's own random draws are
enumerated, so the result is exact up to rounding. The cost grows like vocabulary ^ masks: for toys and for tests.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product

import torch
from torch import Tensor

from maskwise.decoding.strategies import Strategy, find_strategy
from maskwise.decoding.strategies.state import Memory, Rows, State
from maskwise.support.errors import UserError

ROWS = 1 << 15  # proposals looked at together
COIN_GRID = 4096  # points at which a coin's threshold is looked for: probabilities of single coins are exact to 1/4096

Canvas = tuple[int, ...]
Predict = Callable[[Sequence[Canvas]], list[Tensor]]  # canvases -> for each the logits of all its positions, [n, V]


@dataclass(frozen=True)
class Outcomes:
    """The probability of each filled canvas, and the mean number of forward passes."""

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
    """The distribution over filled canvases under a rule, with the given parameters in place of its own.
    `steps` as in `generate`: one token a step when left out; adaptive strategies take none."""
    found = find_strategy(rule)
    parameters = found.complete(given)
    if parameters.get("alg_temp"):  # its draws count by their values, and only their order is enumerated
        raise UserError(f"{rule} with alg_temp is not enumerated: leave it at 0")
    slots = [place for place, token in enumerate(canvas) if token == mask_id]
    count = steps or len(slots)
    counts = found.counts(len(slots), count, parameters) if found.counts else None
    times = found.times(count, parameters) if found.times else None
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
        going: list[_Branch] = []
        seen = torch.stack([one[slots].float() for one in predict([branch.canvas for branch in branches])])  # [B, W, V]
        seen[..., mask_id] = -torch.inf
        for group in _groups(branches, slots, mask_id):
            for after in _step([branches[i] for i in group], seen[group], slots, mask_id, found, state, parameters):
                # ReMDM may mask again what is full, so only an adaptive strategy ends with the last mask.
                ended = mask_id not in after.canvas if found.adaptive else step == count
                if ended:
                    done[after.canvas] += after.probability
                else:
                    going.append(after)
        branches = _merged(going)
    return Outcomes(dict(done), forwards)


def _groups(branches: Sequence[_Branch], slots: list[int], mask_id: int) -> list[list[int]]:
    """Branches that take a step together: those with the same rows open; one with a memory is alone."""
    groups: dict[object, list[int]] = defaultdict(list)
    for number, branch in enumerate(branches):
        pattern = tuple(branch.canvas[place] == mask_id for place in slots)
        groups[pattern if branch.memory is None else number].append(number)
    return list(groups.values())


def _step(
    group: Sequence[_Branch],
    logits: Tensor,
    slots: list[int],
    mask_id: int,
    rule: Strategy,
    state: State,
    parameters: dict[str, float],
) -> Iterator[_Branch]:
    """All canvases one step may lead to from any of the group, with their probabilities. logits [G, W, V]."""
    now = torch.tensor([[branch.canvas[place] for place in slots] for branch in group])
    open = now[0] == mask_id
    state = replace(state, memory=group[0].memory)
    begun = torch.tensor([branch.probability for branch in group], dtype=torch.float64)
    owner, tokens, chance = _proposals(logits, open, now)
    chance = chance * begun[owner]
    draws, share = _tosses(open, logits.shape[-1], rule, state, parameters)
    base = logits.shape[-1] ** torch.arange(len(slots))
    total: dict[int, float] = defaultdict(float)
    memory: Memory | None = None
    for at in torch.arange(len(chance)).split(max(1, ROWS // len(share))):
        some = len(at) * len(share)
        proposed = tokens[at].repeat(len(share), 1)  # every toss with every proposal
        rows = Rows(logits[owner[at]].repeat(len(share), 1, 1), proposed, open.expand(some, -1))
        choice = rule.pick(rows, _repeated(state, some, draws.repeat_interleave(len(at), dim=0)), parameters)
        standing = now[owner[at]].repeat(len(share), 1)
        written = torch.where(choice.flip & rows.open, proposed, torch.where(choice.flip, mask_id, standing))
        codes, which = (written * base).sum(dim=-1).unique(return_inverse=True)
        added = torch.zeros(len(codes), dtype=torch.float64)
        added.index_add_(0, which, chance[at].repeat(len(share)) * share.repeat_interleave(len(at)))
        for code, probability in zip(codes.tolist(), added.tolist(), strict=True):
            total[code] += probability
        memory = choice.memory  # the same for all proposals
    kept = None if memory is None else Memory(memory.log_p[:1], memory.calm[:1])
    lines = torch.tensor(list(total))[:, None] // base % logits.shape[-1]
    for line, probability in zip(lines.tolist(), total.values(), strict=True):
        if probability > 0:
            canvas = list(group[0].canvas)
            for place, token in zip(slots, line, strict=True):
                canvas[place] = token
            yield _Branch(tuple(canvas), probability, kept)


def _proposals(logits: Tensor, open: Tensor, now: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Every combination of tokens the open rows may propose: its branch [N], the tokens [N, W], its probability [N].
    logits [G, W, V], open [W], now [G, W]; closed rows keep their tokens."""
    p = logits.double().softmax(dim=-1)[:, open]  # [G, O, V]
    choices = list(product(range(logits.shape[-1]), repeat=p.shape[1]))
    grid = torch.tensor(choices, dtype=torch.int64).view(len(choices), p.shape[1])  # [S, O]
    chance = p[:, torch.arange(p.shape[1]), grid].prod(dim=-1)  # [G, S]
    owner, which = chance.nonzero(as_tuple=True)
    tokens = now[owner]
    tokens[:, open] = grid[which]
    return owner, tokens, chance[owner, which]


def _tosses(
    open: Tensor, vocabulary: int, rule: Strategy, state: State, parameters: dict[str, float]
) -> tuple[Tensor, Tensor]:
    """All distinct outcomes of the strategy's own draws, [D, W], and their probabilities, [D].

    Strategies with a count rank their rows by the draws, so only their order matters. Strategies with a time draw once
    per row, which is either below its threshold (written as 0) or not (almost 1).
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
    heads = rule.pick(rows, _repeated(state, COIN_GRID, grid), parameters).flip.double().mean(dim=0)
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
    """Merges branches with the same canvas; those with a memory stay apart."""
    if any(branch.memory is not None for branch in branches):
        return list(branches)
    total: dict[Canvas, float] = defaultdict(float)
    for branch in branches:
        total[branch.canvas] += branch.probability
    return [_Branch(canvas, probability) for canvas, probability in total.items()]
