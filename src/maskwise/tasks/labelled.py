"""Exercises with any label for an answer: points in space, classified texts, questions with two options.

The label's first token is what is scored, so no two labels of a task may begin with the same token.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from maskwise.errors import UserError
from maskwise.tasks.prompts import encode_label


@dataclass(frozen=True)
class Labelled:
    """`Text: a quiet triumph` / `Answer:[positive].`"""

    asked: str
    label: str

    @property
    def answered(self) -> str:
        return f"Answer:[{self.label}]."


def first_tokens(tokenizer: Any, labels: Sequence[str]) -> dict[str, int]:
    """The first token of each label; refused where two labels share it."""
    found: dict[int, str] = {}
    for label in labels:
        encoded = encode_label(tokenizer, [], Labelled("Text: x", label))
        other = found.setdefault(encoded.ids[encoded.row], label)
        if other != label:
            raise UserError(
                f"the labels {other!r} and {label!r} begin with the same token, which is what is scored: rename one"
            )
    return {label: token for token, label in found.items()}


def answer_masks(tokenizer: Any, labels: Sequence[str]) -> int:
    """Masks enough for the longest label and the closing `].`: the same for all, so that none gives itself away."""
    lengths = []
    for label in labels:
        encoded = encode_label(tokenizer, [], Labelled("Text: x", label))
        lengths.append(len(encoded.ids) - encoded.row)
    return max(lengths)


def balanced(pool: Sequence[Labelled], count: int, draws: random.Random) -> list[Labelled]:
    """`count` exercises of the pool in random order, every label as often as the others as far as the pool allows."""
    by_label: dict[str, list[Labelled]] = {}
    for exercise in draws.sample(list(pool), len(pool)):
        by_label.setdefault(exercise.label, []).append(exercise)
    rounds = [group[turn] for turn in range(len(pool)) for _, group in sorted(by_label.items()) if turn < len(group)]
    chosen = rounds[:count]
    draws.shuffle(chosen)
    return chosen
