"""What every engine is given and how it is timed: the same weights and prompts, the same steps."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.decode import BLOCK, NEW, Enough, our_steps
from benchmarks.measure import Bench, difference, synchronize
from benchmarks.peers.report import Report
from benchmarks.shapes import LLADA, make_model, random_ids
from maskwise.decoding.generate import generate
from maskwise.models.model import Model

AT_ONCE = (4, 2, 1)  # tokens a step commits
WARM_UP = 2  # generations of ours: the pass that opens a block is recorded in the second
Run = Callable[[list[list[int]], int], Any]  # prompts, tokens a step -> canvases, or whatever the engine returns


@dataclass(frozen=True)
class Engine:
    """A way to decode: the module whose passes are counted, and what runs it."""

    who: str
    cache: str
    net: nn.Module
    run: Run
    block: int = 1  # which is timed
    recorded: bool = False  # what is new costs it far more than what comes again


def sizes(bench: Bench) -> tuple[int, int, int]:
    """Tokens of a prompt (whole blocks, as dInfer likes them), new tokens, tokens of a block."""
    return (31 * BLOCK, NEW, BLOCK) if bench.full else (24, 24, 8)


def shape_of(model: Model) -> dict[str, Any]:
    return {name: getattr(model.core.config, name) for name in LLADA}


def same_for_all(bench: Bench, toy_layers: int = 2) -> tuple[Model, dict[str, Tensor]]:
    """Our LLaDA and its weights; the mask is never its own best guess, which only some engines exclude."""
    model = make_model(bench, "llada", toy_layers)
    with torch.no_grad():
        model.head_weight[model.mask_id] = 0.0
    return model, dict(model.core.state_dict())


def between_passes(bench: Bench, net: nn.Module, run: Callable[[], Any], first: int, last: int) -> float:
    """Seconds from the beginning of pass `first` to that of pass `last`, where the run is stopped."""
    passes, marks = 0, []

    def look(*_: Any) -> None:
        nonlocal passes
        if passes in (first, last):
            synchronize(bench.device)
            marks.append(time.perf_counter())
        passes += 1
        if len(marks) == 2:
            raise Enough

    hook = net.register_forward_pre_hook(look)
    try:
        with suppress(Enough):
            run()
    finally:
        hook.remove()
    assert len(marks) == 2, f"only {passes} passes"
    return marks[1] - marks[0]


def window(bench: Bench, cache: str, at_once: int, batch: int, block: int = 1) -> tuple[int, int]:
    """Which steps are timed: a block with the pass that fills its cache; without a cache all cost the same."""
    steps = sizes(bench)[2] // at_once
    if cache == "none":
        return 1, 1 + (min(steps, 4) if batch > 1 else steps)
    return block * steps, (block + 1) * steps


def time_decoding(
    report: Report, engine: Engine, prompts: list[list[int]], at_onces: tuple[int, ...], note: str = ""
) -> None:
    bench, taken = report.bench, {}
    order = [number for number in at_onces for _ in range(2)] if engine.recorded else [at_onces[0], *at_onces]
    for at_once in order:  # the last of each counts
        first, last = window(bench, engine.cache, at_once, len(prompts), engine.block)
        run = partial(engine.run, prompts, at_once)
        taken[at_once] = between_passes(bench, engine.net, run, first, last) / (last - first)
    for at_once in at_onces:
        report.add(
            "step" + note, engine.who, taken[at_once], "s", batch=len(prompts), cache=engine.cache, at_once=at_once
        )


def time_ours(
    report: Report, model: Model, prompts: list[list[int]], cache: str, at_onces: tuple[int, ...], note: str = ""
) -> None:
    bench, batch = report.bench, len(prompts)
    _, new, block = sizes(bench)
    order = (*[at_onces[0]] * WARM_UP, *at_onces)
    for number, at_once in enumerate(order):
        first, last = window(bench, cache, at_once, batch)
        taken, _ = our_steps(bench, model, prompts, new, block, "blocks", cache, first, last, at_once)
        if number >= WARM_UP:
            report.add(
                "step" + note, "maskwise", taken / (last - first), "s", batch=batch, cache=cache, at_once=at_once
            )


def same_tokens(report: Report, model: Model, engine: Engine, prompts: list[list[int]]) -> None:
    """Of toys in float32 even the order of near ties is the same; what differs is said."""
    _, new, block = sizes(report.bench)
    for at_once in AT_ONCE:
        ours = [made.sequence for made in generate(model, prompts, new, new // at_once, block, cache=engine.cache)]
        theirs = engine.run(prompts, at_once)
        pairs = [
            (a, b)
            for one, other in zip(ours, theirs.tolist(), strict=True)
            for a, b in zip(one[-new:], other[-new:], strict=True)
        ]
        same = sum(a == b for a, b in pairs) / len(pairs)
        report.add(
            "tokens the same", engine.who, same, "share", cache=engine.cache, at_once=at_once, batch=len(prompts)
        )


@torch.no_grad()
def compare_logits(report: Report, model: Model, who: str, net: Callable[..., Any], **more: Any) -> None:
    """Their logits and ours of one canvas, the mask's own left out."""
    length, new, _ = sizes(report.bench)
    canvas = random_ids([length], model)[0] + [model.mask_id or 0] * new
    theirs = net(torch.tensor([canvas], device=report.bench.device), **more).logits[0].float()
    theirs[:, model.mask_id] = -torch.inf
    ours = model.predict([canvas], [list(range(len(canvas)))])[0]
    report.add("logits: relative difference", who, difference(ours, theirs), "share")
