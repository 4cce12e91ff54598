"""The comparison of mitigations (ours): how much of the accuracy lost to 200 masks each recovers, and at what cost.

Every mitigation decodes the same questions on a canvas of 200 masks, greedily, and its answer is the first token in
reading order. The cost is its speed (tokens per forward pass) and the training it needs. All decoders but the one-step
ones take 40 steps for the 200 tokens, so they are compared at equal speed.

Of each both ends are measured, before and after: accuracy and likelihood with 2 masks (only training can change them)
and with 200. The share of the loss that is recovered is (a200' - a200) / (a2 - a200), so lowering the accuracy with 2
masks is no gain. A mitigation counts only if accuracy and likelihood with 200 masks both rise. The likelihood is that
of the right answer in the step that commits an answer.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec import UNSET

from maskwise.decoding.canvas import plan
from maskwise.decoding.schedule import spread_steps
from maskwise.diffusion.objectives.soft_mask import SoftMask
from maskwise.experiments.first_answers import (
    MASKS,
    BothEnds,
    PreparedQuestion,
    Remembering,
    answer,
    answer_columns,
    biased_answers,
    with_both_ends,
)
from maskwise.experiments.kept_answers import KeptAnswers
from maskwise.experiments.tuned_adapters import PAPER_LOSS, TunedAdapter, with_method
from maskwise.models.batch import passes
from maskwise.models.checkpoints.examine import examine, find_family
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.checkpoints.locations import embedded_models, locate_checkpoint
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.checkpoints.opening import opened_model
from maskwise.models.families import Family
from maskwise.models.model import Model
from maskwise.report.pages.mitigations_page import cures_result
from maskwise.report.pages.results import make_folder, write_result
from maskwise.runs.runner import batch_budget
from maskwise.scoring.changes import paired_difference
from maskwise.scoring.experiment_results import Accuracy, MitigationResult, Mitigations
from maskwise.scoring.intervals import accuracy_interval
from maskwise.scoring.skill import task_skill
from maskwise.support.argument_kinds import checked_arguments
from maskwise.support.errors import UserError
from maskwise.support.files import only_user_of
from maskwise.support.progress import Forecast, progress_bar
from maskwise.support.typed import json_object
from maskwise.support.version import __version__
from maskwise.tasks.episodes import draw, mixed
from maskwise.tasks.prompts import check_letters, encode_question
from maskwise.tasks.rules import TASKS, Task
from maskwise.tasks.words import load_words

STEPS, BLOCK, WINDOW = 40, 10, 20
NOT_SEEN, NEEDS_TRAINING = "masks after a block are not seen", "an adapter"
BLOCKS: dict[str, Any] = {"steps": STEPS, "block": BLOCK}


@dataclass(frozen=True)
class Mitigation:
    """A way to decode (options of `generate`), with the model as it is or tuned; `paper` names where it comes from.

    tuned: the number of the adapter it takes. biased: the keys of the masks beyond the second are biased by minus the
    log of their number, in one pass (ours).
    """

    name: str
    options: Mapping[str, Any] = field(hash=False)
    tuned: int | None = None
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
)  # fmt: skip


def rows_for(adapters: Sequence[TunedAdapter]) -> tuple[Mitigation, ...]:
    """All mitigations: one for each adapter, named by the loss it was trained with, and the first of them with a
    growing canvas. The paper's own loss has its row also where no adapter was trained with it: then it is not run."""
    methods = [adapter.method for adapter in adapters]
    if not any(method.startswith(PAPER_LOSS) for method in methods):
        methods.append(PAPER_LOSS)
    papers = [DISTRACTING if method.startswith(PAPER_LOSS) else "" for method in methods]
    tuned = [
        Mitigation(f"tuning: {method}", {"steps": 1}, number, paper=paper)
        for number, (method, paper) in enumerate(zip(methods, papers, strict=True))
    ]
    return *MITIGATIONS, *tuned, Mitigation("tuning + growing canvas", BLOCKS | {"canvas": "growing"}, 0)


@dataclass(frozen=True)
class Exam:
    points: int = 3  # per task
    relevant: int = 5
    distractors: int = 10
    seed: int = 0
    tasks: tuple[Task, ...] = TASKS


DEFAULT = Exam()


def asked(exam: Exam, adapters: int) -> int:
    """The number of answers in all, including those with two masks by the model and by each adapter."""
    tuned = 2 * adapters + (1 if adapters else 0)
    return len(exam.tasks) * exam.points * (1 + len(MITIGATIONS) + tuned)


