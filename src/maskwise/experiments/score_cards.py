"""A score card: every setting behind a published score in one file, and the questions that it asks. No torch.

    model, task, shots, template, canvas, block, steps, strategy, temperature, dtype, batch    the settings
    published    score (percent), source, and questions, how many it is over
    chat, top_p, data, questions, pattern, seed, note    optional
    vary         {setting: [values]}, to be tried one at a time; else one other value of each

Tasks: embedded (few-shot questions of the 16 tasks, with {A}, {B}, {C} and {letter} in the template), gsm8k (test.jsonl
as published; examples from train.jsonl in the same folder) and prompts (a .jsonl file with prompt and answer; examples
are its first lines), both with {question} and {answer}. Examples stand before the question, with a blank line between.
"""

from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, structs

from maskwise.decoding.options import DecodingOptions
from maskwise.support.errors import UserError
from maskwise.support.nearest import did_you_mean
from maskwise.support.typed import AtLeast1, Count
from maskwise.support.yaml_files import read_yaml
from maskwise.tasks.checkable import EMBEDDED, GSM8K, read_checkable
from maskwise.tasks.episodes import draw, draw_afresh, example_words
from maskwise.tasks.labelled_exercises import Labelled
from maskwise.tasks.rewordings import FIELD, Rewording, check_question
from maskwise.tasks.rules import TASKS
from maskwise.tasks.tables import read_rows
from maskwise.tasks.words import load_words

CARDS = Path(__file__).parent / "cards"
REMEDY = "give a card (YAML with a task: embedded, gsm8k or prompts), or a name that maskwise reproduce --help lists"
QUESTION, ANSWER = "{question}", "{answer}"
LETTER_PATTERN = r"^\s*([ABC])\b"
HELD_OUT = 0.5
EMBEDDED_QUESTIONS = 64
SETTINGS = ("shots", "template", "canvas", "block", "steps", "strategy", "temperature", "dtype", "batch")


