"""Questions, and the episode of a task: its in-context examples, drawn once, and its test questions."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Protocol

from maskwise.support.randomness import python_random
from maskwise.tasks.rules import NumberRule, Task
from maskwise.tasks.words import Words, split_words

LETTERS = "ABC"
CHANCE = 1 / len(LETTERS)
LARGEST_NUMBER = 1000


class Exercise(Protocol):
    """A question and its answer in two lines, the answer in square brackets."""

    @property
    def asked(self) -> str: ...

    @property
    def answered(self) -> str: ...


@dataclass(frozen=True)
class Question:
    """Three options, the index of the right one, and whether it follows the word rule (or is a distractor)."""

    options: tuple[str, str, str]
    answer: int
    relevant: bool

    @property
    def letter(self) -> str:
        return LETTERS[self.answer]

    @property
    def asked(self) -> str:
        """`Options: (A) knit, (B) quirky, (C) persuade`"""
        listed = ", ".join(f"({letter}) {option}" for letter, option in zip(LETTERS, self.options, strict=True))
        return f"Options: {listed}"

    @property
    def answered(self) -> str:
        """`Answer:[B].`"""
        return f"Answer:[{self.letter}]."


@dataclass(frozen=True)
class Worded:
    """A question in other words: both texts, and the place in `answered` at which the answer begins."""

    asked: str
    answered: str
    answer_at: int


def answer_place(exercise: Exercise) -> int:
    """The start of the answer in `answered`: after the opening bracket, unless the exercise states it."""
    return exercise.answer_at if isinstance(exercise, Worded) else exercise.answered.index("[") + 1


def render(question: Exercise) -> str:
    """`Options: (A) knit, (B) quirky, (C) persuade\\nAnswer:[B].\\n\\n`"""
    return f"{question.asked}\n{question.answered}\n\n"


@dataclass(frozen=True)
class Episode:
    """The in-context examples of a task, in their order, and its test questions.

    With a `point` the examples were drawn for that test point alone (`draw_afresh`).
    """

    task: Task
    relevant: tuple[Question, ...]
    distractors: tuple[Question, ...]
    tests: tuple[Question, ...]
    seed: int
    point: int | None = None

    @property
    def draw_names(self) -> tuple[int | str, ...]:
        """The names of the random draws of this episode's context."""
        own = () if self.point is None else (self.point,)
        return self.seed, self.task.name, *own

    def with_distractors(self, count: int) -> "Episode":
        return replace(self, distractors=self.distractors[:count])


def word_question(target: str, pool: Sequence[str], answer: int, draws: random.Random) -> Question:
    """A question whose right option is `target`, at place `answer`, among two different words of the pool."""
    others = draws.sample(pool, 2)
    return Question(_placed(target, others, answer), answer, relevant=True)


def number_question(rule: NumberRule, answer: int, draws: random.Random) -> Question:
    """Three different integers of 1..1000, the smallest or largest of them at place `answer`."""
    numbers = sorted(draws.sample(range(1, LARGEST_NUMBER + 1), 3), reverse=rule == "largest")
    right, *others = (str(number) for number in numbers)
    draws.shuffle(others)
    return Question(_placed(right, others, answer), answer, relevant=False)


def draw(
    task: Task,
    words: Words,
    relevant: int = 10,
    distractors: int = 40,
    points: int = 100,
    seed: int = 0,
    held_out: float = 0.5,
) -> Episode:
    """The episode of a task. The same seed gives the same episode, and a smaller one is the beginning of a larger.

    Test questions are made of the held-out share of the words and examples of the others; with `held_out=0` both
    use all words.
    """
    shown, held = split_words(words, held_out) if held_out else (words, words)
    return Episode(
        task,
        tuple(islice(_word_questions(task, shown, python_random("examples", seed, task.name)), relevant)),
        tuple(islice(number_questions(task.number, python_random("distractors", seed, task.name)), distractors)),
        tuple(islice(_word_questions(task, held, python_random("tests", seed, task.name)), points)),
        seed,
    )


def draw_afresh(episode: Episode, shown: Words, point: int) -> Episode:
    """The same test questions with as many examples, drawn for one test point alone from the words `shown`."""
    own = replace(episode, point=point)
    questions = _word_questions(own.task, shown, python_random("examples", *own.draw_names))
    others = number_questions(own.task.number, python_random("distractors", *own.draw_names))
    relevant, distractors = islice(questions, len(own.relevant)), islice(others, len(own.distractors))
    return replace(own, relevant=tuple(relevant), distractors=tuple(distractors))


def example_words(words: Words, held_out: float) -> Words:
    return split_words(words, held_out)[0] if held_out else words


def blocked(episode: Episode, location: int) -> tuple[Question, ...]:
    """The relevant examples in one block, `location` distractors before it and the others after it."""
    if not 0 <= location <= len(episode.distractors):
        raise ValueError(f"location {location} is outside 0..{len(episode.distractors)}")
    return episode.distractors[:location] + episode.relevant + episode.distractors[location:]


def mixed(episode: Episode) -> tuple[Question, ...]:
    """Relevant examples and distractors in one random order, the same for every test point they were drawn for."""
    examples = [*episode.relevant, *episode.distractors]
    python_random("order", *episode.draw_names).shuffle(examples)
    return tuple(examples)


def _word_questions(task: Task, words: Words, draws: random.Random) -> Iterator[Question]:
    """Endless questions; a target comes back only when all have been used."""
    targets, pool = task.word.lists(words)
    draws.shuffle(targets)
    for target, answer in zip(cycle(targets), _balanced_answers(draws), strict=False):
        yield word_question(target, pool, answer, draws)


def number_questions(rule: NumberRule, draws: random.Random) -> Iterator[Question]:
    """Endless distractors."""
    for answer in _balanced_answers(draws):
        yield number_question(rule, answer, draws)


def _balanced_answers(draws: random.Random) -> Iterator[int]:
    """Places of the right option in random order, each once in every three: a constant guess scores exactly chance."""
    while True:
        places = list(range(len(LETTERS)))
        draws.shuffle(places)
        yield from places


def _placed(right: str, others: Sequence[str], answer: int) -> tuple[str, str, str]:
    options = list(others)
    options.insert(answer, right)
    return options[0], options[1], options[2]
