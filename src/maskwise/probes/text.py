"""Prose for the probes that read it: passages that end in a whole word, and pieces of tokens with a gap of masks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from maskwise.probes.probe import Asker, ItemMaker, Setup, items_of
from maskwise.records.record import Condition
from maskwise.support.errors import UserError
from maskwise.support.files import read_text
from maskwise.tasks.prompts import Prompt, name_of, unknown_id

TASK = "text"
Passage = tuple[str, int]  # a text, and where its last word begins


def load_text(path: str | Path | None = None) -> str:
    """Our own prose (text.txt), or a user's UTF-8 file."""
    if path is None:
        return resources.files("maskwise.probes").joinpath("text.txt").read_text(encoding="utf-8")
    return read_text(Path(path), "convert it first")


# Passages


def passages_of(setup: Setup) -> list[Passage]:
    chosen = passages(setup.text, setup.settings.passages, setup.settings.passage_words)
    text_ids(setup.asker.tokenizer, chosen[0][0])  # refuses a text in another alphabet
    return chosen


def passages(text: str, count: int, words: int) -> list[Passage]:
    """Up to `count` passages, their ends spread evenly over the text.

    Line breaks become spaces. A passage has `words` words, counted by white space; its last word is at least three
    letters long and loses the punctuation after it. In a text without such words, one letter will do.
    """
    pieces = list(re.finditer(r"\S+", text))
    last_words = range(words - 1, len(pieces))
    ends = [n for n in last_words if re.match(r"[^\W\d_]{3}", pieces[n].group())]
    ends = ends or [n for n in last_words if re.match(r"[^\W\d_]", pieces[n].group())]
    if not ends:
        raise UserError(f"the text has {len(pieces)} words, a passage needs {words} and a last word made of letters")
    chosen = ends if len(ends) <= count else [ends[n * len(ends) // count] for n in range(count)]
    found = []
    for end in chosen:
        before = " ".join(piece.group() for piece in pieces[end - words + 1 : end])
        word = re.match(r"[^\W\d_]+", pieces[end].group())
        assert word is not None  # `ends` holds only pieces that begin with letters
        found.append((f"{before} {word.group()}", len(before) + 1))
    return found


# Pieces with a gap

GAP = {"pieces": 20, "before": 64, "masks": 64, "after": 32}
QUICK_GAP = {"pieces": 6, "before": 32, "masks": 32, "after": 16}


@dataclass(frozen=True)
class Gap:
    """A piece of text with a gap: `before` tokens are visible, `masks` are hidden, `after` follow."""

    before: int = 64
    masks: int = 64
    after: int = 32

    @property
    def length(self) -> int:
        return self.before + self.masks + self.after


def gap_of(own: Mapping[str, Any]) -> Gap:
    return Gap(own["before"], own["masks"], own["after"])


def gap_pieces(setup: Setup, probe: str) -> list[tuple[int, ...]]:
    """The pieces a probe asks about; what the text does not hold is noted."""
    length, count = gap_of(setup.own).length, setup.own["pieces"]
    pieces = cut_text(setup.asker.tokenizer, setup.text, length, count)
    if not pieces:
        setup.note(f"{probe} was not run: it needs a text of {length} tokens; give one with --text")
    elif len(pieces) < count:
        setup.note(f"{probe}: the text holds {len(pieces)} pieces, {count} were asked for")
    return pieces


def gap_items(
    asker: Asker,
    probe: str,
    pieces: Sequence[tuple[int, ...]],
    gap: Gap,
    conditions: Sequence[Condition],
    from_the_first: int,
) -> ItemMaker:
    """Each piece with its gap masked; the row asked is "distance" places after the first mask, or `from_the_first`
    fewer. With the "suffix" visible, what follows the gap is shown."""

    def made(point: int, condition: Condition) -> tuple[Prompt, str]:
        piece, row = pieces[point], gap.before + int(condition["distance"]) - from_the_first
        end = piece[gap.before + gap.masks :] if condition.get("suffix") == "visible" else ()
        ids = (*piece[: gap.before], *[asker.mask] * gap.masks, *end)
        return Prompt(ids, row, piece[row], gap.masks), asker.tokenizer.decode([piece[row]])

    return items_of(probe, TASK, conditions, made)


def cut_text(tokenizer: Any, text: str, length: int, count: int) -> list[tuple[int, ...]]:
    """Up to `count` pieces of `length` tokens, spread evenly over the text."""
    ids = text_ids(tokenizer, text)
    room = len(ids) - length
    if room < 0:
        return []
    few = min(count, len(ids) // length)
    starts = [n * room // max(1, few - 1) for n in range(few)]
    return [tuple(ids[start : start + length]) for start in starts]


def text_ids(tokenizer: Any, text: str) -> list[int]:
    """Tokens of the text as running prose, however its file breaks the lines; refuses one that is mostly unknown."""
    ids: list[int] = tokenizer(" ".join(text.split()), add_special_tokens=False)["input_ids"]
    unknown = ids.count(unknown_id(tokenizer))  # type: ignore[arg-type]
    if 2 * unknown > len(ids):
        raise UserError(
            f"{unknown} of {len(ids)} tokens of the text are unknown to the tokenizer {name_of(tokenizer)}: give a "
            "text in its alphabet with --text"
        )
    return ids
