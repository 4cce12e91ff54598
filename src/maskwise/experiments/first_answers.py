"""The first token that a way of decoding writes after each question, on a canvas of 200 masks, and what it measures."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET, structs
from torch import Tensor

from maskwise.decoding.generate import Snapshot, generate
from maskwise.models.attention.ragged import KeyValues
from maskwise.models.batch import Batch
from maskwise.models.model import Model
from maskwise.probes.answers.changed_attention import ask_changed
from maskwise.probes.extra_tokens import BIASED, ChangedPrompt
from maskwise.records.groups import ColumnGroup, Group
from maskwise.scoring.changes import paired_difference, paired_nats, recovered_share
from maskwise.scoring.experiment_results import Accuracy, MitigationResult
from maskwise.scoring.intervals import accuracy_interval, means_of
from maskwise.support.grouping import grouped

MASKS = 200


class Marked(NamedTuple):
    """Whether the answer to a question was right. nll: negative log-likelihood of the right answer in the step that
    wrote one, in nats."""

    task: str
    point: int
    correct: bool
    nll: float | None = None


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


class FirstToken(NamedTuple):
    """What was written right after a prompt, and the log-probabilities of all tokens there in that step, [V]."""

    token: int | None = None
    log_p: Tensor | None = None

    def nll(self, right: int) -> float | None:
        """Of the right token; None where the model gave no finite number."""
        nats = math.nan if self.log_p is None else -float(self.log_p[right])
        return nats if math.isfinite(nats) else None


def answer(model: Model, questions: Sequence[PreparedQuestion], options: Mapping[str, Any], masks: int) -> list[Marked]:
    written = first_tokens(model, [question.prompt for question in questions], options, masks)
    return [
        Marked(question.task, question.point, one.token == question.answer_id, one.nll(question.answer_id))
        for question, one in zip(questions, written, strict=True)
    ]


def biased_answers(model: Model, questions: Sequence[PreparedQuestion]) -> list[Marked]:
    """One greedy step over MASKS masks; those beyond the second together have the attention weight of one."""
    assert model.mask_id is not None
    prompts = []
    for question in questions:
        start, length = len(question.prompt), len(question.prompt) + MASKS
        ids = (*question.prompt, *[model.mask_id] * MASKS)
        extra = tuple(range(start + 2, length))
        prompts.append(ChangedPrompt(ids, start, question.answer_id, MASKS, extra=extra, attention=BIASED))
    return [
        Marked(question.task, question.point, one.token == question.answer_id, one.nll)
        for question, one in zip(questions, ask_changed(model, prompts), strict=True)
    ]


def first_tokens(
    model: Model, prompts: Sequence[Sequence[int]], options: Mapping[str, Any], masks: int
) -> list[FirstToken]:
    """The first token that `generate` writes after each prompt; it stops once all are known."""
    found = [FirstToken() for _ in prompts]

    def watch(snapshot: Snapshot) -> None:
        for number, (prompt, canvas) in enumerate(zip(prompts, snapshot.canvases, strict=True)):
            if found[number].token is None and canvas[len(prompt)] != model.mask_id:
                asked = snapshot.places == snapshot.sheet.starts[number] + len(prompt)
                found[number] = FirstToken(canvas[len(prompt)], snapshot.rows.logits[asked][0].log_softmax(-1))
        if all(one.token is not None for one in found):
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
    """The answers as records in columns, for intervals and tests. Likelihoods only where all answers have one."""
    tasks, points, correct, nll = zip(*answers, strict=True)
    columns = {"correct": np.array(correct, dtype=float)}
    if None not in nll:
        columns["nll"] = np.array(nll, dtype=float)
    return ColumnGroup("", {}, tasks, points, columns)


def answer_tables(sides: Sequence[Sequence[Marked]]) -> dict[str, np.ndarray]:
    """[points, sides] of each task; all sides answered the same questions in the same order."""
    by_task = grouped((same[0].task, [float(one.correct) for one in same]) for same in zip(*sides, strict=True))
    return {task: np.array(rows) for task, rows in by_task.items()}


def with_both_ends(entry: MitigationResult, found: BothEnds, tuned: int | None, baseline: str) -> MitigationResult:
    """Accuracy and likelihood at both ends, paired differences from the baseline, the share of the loss recovered.

    tuned: the number of the adapter. baseline: the name of the mitigation that differences are from.
    """
    answers, before = found.by_name[entry.cure], found.by_name[baseline]
    many, few, base = map(answer_columns, (answers, found.two_masks[tuned], before))
    accuracy, low, high = accuracy_interval(many)
    few_accuracy, few_low, few_high = accuracy_interval(few)
    change = paired_difference(many, base)
    sides = (found.two_masks[None], before, found.two_masks[tuned], answers)
    return structs.replace(
        entry,
        accuracy=accuracy,
        low=low,
        high=high,
        two_masks=Accuracy(accuracy=few_accuracy, low=few_low, high=few_high),
        difference=change.difference,
        difference_low=change.low,
        difference_high=change.high,
        nll_two_masks=_mean_nll(few),
        nll=_mean_nll(many),
        nll_difference=paired_nats(many, base).get("nll"),
        recovered=UNSET if entry.cure == baseline else recovered_share(answer_tables(sides)),
    )


def _mean_nll(answers: Group) -> float | None:
    """Mean over tasks; None where an answer has no likelihood."""
    return float(means_of(answers.by_task("nll")).mean()) if answers.has("nll") else None
