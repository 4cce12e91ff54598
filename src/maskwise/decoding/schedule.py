"""Schedules of a block: its steps, the rows or noise levels of each step, and the end of editing."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import Tensor

from maskwise.decoding.options import DecodingOptions

PASSES_AFTER = 16  # over a block without masks, while tokens are edited


@dataclass(frozen=True)
class BlockSchedule:
    """The steps of each lane in a block. A lane is a sequence that is still being decoded."""

    lengths: list[int] | None  # [lanes] steps; None for an adaptive strategy
    left: list[list[int]]  # [lanes][steps] rows still open after each step; empty where that is not known in advance
    counts: Tensor | None = None  # [steps, lanes] int64
    times: Tensor | None = None  # [steps + 1, lanes] float32


def block_schedule(
    options: DecodingOptions, masks: list[int], lengths: list[int], device: torch.device
) -> BlockSchedule:
    """masks, lengths: the masks and steps of each lane in this block. An adaptive strategy has no fixed steps."""
    strategy, parameters = options.strategy, options.all_parameters
    if strategy.adaptive:
        return BlockSchedule(None, [])
    longest = max(lengths)
    if strategy.times is not None:
        times = [_padded(strategy.times(steps, parameters), longest + 1) for steps in lengths]
        return BlockSchedule(lengths, [], times=torch.tensor(times).t().to(device))
    assert strategy.counts is not None
    counts = [_padded(strategy.counts(n, steps, parameters), longest) for n, steps in zip(masks, lengths, strict=True)]
    left = [[n - done for done in accumulate(line)] for n, line in zip(masks, counts, strict=True)]
    return BlockSchedule(lengths, left, counts=torch.tensor(counts).t().to(device))


def _padded(line: list[Any], length: int) -> list[Any]:
    return [*line, *[0] * (length - len(line))]


def steps_per_block(options: DecodingOptions, masks: list[int], own_grid: bool) -> list[int]:
    """A sequence's steps in each of its blocks of so many masks. own_grid: the model's own blocks, of any length."""
    if options.steps is None:
        return masks
    return spread_steps(options.steps, masks) if own_grid else [options.steps // len(masks)] * len(masks)


def spread_steps(steps: int, masks: Sequence[int]) -> list[int]:
    """Steps for each block of so many masks: one each, the others in proportion to the block's other masks.

    They add up to `steps`, or to one per block where those are more. No block has more steps than masks, unless there
    are more steps than masks in all.
    """
    room = [count - 1 for count in masks]
    room = room if any(room) else [1] * len(masks)
    more, total = max(steps - len(masks), 0), sum(room)
    given = [more * done // total for done in accumulate(room, initial=0)]
    return [1 + after - before for before, after in pairwise(given)]


class Editing:
    """Token editing: a block is read again after its last mask, until a pass changes nothing, 16 times at most.

    As in LLaDA2.1's published loop, which edits the active block alone: the blocks before it, and what a cache holds of
    them, stay.
    """

    def __init__(self, lanes: int, device: torch.device) -> None:
        self.after = torch.zeros(lanes, dtype=torch.int64, device=device)  # [S] passes that began without a mask
        self.began_open = self.after < 0  # [S] whether the last one began with any

    def count(self, open: Tensor) -> None:
        """Counts a pass before it begins. open [S, W]."""
        self.began_open = open.any(dim=-1)
        self.after = self.after + (~self.began_open)

    def goes_on(self, edits: Tensor) -> Tensor:
        """True for lanes that need another pass, after one with these edits [S, W] -> [S]."""
        return self.began_open | (edits.any(dim=-1) & (self.after < PASSES_AFTER))

    def keep(self, lanes: Tensor) -> "Editing":
        self.after = self.after[lanes]
        return self
