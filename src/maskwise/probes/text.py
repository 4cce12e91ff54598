"""Prose for the probes that read it: passages that end in a whole word, and pieces of tokens with a gap of masks."""

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from maskwise.probes.setup import Asker, Setup
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


# Pieces with a gap of masks

QUICK_GAP = {"pieces": 6, "before": 32, "masks": 32, "after": 16}


def gap_pieces(setup: Setup, probe: str, pieces: int, length: int) -> list[tuple[int, ...]]:
    """The pieces a probe asks about; what the text does not hold is noted."""
    found = cut_text(setup.asker.tokenizer, setup.text, length, pieces)
    if not found:
        setup.note(f"{probe} was not run: it needs a text of {length} tokens; give one with --text")
    elif len(found) < pieces:
        setup.note(f"{probe}: the text holds {len(found)} pieces, {pieces} were asked for")
    return found


def with_gap(
    asker: Asker, piece: Sequence[int], before: int, masks: int, distance: int, after_shown: bool = False
) -> Prompt:
    """The piece with masks after its first tokens, asked at the mask that is so far from them (1 is the next)."""
    row = before + distance - 1
    end = piece[before + masks :] if after_shown else ()
    return Prompt((*piece[:before], *[asker.mask] * masks, *end), row, piece[row], masks)


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
