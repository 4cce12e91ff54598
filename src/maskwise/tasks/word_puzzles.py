"""Puzzles whose answer tokens depend on each other: copy, replace one, shuffle.

Every right answer of a puzzle is equally likely. Given what is visible, the ideal model's marginals follow by counting
the right answers that agree with it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import TYPE_CHECKING, Any, Literal

from maskwise.support.errors import UserError
from maskwise.support.randomness import python_random

if TYPE_CHECKING:
    from torch import Tensor

Name = Literal["copy", "replace", "shuffle"]
NAMES: tuple[Name, ...] = ("copy", "replace", "shuffle")
# The heading of the given line and of the answer line.
HEADINGS = {
    "copy": ("Copy:", "Copied:"),
    "replace": ("Replace one by {}:", "Replaced:"),
    "shuffle": ("Shuffle:", "Shuffled:"),
}
EXAMPLES = 6


@dataclass(frozen=True)
class Puzzle:
    """The given items, and every right answer; items are any hashable marks (words, token ids), all different."""

    items: tuple[Any, ...]
    answers: frozenset[tuple[Any, ...]]

    def solved_by(self, answer: Sequence[Any]) -> bool:
        return tuple(answer) in self.answers


def make_puzzle(name: Name, items: Sequence[Any], other: Any = None) -> Puzzle:
    """`other` is what takes the place of one item in the task replace."""
    given = tuple(items)
    if name == "copy":
        answers = {given}
    elif name == "replace":
        answers = {(*given[:place], other, *given[place + 1 :]) for place in range(len(given))}
    elif name == "shuffle":
        answers = set(permutations(given))
    else:
        raise UserError(f"unknown coherence task {name!r}: choose one of {', '.join(NAMES)}")
    return Puzzle(given, frozenset(answers))


def ideal_marginals(puzzle: Puzzle, visible: Sequence[Any | None], vocabulary: int) -> "Tensor":
    """p(x_i | visible) of every place, [n, vocabulary]; the items are token ids, None is masked.

    Where no right answer agrees with the visible tokens, the marginals are uniform.
    """
    import torch

    def agrees(answer: Sequence[Any]) -> bool:
        return all(seen is None or seen == token for seen, token in zip(visible, answer, strict=True))

    left = [answer for answer in puzzle.answers if agrees(answer)]
    if not left:
        return torch.full((len(visible), vocabulary), 1 / vocabulary, dtype=torch.float64)
    return torch.nn.functional.one_hot(torch.tensor(left), vocabulary).double().mean(dim=0)


# Prompts


@dataclass(frozen=True)
class PuzzlePrompt:
    """A puzzle as a prompt: ids with masks in the answer's places; `puzzle` is in token ids."""

    ids: tuple[int, ...]
    puzzle: Puzzle


def one_token_words(tokenizer: Any, words: Sequence[str]) -> list[str]:
    """The words that are one token after a space."""
    lists = tokenizer([f" {word}" for word in words], add_special_tokens=False)["input_ids"]
    return [word for word, ids in zip(words, lists, strict=True) if len(ids) == 1]


@dataclass(frozen=True)
class _PuzzleLine:
    items: list[str]
    other: str
    answer: list[str]  # one of the right ones


def ask(tokenizer: Any, mask_id: int, name: Name, n: int, words: Sequence[str], seed: int) -> PuzzlePrompt:
    """A few solved examples, then a line of n words whose answer line is masked. Words must be one token each.

    `Shuffle: fig oak tin\\nShuffled: oak tin fig\\n\\n`
    """
    if len(words) < n + 1:
        raise UserError(f"{len(words)} words are one token in this tokenizer, {n + 1} are needed")
    draws = python_random("puzzle", name, n, seed)
    lines = [_draw_line(name, draws.sample(list(words), n + 1), draws) for _ in range(EXAMPLES + 1)]
    ids = list(tokenizer("\n\n".join(_text(name, line) for line in lines))["input_ids"])
    last = lines[-1]
    tokens = {
        word: tokenizer(f" {word}", add_special_tokens=False)["input_ids"][0] for word in [*last.items, last.other]
    }
    if ids[-n:] != [tokens[word] for word in last.answer]:
        raise UserError("this tokenizer joins the words of a line: the coherence tasks cannot be put to it")
    puzzle = make_puzzle(name, [tokens[word] for word in last.items], tokens[last.other])
    return PuzzlePrompt((*ids[:-n], *[mask_id] * n), puzzle)


def _draw_line(name: Name, drawn: list[str], draws: random.Random) -> _PuzzleLine:
    *items, other = drawn
    answer = list(items)
    if name == "shuffle":
        draws.shuffle(answer)
    elif name == "replace":
        answer[draws.randrange(len(items))] = other
    return _PuzzleLine(items, other, answer)


def _text(name: Name, line: _PuzzleLine) -> str:
    given, answered = HEADINGS[name]
    return f"{given.format(line.other)} {' '.join(line.items)}\n{answered} {' '.join(line.answer)}"
