"""Asking a model many prompts: length-sorted ragged batches, one head row per prompt, records appended as it goes.

Under torchrun every process takes each n-th test point. What is recorded does not depend on the number of processes,
the batch size or interruptions.
"""

import math
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from maskwise.models.finite import refuse_nonfinite_rows
from maskwise.models.model import Model
from maskwise.models.text_model import TextModel
from maskwise.probes.answers.plain import DIGITS, Answer, ask
from maskwise.probes.blocks import visible_masks
from maskwise.probes.probe import Answerer, Item
from maskwise.records.folder import append
from maskwise.records.record import Record
from maskwise.support.errors import UserError
from maskwise.tasks.prompts import Prompt

P = TypeVar("P")
A = TypeVar("A")
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


def arrivals(
    prompts: Sequence[P], requests: int, answer: Callable[[Sequence[P]], list[A]]
) -> Iterator[tuple[int, list[A]]]:
    """(place of the prompt, its answer) as they arrive, with so many concurrent requests. If one fails, nothing more is
    sent, and the answers under way are still kept for a resumed run."""
    failed: BaseException | None = None
    pool = ThreadPoolExecutor(requests)
    sent: dict[Future[list[A]], int] = {pool.submit(answer, [one]): at for at, one in enumerate(prompts)}
    waiting = as_completed(sent)
    try:
        while sent:
            try:
                done = next(waiting)
                at, problem = sent.pop(done), done.exception()
            except KeyboardInterrupt as interrupt:
                done, problem = None, interrupt
            if done is not None and problem is None:
                yield at, done.result()
            else:
                failed = failed or problem
                sent = {one: place for one, place in sent.items() if not one.cancel()}
                waiting = as_completed(sent)
    finally:
        pool.shutdown(cancel_futures=True)
    if isinstance(failed, UserError):
        raise UserError(f"{failed.as_typed}; the answers so far are kept, the same command goes on from there")
    if failed is not None:
        raise failed


def record_items(
    model: Model,
    items: Sequence[Item],
    folder: Path,
    rank: int,
    budget: int,
    advance: Callable[[int], None],
    answer: Answerer | None = None,
) -> None:
    """Asks the items, longest first, and appends their records batch by batch; equal prompts are asked once."""
    answering = answer or ask
    same: dict[Prompt, list[Item]] = {}
    for item in items:
        same.setdefault(item.prompt, []).append(item)
    prompts = sorted(same, key=lambda prompt: -len(prompt.ids))
    if isinstance(model, TextModel):
        asking = arrivals(prompts, model.requests, lambda some: answering(model, some))
    else:
        asking = batches(prompts, budget, lambda some: answering(model, some))
    for first, answers in asking:
        for prompt, found in zip(prompts[first:], answers, strict=False):
            if not all(math.isfinite(value or 0.0) for value in (found.confidence, found.entropy, found.nll)):
                refuse_nonfinite_rows(model, prompt.ids, f"a prompt of the probe {same[prompt][0].key[0]}")
        asked = [
            (item, found)
            for prompt, found in zip(prompts[first : first + len(answers)], answers, strict=True)
            for item in same[prompt]
        ]
        append(folder, rank, [_record(model, item, found) for item, found in asked])
        advance(len(asked))


def batch_budget(model: Model, asked: int | None) -> int:
    if asked is not None and asked < 1:
        raise UserError(f"--batch-tokens must be at least 1, not {asked}")
    on_gpu = not isinstance(model, TextModel) and model.device.type == "cuda"
    return asked or (GPU_BATCH_TOKENS if on_gpu else CPU_BATCH_TOKENS)


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
        masks=(model.canvas or 0) if isinstance(model, TextModel) else item.prompt.masks,
        predicted=predicted,
        answer=item.answer,
        correct=same if written is None else written.right,
        confidence=_rounded(answer.confidence),
        entropy=_rounded(answer.entropy),
        nll=_rounded(answer.nll),
        offset=None if model.block is None else (item.prompt.start + item.prompt.row) % model.block,
        visible=None if model.block is None else visible_masks(model, item.prompt),
        nll_allowed=_rounded(answer.nll_allowed) if listed else None,
        nll_choice=_rounded(answer.nll_choice) if listed else None,
        evidence=answer.evidence or {},
    )


def _rounded(nats: float | None) -> float | None:
    return None if nats is None else round(nats, DIGITS)
