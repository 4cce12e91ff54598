"""The questions of a search: a user's file, or the embedded ones, which the embedded models can answer. No torch."""

from dataclasses import dataclass
from typing import Any

from maskwise.advice.search_space import SearchSpace
from maskwise.support.errors import UserError
from maskwise.support.files import Records, read_records
from maskwise.tasks import checkable
from maskwise.tasks.episodes import LETTERS

PER_TASK = 10

# What goes with the embedded questions: the answer is the letter that the model writes before the closing bracket, and
# there the text stops. The masks after it are there to distract.
EMBEDDED_PATTERN = checkable.EMBEDDED_PATTERN
EMBEDDED_SPACE = SearchSpace(
    max_new_tokens=192, blocks=(8, 32), rules=("low-confidence",), steps=(24,), caches=("none", "dual")
)
EMBEDDED_MINUTES = 8.0


@dataclass(frozen=True)
class DecodingQuestion:
    """A prompt to decode, and its right answer."""

    prompt: str
    answer: str | None  # None where the measure needs none


def embedded_ends(tokenizer: Any) -> tuple[int, ...]:
    """The tokens that close the bracket of an embedded question's answer."""
    ids = [tokenizer(f"Answer:[{letter}].\n\nOptions", add_special_tokens=False)["input_ids"] for letter in LETTERS]
    return tuple(dict.fromkeys(one for text in ids for one in text if tokenizer.decode([one]).startswith("]")))


def read_questions(source: Records, answers: bool) -> list[DecodingQuestion]:
    """A .jsonl file or a list of dicts, each with prompt and, where the measure needs it, answer."""
    if not answers:
        return [DecodingQuestion(line["prompt"], None) for line in read_records(source, {"prompt"})]
    questions = [
        DecodingQuestion(line["prompt"], line["answer"]) for line in read_records(source, {"prompt", "answer"})
    ]
    empty = [number for number, question in enumerate(questions, 1) if not (question.answer or "").strip()]
    if empty:
        raise UserError(f"question {empty[0]} has an empty answer: give what a right answer is, or use --judge")
    return questions


def embedded_questions(seed: int = 0, per_task: int = PER_TASK) -> list[DecodingQuestion]:
    """Few-shot questions of the 16 tasks: 3 relevant examples, then 6 distractors, drawn for each question."""
    return [DecodingQuestion(one.asked, one.label) for one in checkable.embedded_questions(seed, per_task)]
