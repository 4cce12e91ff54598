"""The 16 tasks: 8 rules over words, each hidden among examples of one of 2 rules over numbers.

To add a task, write a `WordRule` and pass its tasks, `mw.diagnose(..., tasks=tasks_of(mine))`; one line in
WORD_RULES makes it known everywhere.
"""

from dataclasses import dataclass
from typing import Literal

from maskwise.support.errors import UserError
from maskwise.tasks.words import Words

NumberRule = Literal["smallest", "largest"]
NUMBER_RULES: tuple[NumberRule, ...] = ("smallest", "largest")
CAPITALISED = "capitalised"


@dataclass(frozen=True)
class WordRule:
    """The right option is a word of `target`; the two wrong ones are words of the categories in `pool`.

    by_case: target and pool are the same categories, and the right option alone is capitalised.
    """

    name: str
    target: tuple[str, ...]
    pool: tuple[str, ...]
    by_case: bool = False

    def lists(self, words: Words) -> tuple[list[str], list[str]]:
        """(targets, pool): the words to draw from, no word in both in any case."""
        if self.by_case:  # every second word capitalised as a target, the others in lower case: only the case differs
            ordered = sorted(_joined(words, self.target), key=str.casefold)
            targets = [word[0].upper() + word[1:].lower() for word in ordered[::2]]
            return targets, [word.lower() for word in ordered[1::2]]
        targets = _joined(words, self.target)
        taken = {word.casefold() for word in targets}
        pool = [word for word in _joined(words, self.pool) if word.casefold() not in taken]
        if len(pool) < 2:
            raise UserError(f'the rule "{self.name}" needs words of {", ".join(self.pool)} that are not targets too')
        return targets, pool


_PLAIN = ("animal", "object", "verb", "adjective")

WORD_RULES = (
    WordRule("country", ("country",), ("name",)),
    WordRule(CAPITALISED, _PLAIN, _PLAIN, by_case=True),
    WordRule("verb", ("verb",), ("adjective", "preposition", "object")),
    WordRule("adjective", ("adjective",), ("verb", "preposition", "object")),
    WordRule("animal", ("animal",), ("object", "fruit", "sport")),
    WordRule("colour", ("colour",), ("animal", "object")),
    WordRule("emotion", ("emotion",), ("colour", "object", "animal")),
    WordRule("object", ("object",), ("emotion", "colour", "adjective")),
)


@dataclass(frozen=True)
class Task:
    """Find the word rule among distractors that follow the number rule."""

    word: WordRule
    number: NumberRule

    @property
    def name(self) -> str:
        return f"{self.word.name}-{self.number}"


def tasks_of(*rules: WordRule) -> tuple[Task, ...]:
    """The tasks of word rules: each among distractors of both number rules."""
    return tuple(Task(word, number) for word in rules for number in NUMBER_RULES)


TASKS = tasks_of(*WORD_RULES)


def _joined(words: Words, categories: tuple[str, ...]) -> list[str]:
    """The words of these categories, each once."""
    first_spelling: dict[str, str] = {}
    for category in categories:
        for word in words[category]:
            first_spelling.setdefault(word.casefold(), word)
    return list(first_spelling.values())
