"""Row a: the mask-count probe end to end, from questions to records on disk."""

import io
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stderr
from pathlib import Path
from types import SimpleNamespace

import torch

from benchmarks import plain
from benchmarks.measure import Bench, Line, bound, check_close, forward_flops, line, timed, tolerance
from benchmarks.shapes import make_model
from maskwise.models.model import Model
from maskwise.probes.answers.plain import ask
from maskwise.probes.questions import FewShot, Questions, units_of_questions
from maskwise.probes.setup import Asker, Unit
from maskwise.runs.diagnose import ask_units
from maskwise.runs.runner import Crew
from maskwise.tasks.episodes import draw
from maskwise.tasks.prompts import Prompt, filler_id, opened
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

Size = tuple[int, int, tuple[int, ...]]  # relevant examples, distractors, mask counts

SIXTEEN = 16  # prompts a pass: 4 test points under 4 mask counts
LONG: Size = (6, 40, (1, 60, 130, 240))  # 1140 to 1380 tokens
TOY_LONG: Size = (2, 1, (1, 9))


def probe_units(model: Model, size: Size, tasks: int, points: int) -> list[Unit]:
    relevant, distractors, masks = size
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, "."))
    conditions = [{"masks": k} for k in masks]
    asked = []
    for task in TASKS[:tasks]:
        episode = draw(task, load_words(), relevant, distractors, points)
        source = FewShot(task.name, range(points), relevant, asker, episode, lambda _, one=episode: one)

        def prompt(point: int, condition: dict[str, int], source: FewShot = source) -> Prompt:
            return opened(source.encoded(point), asker.mask_id, condition["masks"])

        asked.append(("mask-count", Questions(source, conditions, prompt, source.answer)))
    return units_of_questions(SimpleNamespace(model=model, asker=asker), asked)  # type: ignore[arg-type]


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


def long_prompts(bench: Bench, kind: str) -> Iterator[Line]:
    model = make_model(bench, kind)
    units = probe_units(model, LONG if bench.full else TOY_LONG, *((3, 4) if bench.full else (1, 2)))
    prompts = prompts_of(units)
    lengths = [len(prompt.ids) for prompt in prompts]
    budget = max(sum(lengths[i : i + SIXTEEN]) for i in range(0, len(lengths), SIXTEEN))
    flops = forward_flops(model, lengths, len(prompts))
    same_answers(bench, model, prompts[:SIXTEEN], 1)
    one = timed(bench.device, lambda: run_plain(model, units, 1))
    padded = timed(bench.device, lambda: run_plain(model, units, SIXTEEN))
    eager = timed(bench.device, lambda: run_ours(model, units, budget))
    if bench.full:
        yield line(bench, "a", f"{model.name}, layers not compiled, against one at a time", eager, one, flops)
        model.compile_layers()
        same_answers(bench, model, prompts[:SIXTEEN], SIXTEEN)
    ours = timed(bench.device, lambda: run_ours(model, units, budget)) if bench.full else eager
    yield line(bench, "a", f"{model.name}, against one at a time, all logits", ours, one, flops, 1.1)
    yield line(bench, "a", f"{model.name}, against a padded batch, dense mask", ours, padded, flops, 1.4)
    share = flops / ours.seconds / bench.ceiling
    yield bound(bench, "a", f"{model.name}, share of the ceiling", "MFU", share, 0.78, least=True)
    yield bound(bench, "a", f"{model.name}, peak at {SIXTEEN} prompts", "GiB", ours.peak, 20.0)
