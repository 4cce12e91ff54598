"""Limits for an untrusted tokenizer.json: one that makes short texts very long or slow to encode is refused.

Encoding runs in a Rust library that a time limit cannot stop. So the parts are checked at opening: how much normaliser
and decoder lengthen a text, and whether the patterns terminate on texts known to be hard. A pattern that is slow on
other texts only is not found; oniguruma, which runs it, gives up after ten million steps.
"""

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from maskwise.support.errors import UserError

LONGEST_INSERTED = 1000  # characters that a text gets in front of it
LARGEST_GROWTH = 1000  # times as long as it was
MOST_SECONDS = 1.0  # of processor time for all hard texts; ordinary patterns take milliseconds
PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


def refuse_unbounded(file: Path, content: Mapping[str, Any]) -> None:
    """Refuses a tokenizer.json whose parts lengthen a text too much, or whose patterns do not terminate in time."""
    parts = [part for name in PARTS for part in _parts(content.get(name))]
    growth = 1.0
    for part in parts:
        if len(str(part.get("prepend") or "")) > LONGEST_INSERTED:
            raise UserError(f"{file}: its {part['type']} puts a long text before every text: download it again")
        growth *= _growth(part)
    if growth > LARGEST_GROWTH:
        raise UserError(f"{file}: its replacements make a text {growth:.3g} times as long: download it again")
    for pattern in {pattern for part in parts if (pattern := _pattern(part)) is not None}:
        if not ends_in_time(pattern):
            raise UserError(f"{file}: its pattern {pattern[:60]!r} takes too long on short texts: download it again")


def _parts(part: Any) -> Iterator[Mapping[str, Any]]:
    """A part and, of a sequence, those it holds."""
    waiting = [part]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict) and isinstance(one.get("type"), str):
            yield one
            for name in ("normalizers", "pretokenizers", "processors", "decoders"):
                waiting += one[name] if isinstance(one.get(name), list) else []


def _growth(part: Mapping[str, Any]) -> float:
    """The factor by which a replacement can lengthen a text."""
    content, pattern = part.get("content"), part.get("pattern")
    if part["type"] != "Replace" or not isinstance(content, str):
        return 1.0
    plain = pattern.get("String") if isinstance(pattern, dict) else None
    # A pattern may match one character, or none between two.
    return max(1.0, len(content) / len(plain)) if isinstance(plain, str) and plain else len(content) + 1.0


def _pattern(part: Mapping[str, Any]) -> str | None:
    pattern = part.get("pattern")
    found = pattern.get("Regex") if isinstance(pattern, dict) else None
    return found if isinstance(found, str) else None


@lru_cache(maxsize=64)
def ends_in_time(pattern: str) -> bool:
    """True if a pattern terminates on runs of characters, on which nested repeats take exponential time."""
    letters = dict.fromkeys([*"xa1 \n-!é北", *(letter for letter in pattern if letter.isalnum())][:40])
    began = time.process_time()
    with _silent_panics():
        try:
            split = Split(Regex(pattern), "isolated")
            for letter in letters:
                for text in (24 * letter + "\x00", 12 * f"{letter} " + "\x00", 20 * (24 * letter + " ")):
                    split.pre_tokenize_str(text)
                    if time.process_time() - began > MOST_SECONDS:
                        return False
        except BaseException as problem:
            if type(problem).__name__ == "PanicException":  # Rust's, no Exception: oniguruma gave up
                return False
            if not isinstance(problem, Exception):
                raise
            return True  # no pattern at all: reading the tokenizer says so
    return True


@contextmanager
def _silent_panics() -> Iterator[None]:
    """Rust writes a panic to file descriptor 2 itself."""
    try:
        kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    except OSError:  # closed
        yield
        return
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
