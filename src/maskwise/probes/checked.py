"""Shared code of the probes over checkable questions: their token ids."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

from maskwise.models.tokenizers.chat import render_chat
from maskwise.probes.setup import Asker, Setup
from maskwise.tasks.checkable import EMBEDDED, EMBEDDED_PATTERN, EXACT, embedded_questions
from maskwise.tasks.datasets import Checkable
from maskwise.tasks.labelled_exercises import Labelled
from maskwise.tasks.prompts import Prompt
from maskwise.tasks.rules import TASKS


@dataclass(frozen=True)
class CheckedQuestion:
    """A question's tokens, the right answer's, and its text."""

    ids: tuple[int, ...]
    answer_ids: tuple[int, ...]
    answer: str


@dataclass(frozen=True)
class CheckedPrompt(Prompt):
    """A prompt and the question that it asks."""

    question: CheckedQuestion = CheckedQuestion((), (), "")


@dataclass(frozen=True)
class AskedSet:
    """Questions of one data set; `check` is what a right answer is (tasks/checkable.py)."""

    name: str
    questions: tuple[CheckedQuestion, ...]
    check: str = EXACT

    @property
    def longest(self) -> int:
        return max(len(one.ids) for one in self.questions)

    @property
    def longest_answer(self) -> int:
        return max(len(one.answer_ids) for one in self.questions)

    def answer(self, point: int) -> str:
        return self.questions[point].answer.strip()


def asked_sets(setup: Setup, most: int) -> list[AskedSet]:
    """The data sets given, at most so many questions of each, else the embedded ones, in turn from every task."""
    given = [found for found in setup.data.values() if isinstance(found, Checkable)]
    sets: list[tuple[str, Sequence[Labelled], str]] = [(one.name, one.tests[:most], one.check) for one in given]
    sets = sets or [(EMBEDDED, _embedded(setup.settings.seed, most), EMBEDDED_PATTERN)]
    return [AskedSet(name, tuple(_asked(setup.asker, one) for one in tests), check) for name, tests, check in sets]


def _embedded(seed: int, count: int) -> Sequence[Labelled]:
    per_task = -(-count // len(TASKS))
    drawn = list(embedded_questions(seed, per_task))
    by_task = [drawn[first : first + per_task] for first in range(0, len(drawn), per_task)]
    return [one for turn in zip_longest(*by_task) for one in turn if one is not None][:count]


def _asked(asker: Asker, question: Labelled) -> CheckedQuestion:
    text, chat = question.asked, asker.chat
    if chat:
        text = render_chat(asker.tokenizer, [{"role": "user", "content": text}], add_generation_prompt=True)
    ids = asker.tokenizer(text, add_special_tokens=not chat)["input_ids"]
    answer = asker.tokenizer(question.label, add_special_tokens=False)["input_ids"]
    return CheckedQuestion(tuple(ids), tuple(answer), question.label)
