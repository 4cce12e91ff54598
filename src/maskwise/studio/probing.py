"""One question to one model: its answer, the attribution of each token, and the answer's attention."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import exp

from msgspec import structs
from torch import Tensor

from maskwise.models.model import Model
from maskwise.probes.answers.attention_shares import logits_and_shares
from maskwise.probes.answers.gradients import gradient_norms, traced
from maskwise.probes.answers.plain import Answer, answers_to, ask
from maskwise.probes.blocks import moved_on_grid, visible_masks
from maskwise.probes.examples import one_context_per_task
from maskwise.records.record import Record
from maskwise.records.sample import SampledPrompt
from maskwise.runs.run_sample import rounded, sampled
from maskwise.studio.sizes import check_share, check_text, check_whole
from maskwise.support.errors import UserError
from maskwise.tasks.episodes import Episode, draw, draw_afresh, example_words, render
from maskwise.tasks.prompts import Encoded, Prompt, encode_last_word, opened
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

# Of an embedded model all of them together make less than 1200 tokens, which two cores answer and colour in a second.
MOST_MASKS, MOST_RELEVANT, MOST_DISTRACTORS, MOST_POINTS = 200, 10, 30, 100
HELD_OUT = 0.5  # as in maskwise diagnose: the same questions
NEAR = 50  # tokens that count as the nearest context
CURVE_MASKS = (0, 5, 10, 20, 50, 100, 150, 200)
MaskCurve = tuple[tuple[int, float], ...]
TASK_NAMES = [task.name for task in TASKS]


@dataclass(frozen=True)
class Drawn:
    """A draw from a task: relevant examples, the question without its answer, and the answer."""

    context: str
    question: str
    answer: str


@dataclass(frozen=True)
class ContextQuestion:
    """A question with its context. The context stands as one block among distracting examples drawn from a task.

    place: how many of the distractors stand before the block, as a share. masks: those after the answer's own.
    """

    context: str
    question: str
    answer: str = ""
    task: str = TASK_NAMES[0]
    point: int = 0
    relevant: int = 1
    distractors: int = 0
    place: float = 1.0
    masks: int = 0

    def __post_init__(self) -> None:
        for name in ("context", "question", "answer"):
            check_text(name, getattr(self, name))
        if not self.question.strip():
            raise UserError("the question is empty: type one, or draw one from a task")
        check_whole("masks", self.masks, 0, MOST_MASKS)
        check_whole("distracting examples", self.distractors, 0, MOST_DISTRACTORS)
        check_share("place of the block", self.place)


@dataclass(frozen=True)
class Probed:
    """A model's answer to a question. `shown`: the prompt's tokens and the most probable answers, as in a run's sample.

    right: the right answer as it was typed; its first token is what is asked, and is `shown["answer"]`. attention:
    for masks, near and far context and the answer's own place the share in each layer. gradients: of each token the
    norm, [T], from what the forward pass kept; they can be asked once.
    """

    prompt: Prompt
    shown: SampledPrompt
    answer: Answer
    attention: dict[str, list[float]]
    right: str = ""
    visible: int | None = None  # masks that a block diffusion model sees, the answer's own among them
    gradients: Callable[[], Tensor] | None = None


def draw_question(task: str, point: int, relevant: int) -> Drawn:
    """Question `point` of a task with so many relevant examples: those of `maskwise diagnose` with the seed 0."""
    episode = _episode(task, point, relevant, 0)
    test = episode.tests[point]
    context = "".join(map(render, episode.relevant)).rstrip("\n")
    asked = f"{test.asked}\n{test.answered}"
    return Drawn(context, asked[: asked.rindex("[") + 1], test.letter)


def build_prompt(model: Model, asked: ContextQuestion) -> Prompt:
    """The text up to the answer and then masks, the first of them in the answer's place; of an autoregressive model
    the text alone; of a block diffusion model with the answer where `diagnose` has it, at a block's start."""
    if model.tokenizer is None:
        raise UserError(f"{model.name or model.kind} has no tokenizer, so it reads no text: choose another model")
    examples = _episode(asked.task, asked.point, asked.relevant, asked.distractors).distractors
    others = [render(example).rstrip("\n") for example in examples]
    before = round(asked.place * len(others))
    text = "\n\n".join(part for part in [*others[:before], asked.context, *others[before:], asked.question] if part)
    encoded = _encode(model, text, asked.answer)
    prompt = moved_on_grid(model, opened(encoded, model.mask_id, 1 + asked.masks))
    model.check_sequence([0] * prompt.start + list(prompt.ids), "the prompt with its masks")
    return prompt


def probe(model: Model, asked: ContextQuestion) -> Probed:
    """The answer's distribution and attention from one forward pass, which keeps its graph for gradients."""
    prompt = build_prompt(model, asked)
    with traced(model, [prompt]) as batch:
        kept, (attention,) = logits_and_shares(model, [prompt], batch, NEAR)
    logits, gradients = kept.detach(), partial(gradient_norms, model, [prompt], batch, kept)
    if not asked.answer:
        prompt = replace(prompt, answer_id=int(logits[0].argmax()))
    (answer,) = answers_to([prompt], logits)
    record = Record(
        model=model.name,
        probe="studio",
        task=asked.task,
        point=asked.point,
        condition={"masks": prompt.masks},
        masks=prompt.masks,
        predicted=model.tokenizer.decode([answer.token]),
        answer=model.tokenizer.decode([prompt.answer_id]) if asked.answer else "",
        correct=answer.token == prompt.answer_id,
    )
    shown = sampled(model, prompt, record, logits[0].softmax(-1))
    visible = None if model.block is None else visible_masks(model, prompt)
    return Probed(prompt, shown, answer, attention, asked.answer, visible, gradients)


def attributed(found: Probed) -> Probed:
    """Adds every token's attribution by a backward pass, which takes longer than the forward pass."""
    assert found.gradients is not None
    return replace(found, shown=structs.replace(found.shown, attribution=rounded(found.gradients())), gradients=None)


def right_answer_curve(model: Model, asked: ContextQuestion) -> MaskCurve:
    """(masks, probability of the right answer) for 0 to 200 masks, in one batch; numbers that exceed the context length
    are left out. Empty without a right answer, or if the model has no masks."""
    if not asked.answer or model.causal:
        return ()
    prompts = {}
    for masks in CURVE_MASKS:
        with suppress(UserError):
            prompts[masks] = build_prompt(model, replace(asked, masks=masks))
    answers = ask(model, list(prompts.values()))
    return tuple((masks, exp(-(answer.nll or 0.0))) for masks, answer in zip(prompts, answers, strict=True))


def _episode(task: str, point: int, relevant: int, distractors: int) -> Episode:
    check_whole("relevant examples", relevant, 0, MOST_RELEVANT)
    check_whole("question", point, 0, MOST_POINTS - 1)
    if task not in TASK_NAMES:
        raise UserError(f"no task {task!r}: choose one of {', '.join(TASK_NAMES)}")
    words = load_words()
    drawn = draw(TASKS[TASK_NAMES.index(task)], words, relevant, distractors, point + 1, 0, HELD_OUT)
    return drawn if one_context_per_task(relevant) else draw_afresh(drawn, example_words(words, HELD_OUT), point)


def _encode(model: Model, text: str, answer: str) -> Encoded:
    """The tokens of the text with the answer, and the row of the answer's first token; or a row behind the text."""
    if answer:
        return encode_last_word(model.tokenizer, text + answer, len(text))
    ids = tuple(model.tokenizer(text)["input_ids"])
    return Encoded((*ids, 0), len(ids))
