"""Exercises with any label for an answer: points in space, classified texts, questions with two options.

The label's first token is what is scored. Labels that begin with the same token become options with letters.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Any

from maskwise.support.errors import UserError
from maskwise.tasks.prompts import encode_label

ANSWER = "Answer:[{}]."


@dataclass(frozen=True)
class Labelled:
    """`Text: a quiet triumph` / `Answer:[positive].`; `form` is that of the second line."""

    asked: str
    label: str
    form: str = ANSWER

    @property
    def answered(self) -> str:
        return self.form.format(self.label)


def tell_apart(tokenizer: Any, labels: Sequence[str]) -> bool:
    """Whether every label begins with a token of its own."""
    return len(set(first_tokens(tokenizer, labels))) == len(labels)


def first_tokens(tokenizer: Any, labels: Sequence[str], form: str = ANSWER) -> tuple[int, ...]:
    """The first token of each label after `[`."""
    encoded = [encode_label(tokenizer, [], Labelled("Text: x", label, form)) for label in labels]
    return tuple(ids[gap.start] for ids, gap in encoded)


def lettered(exercises: Sequence[Labelled], labels: Sequence[str]) -> tuple[Labelled, ...]:
    """The labels as options after each text, in one order, and a letter for an answer."""
    if len(labels) > len(ascii_uppercase):
        raise UserError(f"{len(labels)} labels that begin alike are too many to be given letters: rename them")
    letters = dict(zip(labels, ascii_uppercase, strict=False))
    options = ", ".join(f"({letter}) {label}" for label, letter in letters.items())
    return tuple(Labelled(f"{one.asked}\nOptions: {options}", letters[one.label]) for one in exercises)


def answer_masks(tokenizer: Any, labels: Sequence[str], form: str = ANSWER) -> int:
    """Masks enough for the longest label and the closing `].`: the same for all, so that none gives itself away."""
    return max(len(encode_label(tokenizer, [], Labelled("Text: x", label, form))[1]) for label in labels)


def balanced(pool: Sequence[Labelled], count: int, draws: random.Random) -> list[Labelled]:
    """`count` exercises of the pool in random order, every label as often as the others as far as the pool allows."""
    by_label: dict[str, list[Labelled]] = {}
    for exercise in draws.sample(list(pool), len(pool)):
        by_label.setdefault(exercise.label, []).append(exercise)
    rounds = [group[turn] for turn in range(len(pool)) for _, group in sorted(by_label.items()) if turn < len(group)]
    chosen = rounds[:count]
    draws.shuffle(chosen)
    return chosen
