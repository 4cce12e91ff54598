"""One question to one model: its answer, the attribution of each token, and the right answer's probability by masks."""

from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from math import exp
from typing import Any

from msgspec import structs

from maskwise.models.model import Model
from maskwise.probes.answers.gradients import embedding_gradients
from maskwise.probes.answers.plain import ask
from maskwise.probes.blocks import moved_on_grid, visible_masks
from maskwise.records.record import Record
from maskwise.records.sample import SampledPrompt
from maskwise.runs.run_sample import chances_of, rounded, sampled
from maskwise.support.errors import UserError
from maskwise.support.files import is_writable
from maskwise.tasks.episodes import Episode, draw, draw_afresh, example_words, render
from maskwise.tasks.prompts import Encoded, Prompt, encode_last_word, opened
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words

# Of an embedded model all of them together make less than 1200 tokens, which two cores answer and colour in a second.
MOST_MASKS, MOST_RELEVANT, MOST_DISTRACTORS, MOST_POINTS, MOST_CHARACTERS = 200, 10, 30, 100, 20_000
HELD_OUT = 0.5  # as in maskwise diagnose: the same questions
CURVE_MASKS = (0, 5, 10, 20, 50, 100, 150, 200)
TASK_NAMES = [task.name for task in TASKS]


@dataclass(frozen=True)
class ContextQuestion:
    """A question with its context, which stands as one block among distracting examples drawn from a task.

    place: how many of the distractors stand before the block, as a share. masks: those after the answer's own."""

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
        check_number("masks", self.masks, MOST_MASKS)
        check_number("distracting examples", self.distractors, MOST_DISTRACTORS)
        check_number("place of the block", self.place, 1)


@dataclass(frozen=True)
class Side:
    """What the page shows of a model, as far as it is known. shown: as in a run's sample. visible: masks it sees."""

    label: str
    asked: ContextQuestion
    prompt: Prompt | None = None
    shown: SampledPrompt | None = None
    visible: int = 0
    curve: tuple[tuple[int, float], ...] = ()


def check_text(name: str, text: object) -> None:
    if not isinstance(text, str) or not is_writable(text):
        raise UserError(f"the {name} is not text, or holds half a surrogate pair: type it again")
    if len(text) > MOST_CHARACTERS:
        raise UserError(f"the {name} has {len(text):,} characters, at most {MOST_CHARACTERS:,} are read: shorten it")


def check_number(name: str, value: object, most: int) -> None:
    kinds = int if most > 1 else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not 0 <= value <= most:
        raise UserError(f"{name}: {value!r} is not a {'whole ' * (most > 1)}number from 0 to {most}")


def draw_question(task: str, point: int, relevant: int) -> tuple[str, str, str]:
    """Context, question and answer of point `point` of a task: those of `maskwise diagnose` with the seed 0."""
    episode = _episode(task, point, relevant, 0)
    test = episode.tests[point]
    asked = f"{test.asked}\n{test.answered}"
    return "".join(map(render, episode.relevant)).rstrip("\n"), asked[: asked.rindex("[") + 1], test.letter


def build_prompt(model: Model, asked: ContextQuestion) -> Prompt:
    """The text, then masks, the first in the answer's place; of an autoregressive model the text alone; of a block
    diffusion model with the answer at a block's start."""
    if model.tokenizer is None:
        raise UserError(f"{model.name or model.kind} has no tokenizer, so it reads no text: choose another model")
    examples = _episode(asked.task, asked.point, asked.relevant, asked.distractors).distractors
    others = [render(example).rstrip("\n") for example in examples]
    before = round(asked.place * len(others))
    text = "\n\n".join(part for part in [*others[:before], asked.context, *others[before:], asked.question] if part)
    if asked.answer:
        encoded = encode_last_word(model.tokenizer, text + asked.answer, len(text))
    else:
        ids = tuple(model.tokenizer(text)["input_ids"])
        encoded = Encoded((*ids, 0), len(ids))
    prompt = moved_on_grid(model, opened(encoded, model.mask_id, 1 + asked.masks))
    model.check_sequence([0] * prompt.start + list(prompt.ids), "the prompt with its masks")
    return prompt


def probe(model: Model, side: Side) -> Side:
    """Asks the question in one forward pass."""
    asked = side.asked
    prompt = build_prompt(model, asked)
    chances = chances_of(model, prompt)
    if not asked.answer:
        prompt = replace(prompt, answer_id=int(chances.argmax()))
    answer = model.tokenizer.decode([prompt.answer_id]) if asked.answer else ""
    told: Any = {"probe": "studio", "task": asked.task, "point": asked.point, "condition": {}, "predicted": ""}
    told |= {"answer": answer, "correct": int(chances.argmax()) == prompt.answer_id}
    shown = sampled(model, prompt, Record(model=model.name, masks=prompt.masks, **told), chances)
    visible = prompt.masks if model.block is None else visible_masks(model, prompt)
    return replace(side, prompt=prompt, shown=shown, visible=visible)


def attributed(model: Model, side: Side) -> Side:
    """Adds every token's attribution by a backward pass, which takes longer."""
    if side.prompt is None or side.shown is None:
        return side
    norms = embedding_gradients(model, [side.prompt])[1][0]
    return replace(side, shown=structs.replace(side.shown, attribution=rounded(norms)))


def with_curve(model: Model, side: Side) -> Side:
    return replace(side, curve=right_answer_curve(model, replace(side.asked, masks=0)))


@lru_cache(maxsize=64)  # another number of masks moves the mark along the same curve
def right_answer_curve(model: Model, asked: ContextQuestion) -> tuple[tuple[int, float], ...]:
    """(masks, probability of the right answer) for 0 to 200 masks, in one batch; numbers that exceed the context length
    are left out. Empty without a right answer, or if the model has no masks."""
    if not asked.answer or model.causal:
        return ()
    prompts = {}
    for masks in CURVE_MASKS:
        with suppress(UserError):
            prompts[masks] = build_prompt(model, replace(asked, masks=masks))
    answers = ask(model, list(prompts.values()))
    return tuple((masks, exp(-answer.nll)) for masks, answer in zip(prompts, answers, strict=True))


def _episode(task: str, point: int, relevant: int, distractors: int) -> Episode:
    check_number("relevant examples", relevant, MOST_RELEVANT)
    check_number("question", point, MOST_POINTS - 1)
    if task not in TASK_NAMES:
        raise UserError(f"no task {task!r}: choose one of {', '.join(TASK_NAMES)}")
    words = load_words()
    drawn = draw(TASKS[TASK_NAMES.index(task)], words, relevant, distractors, point + 1, 0, HELD_OUT)
    return draw_afresh(drawn, example_words(words, HELD_OUT), point)
