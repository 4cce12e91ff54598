"""Contrast questions (ours): one word of each of three categories, and the examples alone say which one is asked for.

The same question is asked under three rules: the word of the first, the second or the third category. The examples of
the three rules have the same options and differ in their letters only:

    rule animal                      rule verb
    (A) otter, (B) knit, (C) teal    (A) otter, (B) knit, (C) teal     example
    Answer:[A].                      Answer:[B].
    (A) teal, (B) argue, (C) badger  (A) teal, (B) argue, (C) badger   question
    Answer:[C]                       Answer:[B]

So an answerer that does not use the relevant examples gives the same letter three times and is right exactly once. One
that copies an example's letter is right exactly once too: an example has the options of the question in an order in
which one category keeps its place and the two others have changed theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from maskwise.support.randomness import python_random
from maskwise.tasks.episodes import LETTERS, Question, number_questions
from maskwise.tasks.rules import NumberRule
from maskwise.tasks.words import Words

RULES = len(LETTERS)  # each question is asked under so many


@dataclass(frozen=True)
class ContrastTask:
    """Three categories that share no words and little meaning, and the rule of the distractors."""

    categories: tuple[str, str, str]
    number: NumberRule

    @property
    def name(self) -> str:
        return "/".join(self.categories)


CONTRAST_TASKS = (
    ContrastTask(("animal", "colour", "verb"), "smallest"),
    ContrastTask(("country", "emotion", "object"), "largest"),
    ContrastTask(("adjective", "animal", "sport"), "smallest"),
    ContrastTask(("colour", "country", "preposition"), "largest"),
    ContrastTask(("emotion", "fruit", "preposition"), "smallest"),
    ContrastTask(("adjective", "name", "object"), "largest"),
    ContrastTask(("fruit", "name", "verb"), "smallest"),
    ContrastTask(("object", "sport", "verb"), "largest"),
)


@dataclass(frozen=True)
class Contrast:
    """A question with its context: the words of each option by category, and which category stands at which letter.

    examples: (words, order) of each relevant example; order[letter] is the category, as `order` is for the question.
    """

    words: tuple[str, ...]
    order: tuple[int, ...]
    examples: tuple[tuple[tuple[str, ...], tuple[int, ...]], ...]
    distractors: tuple[Question, ...]

    def test(self, rule: int) -> Question:
        return _placed(self.words, self.order, rule)

    def context(self, rule: int, where: str) -> tuple[Question, ...]:
        """The examples of a rule next to the question (near), before all distractors (far), or none of them."""
        relevant = tuple(_placed(words, order, rule) for words, order in self.examples)
        if where == "none":
            return self.distractors
        return self.distractors + relevant if where == "near" else relevant + self.distractors


def draw_contrast(
    task: ContrastTask, shown: Words, held: Words, relevant: int, distractors: int, question: int, seed: int
) -> Contrast:
    """A question of the words `held` with its own context; examples are of the words `shown`."""
    draws = python_random("contrast", seed, task.name, question)
    order = tuple(draws.sample(range(RULES), RULES))
    examples = []
    for _ in range(relevant):
        kept, *swapped = draws.sample(range(RULES), RULES)
        letters = {kept: kept, swapped[0]: swapped[1], swapped[1]: swapped[0]}
        words = tuple(draws.choice(shown[category]) for category in task.categories)
        examples.append((words, tuple(order[letters[letter]] for letter in range(RULES))))
    return Contrast(
        tuple(_target(held[category], question, seed, task.name, category) for category in task.categories),
        order,
        tuple(examples),
        tuple(islice(number_questions(task.number, draws), distractors)),
    )


def _target(words: Sequence[str], question: int, seed: int, *names: str) -> str:
    """The question's word of a category: one comes back only when all have been used."""
    shuffled = python_random("contrast words", seed, *names).sample(words, len(words))
    return shuffled[question % len(shuffled)]


def _placed(words: tuple[str, ...], order: tuple[int, ...], rule: int) -> Question:
    first, second, third = (words[category] for category in order)
    return Question((first, second, third), order.index(rule), relevant=True)
