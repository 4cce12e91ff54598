"""What a run costs before it is asked, and what its lead will be able to show."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from math import sqrt
from time import perf_counter

import torch

from maskwise.models.model import Model
from maskwise.probes.answers.plain import ask
from maskwise.probes.setup import Item, Unit
from maskwise.scoring.power import Z_LEVEL

CHANGED = (0.1, 0.3)  # shares of the answers, for which the precision is stated


@dataclass(frozen=True)
class Workload:
    """prompts: questions under all conditions. tokens: of these, once for each forward pass over them, by the mean
    length of each unit's first."""

    prompts: int
    tokens: int


def workload_of(units: Sequence[Unit], firsts: Sequence[Sequence[Item]] | None = None) -> Workload:
    """firsts: the first items of each unit, where they were made before."""
    prompts = tokens = 0
    for unit, items in zip(units, firsts or (unit.items(unit.points[:1], set()) for unit in units), strict=True):
        lengths = [len(item.prompt.ids) for item in items]
        count = len(unit.points) * unit.conditions
        prompts += count
        tokens += round(unit.passes * count * sum(lengths) / max(1, len(lengths)))
    return Workload(prompts, tokens)


def in_words(prompts: float, tokens: float) -> str:
    """`2,200 prompts, 2.5 M tokens`"""
    size = f"{tokens / 1e9:.2g} G" if tokens >= 1e9 else f"{float(f'{tokens / 1e6:.2g}'):,g} M"
    return f"{round(prompts):,} prompts, {size} tokens"


def expected(
    model: Model, units: Sequence[Unit], firsts: Sequence[Sequence[Item]], budget: int, lead: str = "", answers: int = 1
) -> dict[str, float]:
    """prompts, tokens, gib, hours, and the half-width of the change that the probe `lead` measures, by the share of
    questions that change; each has so many answers. Two batches are asked, of which the second is timed: the first
    warms up."""
    work = workload_of(units, firsts)
    timed = next((at for at, one in enumerate(units) if one.answer is None), 0)  # decoding may take minutes a batch
    unit, prompts = units[timed], [item.prompt for item in firsts[timed]]
    batch = list(islice(cycle(prompts), max(1, budget // unit.cost // max(len(one.ids) for one in prompts))))
    for _ in range(2):
        start = perf_counter()
        (unit.answer or ask)(model, batch)
        seconds = (perf_counter() - start) / sum(unit.passes * len(one.ids) for one in batch)
    on_gpu = model.device.type == "cuda"
    held = torch.cuda.max_memory_allocated(model.device) if on_gpu else sum(p.nbytes for p in model.parameters())
    asked = {
        (item.key[1], point // answers)
        for unit, some in zip(units, firsts, strict=True)
        for item in some
        if item.key[0] == lead and "shots" not in item.condition
        for point in unit.points
    }
    widths = {f"half_width_{100 * share:.0f}": Z_LEVEL * sqrt(share / len(asked)) for share in CHANGED if asked}
    return {**vars(work), "gib": held / 2**30, "hours": seconds * work.tokens / 3600, **widths}
