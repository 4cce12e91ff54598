"""Ways to decode that may give back the accuracy lost to 200 masks (ours), and how much each gives back.

Every way decodes the same questions on a canvas of 200 masks, greedily, and its answer is the first token in reading
order. All but the one-step ways take 40 steps for the 200 tokens, so they are compared at equal speed.

Of each both ends are measured, before and after: accuracy and likelihood with 2 masks (only training can change them)
and with 200. The share of the loss that is recovered is (a200' - a200) / (a2 - a200), so lowering the accuracy with 2
masks is no gain. The likelihood is that of the right answer in the step that commits an answer.
"""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from msgspec import UNSET
from torch import Tensor

from maskwise.decoding.generate import Snapshot, generate
from maskwise.diffusion.objectives.soft_mask import SoftMask
from maskwise.models.model import Model
from maskwise.probes.answers.changed_attention import ask_changed
from maskwise.probes.extra_tokens import BIASED, ChangedPrompt
from maskwise.records.groups import ColumnGroup, Group
from maskwise.scoring.changes import paired_difference, paired_nats, recovered_share
from maskwise.scoring.experiment_results import Accuracy, MitigationResult
from maskwise.scoring.intervals import accuracy_interval, means_of
from maskwise.support.grouping import grouped

MASKS, STEPS, BLOCK, WINDOW = 200, 40, 10, 20
BLOCKS: dict[str, Any] = {"steps": STEPS, "block": BLOCK}
BASELINE = "baseline"


@dataclass(frozen=True)
class Way:
    """A way to decode (options of `generate`); `paper` names where it comes from.

    biased: the keys of the masks beyond the second are biased by minus the log of their number, in one pass (ours).
    """

    name: str
    options: Mapping[str, Any] = field(hash=False)
    biased: bool = False
    paper: str = ""


WAYS = (
    Way(BASELINE, {"steps": 1}),
    Way("40-step unmasking", {"steps": STEPS}, paper="Piskorz et al., Masks Can Be Distracting, arXiv 2511.21338"),
    Way("small blocks", BLOCKS, paper="Nie et al., Large Language Diffusion Models, arXiv 2502.09992"),
    Way("growing canvas", BLOCKS | {"canvas": "growing"},
        paper="after Li et al., Beyond Fixed: Variable-Length Denoising, arXiv 2508.00819"),
    Way("window", BLOCKS | {"canvas": "window", "window": WINDOW},
        paper="Chen et al., DPad: Efficient Diffusion Language Models with Suffix Dropout, arXiv 2508.14148"),
    Way("soft masking", {"steps": STEPS, "soft_mask": SoftMask()},
        paper="Hersche et al., Soft-Masked Diffusion Language Models, arXiv 2510.17206"),
    Way("biased mask keys", {"steps": 1}, biased=True),
)  # fmt: skip


def way_for(way: Way, model: Model) -> Way | None:
    """The way as this model can take it; None where it cannot, or where it would change nothing.

    A wrapped model's attention is fixed. A block diffusion model sees no masks after its block; small blocks divide it.
    """
    block = model.block
    if way.biased and (block is not None or not model.attention_readable or model.family.framed):
        return None
    if block is None:
        return way
    if way.options.get("canvas") == "window":
        return None
    if "block" not in way.options:
        return way
    divisors = [size for size in range(1, min(block - 1, BLOCK) + 1) if block % size == 0]
    return replace(way, options={**way.options, "block": divisors[-1]}) if divisors else None


# Answers


@dataclass(frozen=True)
class PreparedQuestion:
    task: str
    point: int
    prompt: tuple[int, ...]
    answer_id: int


class Marked(NamedTuple):
    """Whether the answer to a question was right. nll: negative log-likelihood of the right answer in the step that
    wrote one, in nats; None where the model gave no finite number."""

    task: str
    point: int
    correct: bool
    nll: float | None = None


class FirstToken(NamedTuple):
    """What was written right after a prompt, and the log-probabilities of all tokens there in that step, [V]."""

    token: int | None = None
    log_p: Tensor | None = None

    def nll(self, right: int) -> float | None:
        """Of the right token; None where the model gave no finite number."""
        nats = math.nan if self.log_p is None else -float(self.log_p[right])
        return nats if math.isfinite(nats) else None


class _Answered(Exception):
    """Leaves `generate` once every answer of a batch is committed: later steps cannot change it."""


def answer(model: Model, questions: Sequence[PreparedQuestion], way: Way, masks: int = MASKS) -> list[Marked]:
    if way.biased:
        return biased_answers(model, questions)
    written = first_tokens(model, [question.prompt for question in questions], way.options, masks)
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


# What the answers say


@dataclass(frozen=True)
class BothEnds:
    """Answers with two masks by the model (None) and with each adapter, and with MASKS by each way that was taken."""

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


def with_both_ends(name: str, found: BothEnds, tuned: int | None, baseline: str = BASELINE) -> MitigationResult:
    """Accuracy and likelihood at both ends, paired differences from the baseline, the share of the loss recovered.

    tuned: the number of the adapter. baseline: the name of the way that differences are from.
    """
    answers, before = found.by_name[name], found.by_name[baseline]
    many, few, base = map(answer_columns, (answers, found.two_masks[tuned], before))
    accuracy, low, high = accuracy_interval(many)
    few_accuracy, few_low, few_high = accuracy_interval(few)
    change = paired_difference(many, base)
    sides = (found.two_masks[None], before, found.two_masks[tuned], answers)
    return MitigationResult(
        way=name,
        two_masks=Accuracy(accuracy=few_accuracy, low=few_low, high=few_high),
        accuracy=accuracy,
        low=low,
        high=high,
        difference=change.difference,
        difference_low=change.low,
        difference_high=change.high,
        nll_two_masks=_mean_nll(few),
        nll=_mean_nll(many),
        nll_difference=paired_nats(many, base).get("nll"),
        recovered=UNSET if name == baseline else recovered_share(answer_tables(sides)),
    )


def _mean_nll(answers: Group) -> float | None:
    """Mean over tasks; None where an answer has no likelihood."""
    return float(means_of(answers.by_task("nll")).mean()) if answers.has("nll") else None
