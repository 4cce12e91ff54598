"""Row n: weights in fp8 against bf16 of the same model: time, memory, and what rounding does to the logits."""

from collections.abc import Iterator
from typing import NamedTuple

import torch

from benchmarks.decode import BLOCK, NEW, TOY_BLOCK, TOY_NEW, our_steps
from benchmarks.measure import GIB, Bench, Line, Timing, bound, difference, forward_flops, line, timed
from benchmarks.moe import LENGTHS, TOY_LENGTHS, answers
from benchmarks.shapes import make_model, random_ids
from maskwise.models.families.quantise import quantise
from maskwise.models.model import Model

PROBE_BAR, STEP_BAR = 1.35, 1.4
STEP_TO_READING = 1.5


class Step(NamedTuple):
    """Seconds a step of a block."""

    whole: float  # with its share of the pass that fills the block's cache
    later: float  # of those after it


def step_seconds(bench: Bench, model: Model) -> Step:
    new, block = (NEW, BLOCK) if bench.full else (TOY_NEW, TOY_BLOCK)
    (prompt,) = random_ids([1000 if bench.full else 20], model, seed=1)

    def spent(first: int) -> float:
        return our_steps(bench, model, [prompt], new, block, "blocks", "dual", first, 2 * block)[0]

    for _ in range(3):  # until all passes are recorded
        whole = spent(block)
    return Step(whole / block, spent(block + 1) / (block - 1))


def read_rate(bench: Bench) -> float:
    """TB/s of a large sum, inside one CUDA graph: launches do not count."""
    size, repeats = 2**31 if bench.full else 2**20, 4
    numbers = torch.ones(size // 4, device=bench.device)

    def all_of_them() -> None:
        for _ in range(repeats):
            numbers.sum()

    all_of_them()
    if not bench.full:
        return size * repeats / timed(bench.device, all_of_them).seconds / 1e12
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        all_of_them()
    return size * repeats / timed(bench.device, graph.replay, repeats=5).seconds / 1e12


def read_weights(bench: Bench, model: Model) -> float:
    """Seconds to read what a step reads, all weights but the embedding's, at the rate of a large sum."""
    embedding = model.core.get_input_embeddings().weight
    total = sum(one.numel() * one.element_size() for one in model.parameters() if one is not embedding)
    return total / read_rate(bench) / 1e12


def held(model: Model) -> float:
    """GiB of weights."""
    return sum(weight.numel() * weight.element_size() for weight in model.parameters()) / GIB


def step_line(bench: Bench, case: str, ours: float, plain: float, least: float | None) -> Line:
    return Line(
        "n",
        case,
        "s",
        ours,
        plain,
        bar="" if least is None else f"ratio >= {least}",
        met=plain / ours >= least if bench.full and least is not None else None,
    )


def fewer_bits(bench: Bench) -> Iterator[Line]:
    model = make_model(bench, "llada")
    prompts = random_ids(LENGTHS if bench.full else TOY_LENGTHS, model)
    flops = forward_flops(model, [len(prompt) for prompt in prompts], len(prompts))

    def probe() -> Timing:
        return timed(bench.device, lambda: answers(model, prompts))

    expected, weights, step = answers(model, prompts), held(model), step_seconds(bench, model)
    noise = difference(torch.cat([answers(model, [one]) for one in prompts[:4]]), expected[:4])
    if bench.full:
        model.compile_layers()  # as `diagnose` does it
    plain, compiled_step = probe(), step_seconds(bench, model) if bench.full else None
    if compiled_step is not None:
        ratio = compiled_step.later / read_weights(bench, model)
        yield bound(
            bench,
            "n",
            f"{model.name}, bf16, a step after the first of its block / reading its weights",
            "x",
            ratio,
            STEP_TO_READING,
        )
    model = make_model(bench, "llada")  # the same weights, layers not compiled
    quantise(model.core, bench.device)
    name, found = f"{model.name}, fp8", answers(model, prompts)
    yield Line(
        "n",
        f"{name}, logits: relative difference; plain: bf16 in another batch",
        "share",
        difference(found, expected),
        noise,
    )
    yield bound(bench, "n", f"{name}, weights held / bf16's", "share", held(model) / weights, 0.6)
    case = f"{name} against bf16, batch 1, cache dual, a decoding step"
    bar = None if bench.full else STEP_BAR
    yield step_line(bench, f"{case}, layers not compiled", step_seconds(bench, model).whole, step.whole, bar)
    yield line(bench, "n", f"{name}, layers not compiled, against bf16, {len(prompts)} prompts", probe(), plain, flops)
    if bench.full:
        model.compile_layers()
    if compiled_step is not None:
        found_step = step_seconds(bench, model)
        yield step_line(bench, case, found_step.whole, compiled_step.whole, STEP_BAR)
        yield step_line(bench, f"{case} after the first of its block", found_step.later, compiled_step.later, None)
    yield line(bench, "n", f"{name} against bf16, {len(prompts)} prompts", probe(), plain, flops, PROBE_BAR)
