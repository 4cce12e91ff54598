"""Row n: weights in fp8 or int4 against bf16 of the same model: time, memory, and what rounding does to the logits."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from benchmarks.decode import BLOCK, NEW, TOY_BLOCK, TOY_NEW, our_steps
from benchmarks.experts import LENGTHS, TOY_LENGTHS, answers
from benchmarks.measure import GIB, Bench, Line, Timing, bound, difference, forward_flops, line, timed
from benchmarks.shapes import make_model, random_ids
from maskwise.models.base import Model
from maskwise.models.quantise import quantise

PROBE_BAR, STEP_BAR = {"fp8": 1.35, "int4": None}, {"fp8": 1.4, "int4": None}


@dataclass(frozen=True)
class Seen:
    """What one precision gives."""

    logits: Tensor  # of the prompts together
    probe: Timing
    step: float  # seconds
    weights: float  # GiB


def look(bench: Bench, model: Model, prompts: list[list[int]]) -> Seen:
    """Layers are compiled for the probe alone, as `diagnose` does it, and after the steps, as nothing undoes it."""
    new, block = (NEW, BLOCK) if bench.full else (TOY_NEW, TOY_BLOCK)
    (prompt,) = random_ids([1000 if bench.full else 20], model, seed=1)
    for _ in range(2):  # the first one records
        steps, _ = our_steps(bench, model, [prompt], new, block, "blocks", "dual", block, 2 * block)
    if bench.full:
        model.compile_layers()
    probe = timed(bench.device, lambda: answers(model, prompts))
    held = sum(weight.numel() * weight.element_size() for weight in model.parameters()) / GIB
    return Seen(answers(model, prompts), probe, steps / block, held)


def fewer_bits(bench: Bench, kind: str) -> Iterator[Line]:
    model = make_model(bench, "llada")
    together = 4 if kind == "int4" else len(LENGTHS)  # on a small card passes are small
    prompts = random_ids(LENGTHS[:together] if bench.full else TOY_LENGTHS, model)
    flops = forward_flops(model, [len(prompt) for prompt in prompts], len(prompts))
    noise = difference(torch.cat([answers(model, [one]) for one in prompts[:4]]), answers(model, prompts[:4]))
    plain = look(bench, model, prompts)
    del model
    model = make_model(bench, "llada")  # the same weights, layers not compiled
    quantise(model.core, kind, bench.device)
    if bench.full:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    ours = look(bench, model, prompts)
    name = f"{model.name}, {kind}"
    yield line(bench, "n", f"{name} against bf16, {len(prompts)} prompts", ours.probe, plain.probe, flops,
               PROBE_BAR[kind])  # fmt: skip
    least = STEP_BAR[kind]
    yield Line("n", f"{name} against bf16, batch 1, cache dual, a decoding step", "s", ours.step, plain.step,
               bar="" if least is None else f"ratio >= {least}",
               met=plain.step / ours.step >= least if bench.full and least is not None else None)  # fmt: skip
    share = ours.weights / plain.weights
    yield bound(bench, "n", f"{name}, weights held / bf16's", "share", share, 0.6)
    if kind == "int4":
        peak = torch.cuda.max_memory_allocated() / GIB if bench.full else None
        yield bound(bench, "n", f"{name}, probed and decoded, peak", "GiB", peak, 8.0)
    yield Line("n", f"{name}, logits: relative difference; plain: bf16 in another batch", "share",
               difference(ours.logits, plain.logits), noise)  # fmt: skip