def refuse_without_masks(name: str, causal: bool, family: Family) -> None:
    if causal:
        raise UserError(f"{name} is autoregressive: it has no masks that could distract it")
    if family.noised:
        raise UserError(f"{name} has no mask token, which these mitigations change: use `diagnose --probes mask-count`")


@checked_arguments
def cures(
    model: str | Path | Model = "tiny-llada",
    adapter: str | Path | Sequence[str | Path] | None = None,
    *,
    points: int | None = None,
    seed: int = 0,
    dtype: str = "auto",
    device: str | None = None,
    check_weights: bool = True,
    any_base: bool = False,
    out: str | Path | None = None,
) -> Mitigations:
    """Compares mitigations of the sensitivity to masks on one model: what each recovers, and at what cost.

    Arguments:
        model: a name or an opened masked model.
        adapter: an adapter of `mw.tune`, or several; else the embedded one, where there is one. Each is a row, named by
            the loss it was trained with.
        points: questions per task. seed: draws them. dtype, device, check_weights, any_base: as in `mw.open`.
        out: a folder for cures.json, the figure and the page, and for the answers while it runs: a killed comparison
            goes on from there. Nothing is written without it.

    Returns:
        What `maskwise cures --json` prints: {"model", "masks", "n", "two_masks", "cures": [...]}, each mitigation with
        its accuracy and negative log-likelihood at 2 and at 200 masks, their differences from the baseline and the
        share of the loss recovered with 95 % intervals, its tokens per pass and its training. It is also a dictionary,
        as until version 0.3: `found["n"]`, `json.dumps(found)`.

    >>> import maskwise as mw
    >>> found = mw.cures("tiny-llada", points=1)  # a minute
    >>> found.n, [one.cure for one in found.cures][:3]
    (16, ['baseline', '40-step unmasking', 'small blocks'])
    """
    if points is not None and points < 1:
        raise UserError(f"--points must be at least 1, not {points}")
    folder = None if out is None else make_folder(Path(out))
    given = [adapter] if isinstance(adapter, str | Path) else adapter or []
    if not isinstance(given, Sequence):
        raise UserError(f"adapter must be a name, a path or a list of them, not {adapter!r}")
    if twice := [one for one in given if given.count(one) > 1]:
        raise UserError(f"the adapter {twice[0]} is named twice: name each once")
    if not isinstance(model, Model):
        family = find_family(model)
        refuse_without_masks(str(model), family.causal, family)
        for one in given:
            examine(model, one, any_base)
    opened = opened_model(model, dtype=dtype, device=device, check_weights=check_weights, any_base=any_base)
    refuse_without_masks(opened.name, opened.mask_id is None, opened.family)
    embedded = f"{opened.name}+ma" if f"{opened.name}+ma" in embedded_models() else None
    homes = [Path(one) for one in given] or ([locate_checkpoint(embedded)[1][-1]] if embedded else [])
    name = model if not isinstance(model, Model) else opened.name
    tuned = partial(open_model, name, opened.dtype, opened.device, check_weights=check_weights, any_base=any_base)
    adapters = [with_method(tuned(home), home) for home in homes]
    exam = replace(DEFAULT, points=points or DEFAULT.points, seed=seed)
    models = [opened, *(one.model for one in adapters)]
    kept = KeptAnswers(folder, _identity(models, exam) if folder is not None else {})
    with progress_bar() as bar, only_user_of(folder) if folder is not None else nullcontext():
        total = asked(exam, len(adapters))
        task = bar.add_task("Asking", total=total)
        forecast = Forecast(total, f"{total:,} answers with canvases of {MASKS} tokens", bar.console.print)
        answered: list[int] = []
        mitigations = total // len(exam.tasks) // exam.points

        def advance(count: int) -> None:
            bar.advance(task, count)
            answered.append(count)
            if len(answered) % mitigations == 0:  # a batch of the forecast: one answer batch of each mitigation
                forecast.advance(sum(answered[-mitigations:]))

        found = compare_mitigations(opened, adapters, exam, advance, kept)
    if folder is not None:
        write_result(folder, found, cures_result(found))
    kept.forget()
    return cast(Mitigations, json_object(found))  # JsonObject has the fields as attributes


def _identity(models: Sequence[Model], exam: Exam) -> Mapping[str, Any]:
    """The identity of a comparison: it is resumed only if this is the same."""
    asked = {"models": list(map(fingerprint, models)), "exam": [exam.points, exam.seed]}
    return asked | {"maskwise": __version__, "likelihoods": True}


