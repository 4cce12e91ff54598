"""Row l: experts at LLaDA2-mini's shape, in grouped products over the sorted tokens against a loop over the experts."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from benchmarks.decode import BLOCK, NEW, TOY_BLOCK, TOY_NEW, our_steps
from benchmarks.measure import (
    Bench,
    Line,
    Timing,
    bound,
    check_close,
    difference,
    forward_flops,
    line,
    timed,
    tolerance,
)
from benchmarks.shapes import make_model, random_ids
from maskwise.models.attention.ragged import attend
from maskwise.models.batch import Batch
from maskwise.models.families.experts import Experts
from maskwise.models.model import Model

LENGTHS = [1140 + 15 * number for number in range(16)]  # as the prompts of row a
TOY_LENGTHS = [20, 17]


@contextmanager
def one_by_one(model: Model) -> Iterator[None]:
    """Inside, every expert has a product of its own, as in the published code."""
    mixtures = [module for module in model.core.modules() if isinstance(module, Experts)]
    for module in mixtures:
        module.grouped = None
        module.lay_out = lambda: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        for module in mixtures:
            del module.lay_out


@torch.no_grad()
def answers(model: Model, prompts: list[list[int]]) -> Tensor:
    """Logits of the last row of each prompt in one pass, [prompts, V]."""
    batch = Batch.pack(prompts, model.device)
    return model(batch, model.flat_rows(batch, [[len(prompt) - 1] for prompt in prompts]))


@torch.no_grad()
def same_products(bench: Bench, model: Model) -> None:
    """Each layer's experts on the same rows: in bf16 a whole pass may choose other experts where two are as good."""
    width, draws = model.core.config.hidden_size, torch.Generator(bench.device).manual_seed(0)
    for count in (1, 32, 1000):
        x = torch.randn(count, width, generator=draws, device=bench.device).to(model.dtype)
        for module in (module for module in model.core.modules() if isinstance(module, Experts)):
            module.lay_out()
            assert module.grouped is not None, "no grouped product"
            ours, module.grouped = module(x), None
            with torch.enable_grad():  # the sum in PyTorch's own operations too
                loop = module(x)
            check_close("experts", ours, loop, tolerance(bench))


def same_attention(bench: Bench, model: Model, lengths: list[int]) -> None:
    """Attention over blocks as passes without gradients take it, against a mask over all keys."""
    config, draws = model.core.config, torch.Generator(bench.device).manual_seed(0)
    batch = Batch.pack(random_ids(lengths, model), bench.device)
    shapes = (
        (batch.tokens, heads, config.head_dim)
        for heads in (config.num_attention_heads, *[config.num_key_value_heads] * 2)
    )
    q, k, v = (torch.randn(s, generator=draws, device=bench.device).to(model.dtype) for s in shapes)
    with torch.no_grad():
        ours = attend(q, k, v, model._layout(batch, None), config.head_dim**-0.5)
    with torch.enable_grad():
        layout = model._layout(batch, None)
    assert layout.blocks is None
    check_close("attention", ours, attend(q, k, v, layout, config.head_dim**-0.5), 1e-2 if bench.full else 1e-6)


def block_of_steps(bench: Bench, model: Model, prompt: list[int]) -> tuple[float, list[list[int]]]:
    """Seconds of the second block, its first pass included, and the canvas after it."""
    new, block = (NEW, BLOCK) if bench.full else (TOY_NEW, TOY_BLOCK)
    return our_steps(bench, model, [prompt], new, block, "blocks", "dual", block, 2 * block)


def decoding_lines(bench: Bench, model: Model) -> Iterator[Line]:
    (prompt,) = random_ids([1024 if bench.full else 24], model, seed=1)  # whole blocks of the model
    block_of_steps(bench, model, prompt)
    ours, canvas = block_of_steps(bench, model, prompt)
    with one_by_one(model):
        loop, expected = block_of_steps(bench, model, prompt)
    if not bench.full:  # in bf16 near ties part ways
        assert canvas == expected, "other tokens"
    steps = BLOCK if bench.full else TOY_BLOCK
    yield Line(
        "l",
        f"{model.name}, batch 1, cache dual, a decoding step",
        "s",
        ours / steps,
        loop / steps,
        bar="ratio >= 3",
        met=loop / ours >= 3 if bench.full else None,
    )


def moe(bench: Bench) -> Iterator[Line]:
    model = make_model(bench, "llada2")
    prompts = random_ids(LENGTHS if bench.full else TOY_LENGTHS, model)
    flops = forward_flops(model, [len(prompt) for prompt in prompts], len(prompts))

    def probe() -> Timing:
        return timed(bench.device, lambda: answers(model, prompts))

    same_attention(bench, model, [130, 70, 1, 64] if bench.full else TOY_LENGTHS)
    same_products(bench, model)
    ours, found = probe(), answers(model, prompts)
    with one_by_one(model):
        loop, expected = timed(bench.device, lambda: answers(model, prompts), repeats=1), answers(model, prompts)
    yield Line("l", f"{model.name}, logits: relative difference from the loop", "share", difference(found, expected))
    yield line(bench, "l", f"{model.name}, {len(prompts)} prompts, layers not compiled", ours, loop, flops)
    yield from decoding_lines(bench, model)
    if bench.full:
        model.compile_layers()
        ours, found = probe(), answers(model, prompts)
        yield Line("l", f"{model.name}, compiled, logits: relative difference", "share", difference(found, expected))
        yield line(bench, "l", f"{model.name}, {len(prompts)} prompts", ours, loop, flops)
    share = flops / ours.seconds / bench.ceiling
    yield bound(bench, "l", f"{model.name}, share of the ceiling, active weights", "MFU", share, 0.5, least=True)
