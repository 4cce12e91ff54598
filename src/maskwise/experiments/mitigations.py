"""The comparison of mitigations (ours): what brings back the answer that 200 masks took away, and at what price.

Every mitigation decodes the same questions on a canvas of 200 masks, greedily, and its answer is the token it writes
first in reading order. The price is its speed (tokens per forward pass) and the training it needs. All decoders but the
one-step ones take 40 steps for the 200 tokens, so they are compared at equal speed.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from msgspec import UNSET

from maskwise.decoding.canvas import plan
from maskwise.decoding.schedule import spread_steps
from maskwise.diffusion.objectives.soft_mask import SoftMask
from maskwise.experiments.first_answers import MASKS, Marked, PreparedQuestion, Remembering, answer, biased_answers
from maskwise.experiments.kept_answers import KeptAnswers
from maskwise.models.batch import passes
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.checkpoints.locations import embedded_models, locate_checkpoint
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.checkpoints.opening import opened_model
from maskwise.models.model import Model
from maskwise.records.groups import ColumnGroup, Group
from maskwise.report.pages.mitigations_page import cures_result
from maskwise.report.pages.results import make_folder, write_result
from maskwise.runs.runner import batch_budget
from maskwise.scoring.changes import paired_difference
from maskwise.scoring.experiment_results import Accuracy, MitigationResult, Mitigations
from maskwise.scoring.intervals import accuracy_interval
from maskwise.support.errors import UserError
from maskwise.support.files import only_user_of, read_json
from maskwise.support.progress import progress_bar
from maskwise.support.typed import json_object
from maskwise.support.version import __version__
from maskwise.tasks.episodes import draw, mixed
from maskwise.tasks.prompts import check_letters, encode_question
from maskwise.tasks.rules import TASKS, Task
from maskwise.tasks.words import load_words

STEPS, BLOCK, WINDOW = 40, 10, 20
NOT_SEEN = "masks after a block are not seen"
BLOCKS: dict[str, Any] = {"steps": STEPS, "block": BLOCK}


@dataclass(frozen=True)
class Mitigation:
    """A way to decode (options of `generate`), with the model as it is or tuned; `paper` names where it comes from.

    biased: the keys of the masks beyond the second are biased by minus the log of their number, in one pass (ours).
    """

    name: str
    options: Mapping[str, Any] = field(hash=False)
    tuned: bool = False
    biased: bool = False
    paper: str = ""

    @property
    def tokens_per_pass(self) -> float:
        return MASKS / self.options["steps"]


DISTRACTING = "Piskorz et al., Masks Can Be Distracting, arXiv 2511.21338"
BASELINE = Mitigation("baseline", {"steps": 1})
MITIGATIONS = (
    BASELINE,
    Mitigation("40-step unmasking", {"steps": STEPS}, paper=DISTRACTING),
    Mitigation("small blocks", BLOCKS, paper="Nie et al., Large Language Diffusion Models, arXiv 2502.09992"),
    Mitigation("growing canvas", BLOCKS | {"canvas": "growing"},
               paper="after Li et al., Beyond Fixed: Variable-Length Denoising, arXiv 2508.00819"),
    Mitigation("window", BLOCKS | {"canvas": "window", "window": WINDOW},
               paper="Chen et al., DPad: Efficient Diffusion Language Models with Suffix Dropout, arXiv 2508.14148"),
    Mitigation("soft masking", {"steps": STEPS, "soft_mask": SoftMask()},
               paper="Hersche et al., Soft-Masked Diffusion Language Models, arXiv 2510.17206"),
    Mitigation("biased mask keys", {"steps": 1}, biased=True),
    Mitigation("mask-agnostic tuning", {"steps": 1}, tuned=True, paper=DISTRACTING),
    Mitigation("tuning + growing canvas", BLOCKS | {"canvas": "growing"}, tuned=True),
)  # fmt: skip


@dataclass(frozen=True)
class Exam:
    """The questions all mitigations are given."""

    points: int = 3  # per task
    relevant: int = 5
    distractors: int = 10
    seed: int = 0
    tasks: tuple[Task, ...] = TASKS


DEFAULT = Exam()


def asked(exam: Exam, with_tuned: bool) -> int:
    """How many questions are answered in all, the reference with two masks included."""
    return len(exam.tasks) * exam.points * (1 + sum(with_tuned or not one.tuned for one in MITIGATIONS))


def refuse_autoregressive(model: Model) -> None:
    if model.mask_id is None:
        raise UserError(f"{model.name} is autoregressive: it has no masks that could distract it")


def cures(
    model: str | Path | Model = "tiny-llada",
    adapter: str | Path | None = None,
    *,
    points: int | None = None,
    seed: int = 0,
    dtype: str = "auto",
    device: str | None = None,
    check_weights: bool = True,
    out: str | Path | None = None,
) -> Mitigations:
    """Compares mitigations of the sensitivity to masks on one model: what each brings back, and at what price.

    Arguments:
        model: a name or an opened masked model.
        adapter: a mask-agnostic adapter of it; else the embedded one, where there is one.
        points: questions per task. seed: draws them. dtype, device, check_weights: as in `mw.open`.
        out: a folder for cures.json, the figure and the page, and for the answers while it runs: a killed comparison
            goes on from there. Nothing is written without it.

    Returns:
        What `maskwise cures --json` prints: {"model", "masks", "n", "two_masks", "cures": [...]}, each mitigation with
        its accuracy, its difference from the baseline with a 95 % interval, its tokens per pass and its training. It is
        also a dictionary, as until version 0.3: `found["n"]`, `json.dumps(found)`.

    >>> import maskwise as mw
    >>> found = mw.cures("tiny-llada", points=1)  # a minute
    >>> found.n, [one.cure for one in found.cures][:3]
    (16, ['baseline', '40-step unmasking', 'small blocks'])
    """
    if points is not None and points < 1:
        raise UserError(f"--points must be at least 1, not {points}")
    folder = None if out is None else make_folder(Path(out))
    opened = opened_model(model, dtype, device, check_weights=check_weights)
    refuse_autoregressive(opened)
    embedded = f"{opened.name}+ma" if f"{opened.name}+ma" in embedded_models() else None
    home = Path(adapter) if adapter else locate_checkpoint(embedded)[1][-1] if embedded else None
    name = model if not isinstance(model, Model) else opened.name
    tuned = open_model(name, opened.dtype, opened.device, home, check_weights=check_weights) if home else None
    exam = replace(DEFAULT, points=points or DEFAULT.points, seed=seed)
    training = describe_training(home) if home else ""
    kept = KeptAnswers(None if out is None else Path(out), _identity(opened, tuned, exam) if out is not None else {})
    with progress_bar() as bar, only_user_of(folder) if folder is not None else nullcontext():
        task = bar.add_task("Asking", total=asked(exam, tuned is not None))
        found = compare_mitigations(opened, tuned, training, exam, lambda count: bar.advance(task, count), kept)
    if folder is not None:
        write_result(folder, found, cures_result(found))
    kept.forget()
    return cast(Mitigations, json_object(found))  # JsonObject has the fields as attributes


def _identity(model: Model, tuned: Model | None, exam: Exam) -> Mapping[str, Any]:
    """What must be the same for a comparison to go on."""
    models = [None if one is None else fingerprint(one) for one in (model, tuned)]
    return {"models": models, "exam": [exam.points, exam.seed], "maskwise": __version__}


def compare_mitigations(
    model: Model,
    tuned: Model | None = None,
    training: str = "",
    exam: Exam = DEFAULT,
    advance: Callable[[int], None] = lambda count: None,
    kept: KeptAnswers | None = None,
) -> Mitigations:
    """What `maskwise cures --json` prints. `advance` is called with the number of questions answered.

    Without a tuned model the mitigations that need one have no accuracy; nor has a bias on keys in a wrapped model,
    whose attention cannot be changed, nor what a model cannot do that sees no masks after its block.
    """
    refuse_autoregressive(model)
    kept = kept or KeptAnswers(None, {})
    questions = draw_questions(model, exam)
    mitigations = {one.name: for_blocks(one, model.block) for one in MITIGATIONS}
    if model.device.type == "cpu":
        model, tuned = Remembering(model), Remembering(tuned) if tuned is not None else None
    reference: list[Marked] = []
    used = {name: found for name, one in mitigations.items() if one and (found := model_for(one, model, tuned))}
    by_name: dict[str, list[Marked]] = {name: [] for name in used}
    # On a CPU a batch saves nothing, and it waits for its slowest answer.
    budget = batch_budget(model, None) if model.device.type == "cuda" else 1
    for first, last in passes([len(question.prompt) + MASKS for question in questions], budget):
        batch = questions[first:last]
        reference += kept.or_ask("two masks", batch, partial(answer, model, batch, {"steps": 1}, masks=2))
        advance(len(batch))
        for mitigation in mitigations.values():
            if mitigation is not None and mitigation.name in used:
                ask = biased_answers if mitigation.biased else partial(answer, options=mitigation.options, masks=MASKS)
                by_name[mitigation.name] += kept.or_ask(
                    mitigation.name, batch, partial(ask, used[mitigation.name], batch)
                )
                advance(len(batch))
    accuracy, low, high = accuracy_interval(_columns(reference))
    return Mitigations(
        model=model.name,
        masks=MASKS,
        block=UNSET if model.block is None else model.block,
        n=len(questions),
        two_masks=Accuracy(accuracy=accuracy, low=low, high=high),
        cures=[
            _entry(mitigations[one.name] or one, by_name.get(one.name), by_name[BASELINE.name], training).changed(
                **_within(mitigations[one.name], questions, model.block)
            )
            for one in MITIGATIONS
        ],
    )


def for_blocks(mitigation: Mitigation, block: int | None) -> Mitigation | None:
    """The mitigation for a model that sees no masks after its block of so many tokens; None where it changes nothing.

    Small blocks divide the model's own.
    """
    if block is None:
        return mitigation
    if mitigation.biased or mitigation.options.get("canvas") == "window":
        return None
    if "block" not in mitigation.options:
        return mitigation
    divisors = [size for size in range(1, min(block - 1, BLOCK) + 1) if block % size == 0]
    return replace(mitigation, options={**mitigation.options, "block": divisors[-1]}) if divisors else None


def _within(mitigation: Mitigation | None, questions: Sequence[PreparedQuestion], block: int | None) -> dict[str, Any]:
    """What differs where the model has blocks of its own: its speed, and why there is no accuracy."""
    if block is None:
        return {}
    if mitigation is None:
        return {"why": NOT_SEEN}
    passes = [passes_over_blocks(mitigation.options, len(question.prompt), block) for question in questions]
    return {"tokens_per_pass": MASKS * len(passes) / sum(passes)}


def passes_over_blocks(options: Mapping[str, Any], length: int, block: int) -> int:
    """Forward passes for MASKS tokens after a prompt of this length: a pass at least for each block."""
    blocks = plan([[0] * length], -1, MASKS, "blocks", options.get("block"), None, block)
    return sum(spread_steps(options["steps"], [len(one.slots[0]) for one in blocks]))


def model_for(mitigation: Mitigation, model: Model, tuned: Model | None) -> Model | None:
    """The model that a mitigation decodes with, None where it cannot be had."""
    if mitigation.biased and not model.attention_readable:
        return None
    return tuned if mitigation.tuned else model


def draw_questions(model: Model, exam: Exam) -> list[PreparedQuestion]:
    """Of each task, the examples mixed at random with the distractors, the question last (format B)."""
    check_letters(model.tokenizer)
    found = []
    for task in exam.tasks:
        episode = draw(task, load_words(), exam.relevant, exam.distractors, exam.points, exam.seed)
        for point, test in enumerate(episode.tests):
            encoded = encode_question(model.tokenizer, mixed(episode), test)
            prompt = encoded.ids[: encoded.row]
            found.append(PreparedQuestion(task.name, point, prompt, encoded.ids[encoded.row]))
    longest = max(found, key=lambda question: len(question.prompt))
    model.check_sequence([*longest.prompt, *[model.mask_id or 0] * MASKS], "the longest question")
    return found


def _columns(answers: Sequence[Marked]) -> Group:
    tasks, points, correct = zip(*answers, strict=True)
    return ColumnGroup("", {}, tasks, points, {"correct": np.array(correct, dtype=float)})


def _entry(
    mitigation: Mitigation, answers: list[Marked] | None, baseline: list[Marked], training: str
) -> MitigationResult:
    """Accuracy and the paired difference from the baseline, with their intervals."""
    accuracy = low = high = difference = difference_low = difference_high = None
    if answers is not None:
        accuracy, low, high = accuracy_interval(_columns(answers))
        change = paired_difference(_columns(answers), _columns(baseline))
        difference, difference_low, difference_high = change.difference, change.low, change.high
    return MitigationResult(
        cure=mitigation.name,
        paper=mitigation.paper,
        accuracy=accuracy,
        low=low,
        high=high,
        difference=difference,
        difference_low=difference_low,
        difference_high=difference_high,
        tokens_per_pass=mitigation.tokens_per_pass,
        training=training if mitigation.tuned else "none",
    )


def describe_training(adapter: Path) -> str:
    """What `maskwise tune` says it did: settings.json beside an adapter, training.json beside an embedded one."""
    tuned, embedded = adapter / "settings.json", adapter / "training.json"
    if tuned.exists():
        stored = read_json(tuned, "name another --adapter")
    elif embedded.exists():
        stored = read_json(embedded, "name another --adapter")
    else:
        return "an adapter"
    try:
        found = (stored if tuned.exists() else stored["settings"])["identity"]["settings"]
        return f"{found['steps']} steps of {int(found['batch']) * int(found['accumulation'])} pairs"
    except (LookupError, TypeError, ValueError):
        return "an adapter"
