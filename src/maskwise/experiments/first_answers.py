"""The first token that a way of decoding writes after each question, on a canvas of 200 masks."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from maskwise.decoding.generate import Snapshot, generate
from maskwise.models.attention.ragged import KeyValues
from maskwise.models.batch import Batch
from maskwise.models.model import Model
from maskwise.probes.answers.changed_attention import ask_changed
from maskwise.probes.extra_tokens import BIASED, ChangedPrompt
from maskwise.records.groups import ColumnGroup, Group

MASKS = 200


class Marked(NamedTuple):
    """Whether the answer to a question was right."""

    task: str
    point: int
    correct: bool


@dataclass(frozen=True)
class PreparedQuestion:
    task: str
    point: int
    prompt: tuple[int, ...]
    answer_id: int


class _Answered(Exception):
    """Leaves `generate` once every answer of a batch is committed: later steps cannot change it."""


class Remembering(Model):
    """The same model; it remembers the last pass, because several mitigations begin by reading the same canvas."""

    def __init__(self, model: Model) -> None:
        self.__dict__.update(model.__dict__)
        self.last: tuple[tuple[list[int], list[int]], Tensor] | None = None

    def hidden(self, batch: Batch, cache: KeyValues | None = None) -> Tensor:
        if cache is not None or batch.ids is None or batch.embeds is not None:
            return super().hidden(batch, cache)
        read = batch.ids.tolist(), batch.offsets.tolist()
        if self.last is None or self.last[0] != read:
            self.last = read, super().hidden(batch)
        return self.last[1]


def answer(model: Model, questions: Sequence[PreparedQuestion], options: Mapping[str, Any], masks: int) -> list[Marked]:
    return marked(questions, first_tokens(model, [question.prompt for question in questions], options, masks))


def biased_answers(model: Model, questions: Sequence[PreparedQuestion]) -> list[Marked]:
    """One greedy step over MASKS masks; those beyond the second together have the attention weight of one."""
    assert model.mask_id is not None
    prompts = []
    for question in questions:
        start, length = len(question.prompt), len(question.prompt) + MASKS
        ids = (*question.prompt, *[model.mask_id] * MASKS)
        extra = tuple(range(start + 2, length))
        prompts.append(ChangedPrompt(ids, start, question.answer_id, MASKS, extra=extra, attention=BIASED))
    return marked(questions, [answer.token for answer in ask_changed(model, prompts)])


def marked(questions: Sequence[PreparedQuestion], tokens: Sequence[int | None]) -> list[Marked]:
    return [
        Marked(question.task, question.point, token == question.answer_id)
        for question, token in zip(questions, tokens, strict=True)
    ]


def first_tokens(
    model: Model, prompts: Sequence[Sequence[int]], options: Mapping[str, Any], masks: int
) -> list[int | None]:
    """The first token that `generate` writes after each prompt; it stops once all are known. A vote needs all
    steps."""
    if "vote" in options:
        return [one.ids[0] for one in generate(model, prompts, masks, **options)]
    found: list[int | None] = [None] * len(prompts)

    def watch(snapshot: Snapshot) -> None:
        for number, (prompt, canvas) in enumerate(zip(prompts, snapshot.canvases, strict=True)):
            if canvas[len(prompt)] != model.mask_id:
                found[number] = canvas[len(prompt)]
        if None not in found:
            raise _Answered

    with suppress(_Answered):
        generate(model, prompts, masks, on_step=watch, **options)
    return found


@dataclass(frozen=True)
class BothEnds:
    """With two masks by the model (None) and with each adapter, and with MASKS by each mitigation that was run."""

    two_masks: dict[int | None, list[Marked]]
    by_name: dict[str, list[Marked]]


def answer_columns(answers: Sequence[Marked]) -> Group:
    """The answers as records in columns, for intervals and tests."""
    tasks, points, correct = zip(*answers, strict=True)
    return ColumnGroup("", {}, tasks, points, {"correct": np.array(correct, dtype=float)})


def answer_tables(sides: Sequence[Sequence[Marked]]) -> dict[str, np.ndarray]:
    """[points, sides] of each task; all sides answered the same questions in the same order."""
    by_task: dict[str, list[list[float]]] = {}
    for same in zip(*sides, strict=True):
        by_task.setdefault(same[0].task, []).append([float(one.correct) for one in same])
    return {task: np.array(rows) for task, rows in by_task.items()}