class PublishedScore(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A score as it was published, in percent."""

    score: Annotated[float, Meta(ge=0, le=100)]
    source: Annotated[str, Meta(min_length=1)]
    questions: AtLeast1 | None = None


class ScoreCard(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every setting behind a published score."""

    model: Annotated[str, Meta(min_length=1)]
    task: Literal["embedded", "gsm8k", "prompts"]
    shots: Count
    template: str
    canvas: AtLeast1
    block: AtLeast1 | None
    steps: AtLeast1 | None
    strategy: str
    temperature: Annotated[float, Meta(ge=0)]
    dtype: Literal["float32", "bfloat16", "float16"]
    batch: AtLeast1
    published: PublishedScore
    chat: bool = False
    top_p: float | None = None
    data: str | None = None
    questions: AtLeast1 | None = None
    pattern: str | None = None
    seed: Count = 0
    note: str = ""
    vary: dict[str, list[Any]] = {}

    @property
    def options(self) -> DecodingOptions:
        """How answers are decoded; refuses settings that exclude each other."""
        pace = (self.canvas, self.steps, self.block, self.strategy)
        return DecodingOptions(*pace, temperature=self.temperature, top_p=self.top_p, chat=self.chat)

    def changed(self, setting: str, value: Any) -> "ScoreCard":
        """The card with another value of one setting, checked as a file would be."""
        try:
            found = msgspec.convert({**structs.asdict(self), setting: value, "published": self.published}, ScoreCard)
        except msgspec.ValidationError as problem:
            line = str(problem)
            raise UserError(f"vary {setting}: {line[0].lower()}{line[1:]}") from None
        return found.checked()

    def checked(self) -> "ScoreCard":
        _check_template(self)
        try:
            _ = self.options
        except ValueError as problem:
            raise UserError(f"the card's settings: {problem}") from None
        return self


def read_card(name: str) -> ScoreCard:
    """A card by its file, or by the name of one that comes with maskwise."""
    file = Path(name)
    shipped = sorted(one.stem for one in CARDS.glob("*.yaml"))
    if not file.exists() and name in shipped:
        file = CARDS / f"{name}.yaml"
    if not file.exists():
        raise UserError(f"there is no card {name}{did_you_mean(name, shipped)}")
    known = f"{REMEDY}; a card has {', '.join(ScoreCard.__struct_fields__)}"
    card = read_yaml(file, ScoreCard, known).checked()
    for setting in card.vary:
        if setting not in SETTINGS:
            raise UserError(f"{file}: vary has no setting {setting!r}{did_you_mean(setting, SETTINGS)}")
    for setting, values in card.vary.items():
        for value in values:
            card.changed(setting, value)
    return card


def variations(card: ScoreCard) -> list[tuple[str, Any]]:
    """The variations, tried one at a time: the card's own, else one other value of each setting."""
    if card.vary:
        return [(setting, value) for setting, values in card.vary.items() for value in values]
    steps, block = card.steps or card.canvas, card.block
    sizes = [size for size in (32, 16, 8) if size < card.canvas and card.canvas % size == 0]
    other_block = None if (block is not None and block < card.canvas) or not sizes else sizes[0]
    word = ("Answer:", "Solution:") if "Answer:" in card.template else ("A:", "Answer:")  # another one for the answer
    found = [
        ("steps", max(1, steps // 2)),
        ("canvas", max(1, card.canvas // 2)),
        ("block", other_block),
        ("shots", 0 if card.shots else 2),
        ("template", card.template.replace(*word)),
        ("strategy", "entropy" if card.strategy == "low-confidence" else "low-confidence"),
        ("temperature", 0.0 if card.temperature else 0.2),
        ("batch", 1 if card.batch > 1 else 8),
        ("dtype", "bfloat16" if card.dtype == "float32" else "float32"),
    ]
    possible = []
    for setting, value in found:
        if value != getattr(card, setting):
            with suppress(UserError):  # settings that exclude each other, such as half the canvas with the same block
                card.changed(setting, value)
                possible.append((setting, value))
    return possible


# The questions


def card_questions(card: ScoreCard, data: Path | None) -> tuple[list[Labelled], str]:
    """The prompts with their right answers, and how answers are checked (tasks/checkable.py)."""
    if card.task == EMBEDDED and data is not None:
        raise UserError(f"the card's task {card.task} brings its own questions: leave --data out")
    if card.task == EMBEDDED:
        count = EMBEDDED_QUESTIONS if card.questions is None else card.questions
        return list(islice(_embedded(card, count), count)), LETTER_PATTERN
    path = data or (None if card.data is None else Path(card.data))
    if path is None:
        raise UserError(f"the card's task {card.task} needs its questions: give --data PATH")
    tests, check = read_checkable(card.task, path)
    if card.task == GSM8K:  # its questions come with words of their own around them
        shots, asked = _gsm8k_examples(path, card.shots), tests
        bare = [one.asked.removeprefix("Question: ").removesuffix("\nAnswer:") for one in asked]
    else:
        rows = [row for _, row in islice(read_rows(path), card.shots)]
        shots, asked = [(str(row["prompt"]), str(row["answer"]).strip()) for row in rows], tests[card.shots :]
        bare = [one.asked for one in asked]
    if not asked:
        raise UserError(f"{path} has no question left after {card.shots} examples: give more lines or fewer shots")
    template = card.template + "\n\n"
    before = "".join(template.replace(QUESTION, question).replace(ANSWER, answer) for question, answer in shots)
    start = card.template[: card.template.index(ANSWER)].rstrip(" ")
    made = [Labelled(before + start.replace(QUESTION, text), one.label) for text, one in zip(bare, asked, strict=True)]
    return made[: card.questions], card.pattern or check


def _embedded(card: ScoreCard, count: int) -> Iterator[Labelled]:
    """In turn from every task, so that any number of questions is spread over all of them."""
    words = load_words()
    shown, template = example_words(words, HELD_OUT), Rewording(name="card", text=card.template)
    per_task = -(-count // len(TASKS))
    episodes = [draw(task, words, card.shots, 0, per_task, card.seed, HELD_OUT) for task in TASKS]
    for point in range(per_task):
        for episode in episodes:
            context = draw_afresh(episode, shown, point).relevant
            written = [template.of(one) for one in (*context, episode.tests[point])]
            *examples, test = (f"{one.asked}\n{one.answered}" for one in written)
            end = len(written[-1].answered) - written[-1].answer_at
            yield Labelled("".join(f"{one}\n\n" for one in examples) + test[:-end], test[-end:])


def _gsm8k_examples(path: Path, count: int) -> list[tuple[str, str]]:
    if not count:
        return []
    folder = path if path.is_dir() else path.parent
    train = next((found for found in (folder / "train.jsonl", folder / "main" / "train.jsonl") if found.exists()), None)
    if train is None:
        raise UserError(
            f"{count} shots are taken from train.jsonl, and {folder} has none: put it there, or set shots to 0"
        )
    rows = islice(read_rows(train), count)
    return [(str(row["question"]).strip(), str(row["answer"]).strip()) for _, row in rows]


def _check_template(card: ScoreCard) -> None:
    if card.task == EMBEDDED:
        rewording = Rewording(name="card", text=card.template or " ")
        check_question("the card", rewording)
        if rewording.changes_task:
            raise UserError("the card, template: the embedded task asks for a letter; write {letter}, not {word}")
        return
    if FIELD.findall(card.template) != [QUESTION, ANSWER]:
        raise UserError(f"the card, template: write {QUESTION} and then {ANSWER}, once each")
