"""The questions of a search: a user's file, or the embedded ones, which the embedded models can answer. No torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from maskwise.advice.search_space import SearchSpace
from maskwise.support.errors import UserError
from maskwise.support.files import Records
from maskwise.tasks import checkable
from maskwise.tasks.columns import PAIR_WORDS, PAIRS, TextPair, keys_in_words, read_row
from maskwise.tasks.episodes import LETTERS
from maskwise.tasks.tables import located_rows

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
    prompt: str
    answer: str | None  # None where the measure needs none


def embedded_ends(tokenizer: Any) -> tuple[int, ...]:
    """The tokens that close the bracket of an embedded question's answer."""
    ids = [tokenizer(f"Answer:[{letter}].\n\nOptions", add_special_tokens=False)["input_ids"] for letter in LETTERS]
    return tuple(dict.fromkeys(one for text in ids for one in text if tokenizer.decode([one]).startswith("]")))


def read_questions(source: Records, answers: bool) -> list[DecodingQuestion]:
    """A file or a list of dicts, each with prompt and, where the measure needs it, answer (see tasks/columns.py)."""
    if not answers:
        return [DecodingQuestion(_prompt(row, where), None) for where, row in located_rows(source)]
    rows = [(where, read_row(row, where, PAIRS, PAIR_WORDS)) for where, row in located_rows(source)]
    questions = []
    for where, pair in rows:
        if not isinstance(pair, TextPair):
            raise UserError(f"{where}: prompt and answer must be texts")
        questions.append(
            DecodingQuestion(pair.plain_prompt.rstrip("\n") if pair.is_question else pair.prompt, pair.answer)
        )
    empty = [number for number, question in enumerate(questions, 1) if not (question.answer or "").strip()]
    if empty:
        raise UserError(f"question {empty[0]} has an empty answer: give what a right answer is, or use --judge")
    return questions


def _prompt(row: Any, where: str) -> str:
    given = [name for name in ("prompt", "question") if isinstance(row, Mapping) and isinstance(row.get(name), str)]
    if len(given) != 1:
        keys = keys_in_words(row) if isinstance(row, Mapping) else "none"
        raise UserError(f"{where} has the keys {keys}: write one text, prompt or question")
    return row[given[0]]


def embedded_questions(seed: int = 0, per_task: int = PER_TASK) -> list[DecodingQuestion]:
    """Few-shot questions of the 16 tasks: 3 relevant examples, then 6 distractors, drawn for each question."""
    return [DecodingQuestion(one.asked, one.label) for one in checkable.embedded_questions(seed, per_task)]
