"""Row f: decoding steps after a prompt of 1000 tokens, 256 masks, blocks of 32, timed over one block."""

import statistics
import time
from collections.abc import Iterator
from contextlib import suppress

import torch
from torch import Tensor

from benchmarks import plain
from benchmarks.measure import GIB, Bench, Line, check_close, forward_flops, synchronize, timed, tolerance
from benchmarks.shapes import make_model, random_ids
from maskwise.decoding import replay
from maskwise.decoding.canvas import Frame, Sheet
from maskwise.decoding.generate import Snapshot, generate
from maskwise.models.batch import Batch
from maskwise.models.families.packing import packed_products
from maskwise.models.model import Model

# canvas, cache, bar
WAYS = (("blocks", "none", 1.1), ("blocks", "prefix", 3.5), ("blocks", "dual", 6.0), ("growing", "none", None))
NEW, BLOCK = 256, 32
TOY_NEW, TOY_BLOCK = 12, 4


class Enough(Exception):
    """Raised by the callback once the steps to be timed are over."""


def our_steps(
    bench: Bench,
    model: Model,
    prompts: list[list[int]],
    new: int,
    block: int,
    canvas: str,
    cache: str,
    first: int,
    last: int,
    at_once: int = 1,
) -> tuple[float, list[list[int]]]:
    """Seconds of the steps first..last - 1 of `at_once` tokens each, and the canvases after them."""
    marks: list[float] = []
    canvases: list[list[int]] = []

    def look(seen: Snapshot) -> None:
        if seen.step + 1 in (first, last):
            synchronize(bench.device)
            marks.append(time.perf_counter())
        if seen.step + 1 == last:
            canvases.extend(seen.canvases)
            raise Enough

    with suppress(Enough):
        generate(model, prompts, new, new // at_once, block, canvas=canvas, cache=cache, on_step=look)
    return marks[1] - marks[0], canvases


@torch.no_grad()
def plain_steps(model: Model, prompt: list[int], new: int, block: int, steps: int) -> list[int]:
    """The published loop: every logit of the whole canvas in every step, a float64 softmax, one token committed."""
    x = torch.tensor([[*prompt, *[model.mask_id or 0] * new]], device=model.device)
    for step in range(steps):
        logits = plain_logits(model, x)
        tokens = logits.argmax(-1)
        sure = logits.double().softmax(-1).gather(-1, tokens[..., None])[..., 0]
        start = len(prompt) + step // block * block
        places = torch.arange(x.shape[1], device=x.device)
        active = (x == model.mask_id) & (places >= start) & (places < start + block)
        best = sure.masked_fill(~active, -torch.inf).topk(1).indices[0]
        x[0, best] = tokens[0, best]
    return x[0].tolist()


def plain_logits(model: Model, x: Tensor) -> Tensor:
    """[1, L] -> [1, L, V], row i speaking of position i."""
    logits = plain.logits(model, x).float()
    logits[..., model.mask_id] = -torch.inf
    return torch.cat([logits[:, :1], logits[:, :-1]], dim=1) if model.shift else logits


@torch.no_grad()
def check_first_step(bench: Bench, model: Model, prompt: list[int], new: int) -> None:
    canvas = [*prompt, *[model.mask_id or 0] * new]
    batch = Batch.pack([canvas], bench.device)
    rows = list(range(len(prompt), len(canvas)))
    ours = model(batch, model.flat_rows(batch, [rows]))
    check_close(
        "first step", ours, plain_logits(model, torch.tensor([canvas], device=bench.device))[0, rows], tolerance(bench)
    )


@torch.no_grad()
def check_replay(bench: Bench, model: Model, prompts: list[list[int]], new: int, block: int) -> None:
    """Passes that come back, recorded on CUDA, against the ordinary pass, with the spans moved in between."""
    assert model.mask_id is not None
    sheet = Sheet.lay(prompts, new, model.mask_id, bench.device)
    everyone = range(len(prompts))
    passes = replay.Passes(model)
    cache, other = passes.new_cache(sheet.lengths), model.new_cache(sheet.lengths)
    for one in (cache, other):
        model.hidden(Frame.of(sheet, everyone, [(0, length) for length in sheet.lengths]).batch(sheet), one)
    for number in range(new // block):
        frame = Frame.of(sheet, everyone, [(len(p) + number * block, len(p) + (number + 1) * block) for p in prompts])
        for _ in range(replay.UNRECORDED):
            again = passes.hidden(frame.batch(sheet), cache).clone()
            check_close("replayed pass", again, model.hidden(frame.batch(sheet), other), 1e-2 if bench.full else 1e-6)
        sheet.ids[frame.index[::3]] = 1 + number  # the canvas changes under the pass


def check_passes(bench: Bench, model: Model, prompts: list[list[int]], new: int, block: int) -> None:
    """As `generate` takes them: query, key and value in one product."""
    with packed_products(model.core):
        check_first_step(bench, model, prompts[0], new)
        check_replay(bench, model, prompts, new, block)


def plain_block(bench: Bench, model: Model, prompt: list[int], new: int, block: int) -> float:
    """Seconds of a block's steps."""
    plain_steps(model, prompt, new, block, 2)
    return timed(bench.device, lambda: plain_steps(model, prompt, new, block, block), warm=0).seconds


def ways(bench: Bench, model: Model, prompts: list[list[int]], one: float) -> Iterator[Line]:
    """A line for each way to decode; `one` is plain's block of one request, and a batch takes them one by one."""
    new, block = (NEW, BLOCK) if bench.full else (TOY_NEW, TOY_BLOCK)
    size, theirs = len(prompts), len(prompts) * one
    flops = block * forward_flops(model, [len(prompt) + new for prompt in prompts], size * block // 2)
    for canvas, cache, bar in WAYS:
        # A cached block is timed from the pass that fills its cache; without one, steps cost the same from the start.
        first, warm = (1, 2) if cache == "none" else (block, block)
        if bench.full:
            torch.cuda.reset_peak_memory_stats()
        spent = [
            our_steps(bench, model, prompts, new, block, canvas, cache, first, first + steps)[0]
            for steps in (warm, block, block)
        ]
        seconds = statistics.median(spent[1:])
        exact = canvas == "blocks" and cache == "none"
        case = f"{model.name}, batch {size}, canvas {canvas}, cache {cache}, {block} steps"
        yield Line(
            "f",
            case,
            "s",
            seconds,
            theirs,
            mfu=flops / seconds / bench.ceiling if exact else None,
            plain_mfu=flops / theirs / bench.ceiling if exact else None,
            peak=torch.cuda.max_memory_allocated() / GIB if bench.full else None,
            bar="" if bar is None else f"ratio >= {bar}",
            met=theirs / seconds >= bar if bench.full and bar is not None else None,
        )


def decoding(bench: Bench, kind: str) -> Iterator[Line]:
    model = make_model(bench, kind)
    new, block = (NEW, BLOCK) if bench.full else (TOY_NEW, TOY_BLOCK)
    prompts = random_ids([1000, 968, 1031, 985, 1017, 990, 1008, 1001] if bench.full else [20, 17], model)
    check_passes(bench, model, prompts, new, block)
    if not bench.full:  # in float32 even the order of near ties is the same
        _, ours = our_steps(bench, model, prompts, new, block, "blocks", "none", 1, 2 * block)
        assert ours == [plain_steps(model, prompt, new, block, 2 * block) for prompt in prompts], "other tokens"
    one = plain_block(bench, model, prompts[0], new, block)
    if bench.full:
        model.compile_layers()
        check_passes(bench, model, prompts, new, block)
    yield from ways(bench, model, prompts[:1], one)
    yield from ways(bench, model, prompts, one)
