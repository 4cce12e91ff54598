"""Recall: a list of key and value words, each used once; the question is one of the keys.

    Key: otter
    Value:[ copper].

Keys and values are all different words of the held-out share. The values of a list are equally long in tokens, so that
the number of masks gives nothing away, and each begins with a token of its own, so that the first token identifies it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from maskwise.support.errors import UserError
from maskwise.support.randomness import python_random
from maskwise.tasks.prompts import Encoded, Prompt, encode_answers, gapped, opened
from maskwise.tasks.words import Words, split_words

NEAR, FAR = "near", "far"
# Distance of the asked pair from the question, as a share of the longest. Near is drawn: see `pairs_between`.
DISTANCES = {NEAR: 0.0, "quarter": 0.25, "middle": 0.5, "three quarters": 0.75, FAR: 1.0}
NEAREST, LAST_NEAR = 1, 4  # pairs between a near pair and the question
FEWEST_PAIRS = 6
OTHERWISE = "give longer word lists (--words), or leave recall out with --probes"


@dataclass(frozen=True)
class RecallPair:
    """`Key: otter` / `Value:[ copper].`"""

    key: str
    value: str

    @property
    def asked(self) -> str:
        return f"Key: {self.key}"

    @property
    def answered(self) -> str:
        return f"Value:[ {self.value}]."


@dataclass(frozen=True)
class RecallWords:
    """The words of keys; the words of values, of `tokens` tokens each, in groups that begin with the same token."""

    keys: tuple[str, ...]
    values: tuple[tuple[str, ...], ...]
    tokens: int


@dataclass(frozen=True)
class RecallPrompt(Prompt):
    """`allowed` holds the first token of each pair's value, in the prompt's order. asked: which pair is asked again.
    between: the pairs between it and the question."""

    asked: int = 0
    between: int = 0


def recall_words(tokenizer: Any, words: Words, held_out: float, pairs: int) -> RecallWords:
    """The held-out words, sorted by what they are in this tokenizer; refuses where they do not suffice for a list."""
    if pairs < FEWEST_PAIRS:
        raise UserError(f"recall needs at least {FEWEST_PAIRS} pairs, not {pairs}")
    chosen = split_words(words, held_out)[1] if held_out else words
    listed = list({word.casefold(): word for category in chosen.values() for word in category}.values())
    if len(listed) < 2 * pairs:
        raise UserError(
            f"recall needs {2 * pairs} different words, and {len(listed)} are kept for test questions: {OTHERWISE}"
        )
    by_length: dict[int, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for word in listed:
        ids, (rows,) = encode_answers(tokenizer, [], RecallPair("key", word))
        by_length[len(rows)][ids[rows[0]]].append(word)
    length, groups = max(by_length.items(), key=lambda item: (len(item[1]), -item[0]))
    if len(groups) < pairs:
        raise UserError(
            f"recall needs {pairs} values that begin with different tokens, and in this tokenizer only {len(groups)} "
            f"of the {len(listed)} words do: {OTHERWISE}"
        )
    return RecallWords(tuple(listed), tuple(tuple(group) for group in groups.values()), length)


def list_of_point(words: RecallWords, count: int, seed: int, point: int) -> tuple[RecallPair, ...]:
    """A list of pairs: all words differ, and no two values begin with the same token."""
    draws = python_random("recall", seed, point)
    values = [draws.choice(group) for group in draws.sample(words.values, count)]
    used = set(values)
    keys = draws.sample([word for word in words.keys if word not in used], count)
    return tuple(RecallPair(key, value) for key, value in zip(keys, values, strict=True))


def pairs_between(distance: str, count: int, seed: int, point: int) -> int:
    """The number of pairs, of `count`, between the question and the asked pair.

    Near is one of the five pairs next to the question, but never the very next, which could be found by its place.
    """
    if distance == NEAR:
        return python_random("recall near", seed, point).randint(NEAREST, LAST_NEAR)
    return round(DISTANCES[distance] * (count - 1))


def asked_last(
    tokenizer: Any,
    pairs: Sequence[RecallPair],
    between: int,
    mask_id: int | None,
    masks: int,
    tail: Sequence[int] = (),
    chat: bool = False,
) -> RecallPrompt:
    """Format B: the question after the pairs, `masks` masks in the value's place and after it, then `tail`."""
    asked = len(pairs) - 1 - between
    ids, rows = encode_answers(tokenizer, pairs, pairs[asked], "right", chat)
    return _recalled(opened(Encoded(ids, rows[-1][0]), mask_id, masks, tail), ids, rows[:-1], asked, between)


def asked_first(
    tokenizer: Any, pairs: Sequence[RecallPair], between: int, mask_id: int, chat: bool = False
) -> RecallPrompt:
    """Format A: the question before the pairs, with a mask for each token of its value and the bracket closed."""
    ids, rows = encode_answers(tokenizer, pairs, pairs[between], "left", chat)
    return _recalled(gapped(ids, rows[0], mask_id, len(rows[0]), 0), ids, rows[1:], between, between)


def _recalled(prompt: Prompt, ids: Sequence[int], values: Sequence[range], asked: int, between: int) -> RecallPrompt:
    """values: the rows of each pair's value."""
    allowed = tuple(ids[rows[0]] for rows in values)
    return RecallPrompt(**vars(prompt) | {"allowed": allowed, "asked": asked, "between": between})
