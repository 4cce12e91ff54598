"""Rows a and a': the mask-count probe end to end, from questions to records on disk. Row r: whole probes."""

import io
import tempfile
import time
from collections.abc import Iterator
from contextlib import redirect_stderr
from functools import partial
from pathlib import Path

import torch

from benchmarks import plain
from benchmarks.measure import Bench, Line, bound, check_close, forward_flops, line, synchronize, timed, tolerance
from benchmarks.pass_counter import counting
from benchmarks.shapes import make_model
from maskwise.models.model import Model
from maskwise.probes.answers.plain import ask
from maskwise.probes.few_shot import few_shot_items
from maskwise.probes.probe import Asker, Unit, Variant
from maskwise.runs.diagnose import ask_units, diagnose
from maskwise.runs.runner import Crew
from maskwise.runs.settings import chosen_settings
from maskwise.tasks.episodes import draw
from maskwise.tasks.prompts import Prompt, filler_id
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

Size = tuple[int, int, tuple[int, ...]]  # relevant examples, distractors, mask counts

SIXTEEN = 16  # prompts a pass: 4 test points under 4 mask counts
LONG: Size = (6, 40, (1, 60, 130, 240))  # 1140 to 1380 tokens
SHORT: Size = (2, 0, (1, 40, 80, 130))  # 66 to 195 tokens
TOY_LONG: Size = (2, 1, (1, 9))
TOY_SHORT: Size = (1, 0, (1, 4))
WHOLE = ("templates", "confidence", "self-correction", "trajectory")
LONGEST_PROBE = 180.0  # seconds, at its default size


def probe_units(model: Model, size: Size, tasks: int, points: int) -> list[Unit]:
    relevant, distractors, masks = size
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, "."))
    variants = [Variant("mask-count", {"masks": k}, open=True, masks=k) for k in masks]
    words = load_words()
    episodes = [draw(task, words, relevant, distractors, points) for task in TASKS[:tasks]]
    return [
        Unit(range(points), len(variants), partial(few_shot_items, asker, lambda _, one=episode: one, variants))
        for episode in episodes
    ]


def prompts_of(units: list[Unit]) -> list[Prompt]:
    return [item.prompt for unit in units for item in unit.items(unit.points, set())]


def run_ours(model: Model, units: list[Unit], budget: int) -> None:
    with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()):
        ask_units(model, units, Path(folder), Crew(), set(), budget)


@torch.no_grad()
def plain_answers(model: Model, prompts: list[Prompt], together: int) -> list[float]:
    """-log p of the answers; `together` = 1 is one prompt at a time, more a padded batch with a dense mask."""
    answers = []
    for group in batched(prompts, together):
        ids, seen = plain.pad([list(prompt.ids) for prompt in group], model.device)
        every = plain.logits(model, ids, seen if together > 1 else None)
        for logits, prompt in zip(every, group, strict=True):
            row = logits[max(prompt.row - int(model.shift), 0)].float()
            row[model.mask_id] = -torch.inf
            answers.append(-row.log_softmax(-1)[prompt.answer_id].item())
    return answers


def batched(prompts: list[Prompt], size: int) -> Iterator[list[Prompt]]:
    for first in range(0, len(prompts), size):
        yield prompts[first : first + size]


def run_plain(model: Model, units: list[Unit], together: int) -> None:
    plain_answers(model, prompts_of(units), together)


def same_answers(bench: Bench, model: Model, prompts: list[Prompt], together: int) -> None:
    ours = torch.tensor([answer.nll for answer in ask(model, prompts)])
    check_close("answers", ours, torch.tensor(plain_answers(model, prompts, together)), tolerance(bench))


def probe_lines(
    bench: Bench, row: str, kind: str, sizes: tuple[Size, Size], bars: tuple[float | None, float | None]
) -> Iterator[Line]:
    model = make_model(bench, kind)
    units = probe_units(model, sizes[0] if bench.full else sizes[1], *((3, 4) if bench.full else (1, 2)))
    prompts = prompts_of(units)
    lengths = [len(prompt.ids) for prompt in prompts]
    budget = max(sum(lengths[i : i + SIXTEEN]) for i in range(0, len(lengths), SIXTEEN))
    flops = forward_flops(model, lengths, len(prompts))
    same_answers(bench, model, prompts[:SIXTEEN], 1)
    one = timed(bench.device, lambda: run_plain(model, units, 1))
    padded = timed(bench.device, lambda: run_plain(model, units, SIXTEEN))
    eager = timed(bench.device, lambda: run_ours(model, units, budget))
    if bench.full:
        yield line(bench, row, f"{model.name}, layers not compiled, against one at a time", eager, one, flops)
        model.compile_layers()
        same_answers(bench, model, prompts[:SIXTEEN], SIXTEEN)
    ours = timed(bench.device, lambda: run_ours(model, units, budget)) if bench.full else eager
    yield line(bench, row, f"{model.name}, against one at a time, all logits", ours, one, flops, bars[0])
    yield line(bench, row, f"{model.name}, against a padded batch, dense mask", ours, padded, flops, bars[1])
    if row == "a":
        share = flops / ours.seconds / bench.ceiling
        yield bound(bench, row, f"{model.name}, share of the ceiling", "MFU", share, 0.78, least=True)
        yield bound(bench, row, f"{model.name}, peak at {SIXTEEN} prompts", "GiB", ours.peak, 20.0)


def long_prompts(bench: Bench, kind: str) -> Iterator[Line]:
    return probe_lines(bench, "a", kind, (LONG, TOY_LONG), (1.1, 1.4))


def short_prompts(bench: Bench) -> Iterator[Line]:
    return probe_lines(bench, "a'", "llada", (SHORT, TOY_SHORT), (2.0, None))


def whole_probes(bench: Bench) -> Iterator[Line]:
    """Each probe once, from `diagnose` to its records, compilation included; the default size on CUDA, else --quick.

    Random weights never reach a threshold, so adaptive strategies commit one token per step: the most passes there are.
    """
    model = make_model(bench, "llada")
    for name in WHOLE:
        settings = chosen_settings("default" if bench.full else "quick", name)
        start = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder, redirect_stderr(io.StringIO()), counting() as counter:
            diagnose(model, settings, Path(folder) / "run")
        synchronize(bench.device)
        case = f"{model.name}, {name}: {counter.tokens:,} tokens in {counter.passes:,} passes"
        yield bound(bench, "r", case, "s", time.perf_counter() - start, LONGEST_PROBE)
