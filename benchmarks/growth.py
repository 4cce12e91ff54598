"""Row h: how a probe pass and a tuning step grow with length and with batch."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch

from benchmarks import plain
from benchmarks.measure import Bench, Line, Timing, forward_flops, timed
from benchmarks.shapes import make_model, random_ids
from benchmarks.step import adapted, our_loss, trained, views_of
from maskwise.models.model import Model
from maskwise.probes.answers.plain import ask
from maskwise.tasks.prompts import Prompt


def probe_growth(bench: Bench) -> Iterator[Line]:
    lengths, counts, middle, few = sizes(bench)
    model = compiled(bench, make_model(bench, "llada"))
    yield from _curve(bench, "probe pass", f"batch {few}, tokens", lengths, lambda n: _probe(bench, model, n, few))
    yield from _curve(bench, "probe pass", f"{middle} tokens, batch", counts, lambda n: _probe(bench, model, middle, n))


def step_over_tokens(bench: Bench) -> Iterator[Line]:
    lengths, _, _, _ = sizes(bench)
    model = tuned(bench)
    yield from _curve(bench, "tuning step", "3 pairs, tokens", lengths, lambda n: _step(bench, model, n, 3))


def step_over_pairs(bench: Bench) -> Iterator[Line]:
    _, counts, middle, _ = sizes(bench)
    model = tuned(bench)
    yield from _curve(bench, "tuning step", f"{middle} tokens, pairs", counts, lambda n: _step(bench, model, middle, n))


def tuned(bench: Bench) -> Model:
    """With checkpointing, so that the largest fit."""
    model = compiled(bench, adapted(bench, "llada"))
    model.core.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    return model


def sizes(bench: Bench) -> tuple[Sequence[int], Sequence[int], int, int]:
    """Lengths, batches, the length at which batches grow, and the batch at which lengths do."""
    return ((512, 1024, 2048, 4096), (1, 4, 16, 64), 1024, 8) if bench.full else ((16, 32, 64), (1, 2, 4), 32, 2)


def compiled(bench: Bench, model: Model) -> Model:
    if bench.full:
        model.compile_layers()
    return model


Point = tuple[Timing, float | None, float]  # ours, seconds of plain (None where it was not run), operations


def _curve(bench: Bench, work: str, what: str, sizes: Sequence[int], point: Callable[[int], Point]) -> list[Line]:
    """A line a size, up to the first that does not fit, and the exponent of time over size."""
    lines = []
    for size in sizes:
        try:
            ours, plain_seconds, flops = point(size)
        except torch.OutOfMemoryError:
            break
        lines.append(
            Line(
                "h",
                f"{work}, {what} {size}",
                "s",
                ours.seconds,
                plain_seconds,
                mfu=flops / ours.seconds / bench.ceiling,
                peak=ours.peak,
            )
        )
    fitted = exponent(sizes[: len(lines)], [entry.ours for entry in lines if entry.ours is not None])
    plain_points = [entry.plain for entry in lines if entry.plain is not None]
    whole = len(plain_points) == len(lines)
    plain_fit = exponent(sizes[: len(lines)], plain_points) if whole else None
    return [*lines, Line("h", f"{work}, {what}: exponent", "power", fitted, plain_fit)]


def exponent(sizes: Sequence[int], seconds: Sequence[float]) -> float | None:
    """Slope of the least-squares line through the logarithms, where there are two points."""
    if len(seconds) < 2:
        return None
    x, y = ([math.log(value) for value in values] for values in (sizes, seconds))
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / sum((a - mean_x) ** 2 for a in x)


def _probe(bench: Bench, model: Model, length: int, count: int) -> Point:
    prompts = [Prompt(tuple(ids), length // 2, 5, 0) for ids in random_ids([length] * count, model)]
    ours = timed(bench.device, lambda: ask(model, prompts))

    @torch.no_grad()
    def one_at_a_time() -> None:
        for prompt in prompts:
            plain.logits(model, torch.tensor([prompt.ids], device=bench.device))[0, prompt.row].float().argmax().item()

    flops = forward_flops(model, [length] * count, count)
    return ours, timed(bench.device, one_at_a_time, repeats=1).seconds, flops


def _step(bench: Bench, model: Model, length: int, pairs: int) -> Point:
    """Every pair three quarters of `length`, the rest room for masks."""
    answer = length // 8
    views = views_of(model, [(length * 5 // 8, answer)] * pairs, length, length // 4)

    def step() -> None:
        our_loss(bench, model, views).backward()
        for weight in trained(model):
            weight.grad = None

    lengths = [len(ids) for view in views for ids in (view.first, view.second)]
    rows = 2 * sum(len(view.rows) for view in views)
    # The largest takes ten seconds: there one time after the warm-up must do.
    repeats = 3 if length * pairs <= 2**14 else 1
    return timed(bench.device, step, repeats=repeats), None, 2 * forward_flops(model, lengths, rows)