def compare_mitigations(
    model: Model,
    adapters: Sequence[TunedAdapter] = (),
    exam: Exam = DEFAULT,
    advance: Callable[[int], None] = lambda count: None,
    kept: KeptAnswers | None = None,
) -> Mitigations:
    """What `maskwise cures --json` prints. `advance` is called with the number of questions answered.

    Without an adapter the mitigations that need one have no accuracy; nor has a bias on keys in a wrapped model or a
    masked language model, whose attention is fixed, nor what a model cannot do that sees no masks after its block.
    """
    refuse_without_masks(model.name, model.mask_id is None, model.family)
    kept = kept or KeptAnswers(None, {})
    questions = draw_questions(model, exam)
    all_rows = rows_for(adapters)
    mitigations = {one.name: for_blocks(one, model.block) for one in all_rows}
    if model.device.type == "cpu":
        model = Remembering(model)
        adapters = [replace(one, model=Remembering(one.model)) for one in adapters]
    used = {name: found for name, one in mitigations.items() if one and (found := model_for(one, model, adapters))}
    run = {name: one for name, one in mitigations.items() if one is not None and name in used}
    answers = _answers(questions, model, adapters, run, used, advance, kept)
    reference = answers.two_masks[None]
    columns = answer_columns(reference)
    accuracy, low, high = accuracy_interval(columns)
    change = paired_difference(answer_columns(answers.by_name[BASELINE.name]), columns)
    right = sum(one.correct for one in reference)
    return Mitigations(
        model=model.name,
        masks=MASKS,
        block=UNSET if model.block is None else model.block,
        n=len(questions),
        two_masks=Accuracy(accuracy=accuracy, low=low, high=high),
        skill=task_skill(right, len(reference), changes=[(change.low, change.high)]),
        cures=[
            _entry(mitigations[one.name] or one, answers, adapters).changed(
                **_within(mitigations[one.name], questions, model.block)
            )
            for one in all_rows
        ],
    )


def _answers(
    questions: Sequence[PreparedQuestion],
    model: Model,
    adapters: Sequence[TunedAdapter],
    mitigations: Mapping[str, Mitigation],
    used: Mapping[str, Model],
    advance: Callable[[int], None],
    kept: KeptAnswers,
) -> BothEnds:
    models: dict[int | None, Model] = {None: model, **{number: one.model for number, one in enumerate(adapters)}}
    found = BothEnds({number: [] for number in models}, {name: [] for name in used})
    # On a CPU a batch saves nothing, and it waits for its slowest answer.
    budget = batch_budget(model, None) if model.device.type == "cuda" else 1
    for first, last in passes([len(question.prompt) + MASKS for question in questions], budget):
        batch = questions[first:last]
        for number, one in models.items():
            row = f"two masks, {'model' if number is None else f'adapter {number}'}"
            found.two_masks[number] += kept.or_ask(row, batch, partial(answer, one, batch, {"steps": 1}, masks=2))
            advance(len(batch))
        for name, asked_model in used.items():
            mitigation = mitigations[name]
            ask = biased_answers if mitigation.biased else partial(answer, options=mitigation.options, masks=MASKS)
            found.by_name[name] += kept.or_ask(name, batch, partial(ask, asked_model, batch))
            advance(len(batch))
    return found


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
    """Changes to the entry for a block diffusion model: its speed, and why there is no accuracy."""
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


def model_for(mitigation: Mitigation, model: Model, adapters: Sequence[TunedAdapter]) -> Model | None:
    """The model that a mitigation decodes with, None where it cannot be had."""
    if mitigation.biased and (not model.attention_readable or model.family.framed):
        return None
    if mitigation.tuned is None:
        return model
    return adapters[mitigation.tuned].model if mitigation.tuned < len(adapters) else None


def draw_questions(model: Model, exam: Exam) -> list[PreparedQuestion]:
    """The questions of each task: examples mixed at random with distractors, the question last (format B)."""
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


def _entry(mitigation: Mitigation, found: BothEnds, adapters: Sequence[TunedAdapter]) -> MitigationResult:
    """With what was measured, where the mitigation was run."""
    tuned = mitigation.tuned
    trained = adapters[tuned].training if tuned is not None and tuned < len(adapters) else NEEDS_TRAINING
    entry = MitigationResult(
        cure=mitigation.name,
        paper=mitigation.paper,
        tokens_per_pass=mitigation.tokens_per_pass,
        training="none" if tuned is None else trained,
    )
    return with_both_ends(entry, found, tuned, BASELINE.name) if mitigation.name in found.by_name else entry
