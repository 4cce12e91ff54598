"""Asking a model many prompts: length-sorted ragged batches, one head row per prompt, records appended as it goes.

Under torchrun every process takes each n-th test point. What is recorded does not depend on the number of processes,
the batch size or interruptions.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from maskwise.models.finite import refuse_nonfinite_rows
from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, ask
from maskwise.probes.blocks import visible_masks
from maskwise.probes.setup import Answerer, Item
from maskwise.records.folder import append
from maskwise.records.record import Record
from maskwise.support.errors import UserError
from maskwise.tasks.prompts import Prompt

CPU_BATCH_TOKENS, GPU_BATCH_TOKENS = 8192, 32768
MEETING = timedelta(minutes=10)  # for a process that was lost before all had met
WAITING = timedelta(days=7)  # the slowest process may finish hours later
PIECE = "\ufffd"  # the text of a token that holds a part of a character


@dataclass(frozen=True)
class Crew:
    """This process among those that share a run."""

    rank: int = 0
    size: int = 1
    group: Any = None  # torch's, whose barriers wait for days

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, points: Sequence[int]) -> Sequence[int]:
        return points[self.rank :: self.size]

    def wait(self) -> None:
        if self.group is not None:
            self.group.barrier().wait()


def own_device(device: str | None) -> str | None:
    """The device asked for; under torchrun on a machine with GPUs, the one of this process."""
    if device is None and "LOCAL_RANK" in os.environ and torch.cuda.is_available():
        return f"cuda:{os.environ['LOCAL_RANK']}"
    return device


@cache
def join_crew() -> Crew:
    """The processes torchrun started, or this one alone. Only barriers are exchanged, so gloo serves GPUs too."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return Crew()
    if not dist.is_initialized():
        dist.init_process_group("gloo", timeout=MEETING)
    return Crew(dist.get_rank(), size, dist.new_group(backend="gloo", timeout=WAITING))


def batches(
    prompts: Sequence[Prompt], budget: int, answer: Callable[[Sequence[Prompt]], list[Answer]]
) -> Iterator[tuple[int, list[Answer]]]:
    """(first prompt, answers) of consecutive batches of at most `budget` tokens, which halves when memory runs out."""
    first = 0
    while first < len(prompts):
        last, tokens = first + 1, len(prompts[first].ids)
        while last < len(prompts) and tokens + len(prompts[last].ids) <= budget:
            tokens += len(prompts[last].ids)
            last += 1
        try:
            answers = answer(prompts[first:last])
        except torch.OutOfMemoryError:
            if last - first == 1:
                raise UserError(
                    f"out of memory on one prompt of {tokens} tokens; use a smaller model, dtype or --batch-tokens"
                ) from None
            budget = tokens // 2
            torch.cuda.empty_cache()
            continue
        yield first, answers
        first = last


def record_items(
    model: Model,
    items: Sequence[Item],
    folder: Path,
    rank: int,
    budget: int,
    advance: Callable[[list[Item]], None],
    answer: Answerer | None = None,
) -> None:
    """Asks the items, longest first, and appends their records batch by batch; equal prompts are asked once."""
    answering = answer or ask
    same: dict[Prompt, list[Item]] = {}
    for item in items:
        same.setdefault(item.prompt, []).append(item)
    prompts = sorted(same, key=lambda prompt: -len(prompt.ids))
    for first, answers in batches(prompts, budget, lambda some: answering(model, some)):
        for prompt, found in zip(prompts[first:], answers, strict=False):
            if not all(math.isfinite(value) for value in (found.confidence, found.entropy, found.nll)):
                refuse_nonfinite_rows(model, prompt.ids, f"a prompt of the probe {same[prompt][0].key[0]}")
        asked = [
            (item, found)
            for prompt, found in zip(prompts[first : first + len(answers)], answers, strict=True)
            for item in same[prompt]
        ]
        append(folder, rank, [_record(model, item, found) for item, found in asked])
        advance([item for item, _ in asked])


def batch_budget(model: Model, asked: int | None) -> int:
    if asked is not None and asked < 1:
        raise UserError(f"--batch-tokens must be at least 1, not {asked}")
    return asked or (GPU_BATCH_TOKENS if model.device.type == "cuda" else CPU_BATCH_TOKENS)


def check_fit(model: Model, items: Sequence[Item], or_else: str = "") -> None:
    """Refuses prompts the model cannot hold before anything is asked; `or_else` is a first remedy to name."""
    longest = max(items, key=lambda item: item.prompt.start + len(item.prompt.ids), default=None)
    if longest is None:
        return
    length = longest.prompt.start + len(longest.prompt.ids)
    if length > model.window:
        probe, task, _, condition = longest.key
        raise UserError(
            f"a prompt of the probe {probe} ({task}, {condition}) has {length} tokens, the context length of "
            f"{model.name} is {model.window}; {or_else}leave the probe out with --probes"
        )
    model.check_sequence(longest.prompt.ids, f"the longest prompt ({longest.key[0]})")


def _record(model: Model, item: Item, answer: Answer) -> Record:
    probe, task, point, _ = item.key
    written = answer.written
    predicted = model.tokenizer.decode([answer.token]) if written is None else written.text
    # Texts are compared, but all parts of characters decode to the same text.
    same = answer.token == item.prompt.answer_id or (predicted == item.answer and PIECE not in predicted)
    listed = answer.nll_allowed is not None and answer.nll_choice is not None
    return Record(
        model=model.name,
        probe=probe,
        task=task,
        point=point,
        condition=item.condition,
        masks=item.prompt.masks,
        predicted=predicted,
        answer=item.answer,
        correct=same if written is None else written.right,
        confidence=round(answer.confidence, DIGITS),
        entropy=round(answer.entropy, DIGITS),
        nll=round(answer.nll, DIGITS),
        offset=None if model.block is None else (item.prompt.start + item.prompt.row) % model.block,
        visible=None if model.block is None else visible_masks(model, item.prompt),
        nll_allowed=_rounded(answer.nll_allowed) if listed else None,
        nll_choice=_rounded(answer.nll_choice) if listed else None,
        evidence=answer.evidence or {},
    )


def _rounded(nats: float | None) -> float | None:
    return None if nats is None else round(nats, DIGITS)
