"""The natural-text probe: the last word of a passage is masked, and masks or fillers follow it.

The score is that of the word's first token, so that passages are the same for every tokenizer.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from importlib import resources
from pathlib import Path

from maskwise.errors import UserError
from maskwise.files import read_text
from maskwise.probes.records import Condition, Key, make_key
from maskwise.probes.variants import Asker, Item
from maskwise.tasks.prompts import encode_last_word, opened

PROBE, TASK = "natural-text", "text"
MASKS, FILLERS = "masks", "full stops"

Passage = tuple[str, int]  # a text, and where its last word begins


def load_text(path: str | Path | None = None) -> str:
    """Our own prose (text.txt), or a user's UTF-8 file."""
    if path is None:
        return resources.files("maskwise.probes").joinpath("text.txt").read_text(encoding="utf-8")
    return read_text(Path(path), "convert it first")


def passages(text: str, count: int, words: int) -> list[Passage]:
    """Up to `count` passages, their ends spread evenly over the text.

    Line breaks become spaces. A passage has `words` words, counted by white space; its last word is at least three
    letters long and loses the punctuation after it.
    """
    pieces = list(re.finditer(r"\S+", text))
    ends = [n for n in range(words - 1, len(pieces)) if re.match(r"[^\W\d_]{3}", pieces[n].group())]
    if not ends:
        raise UserError(f"the text has {len(pieces)} words, a passage needs {words} and a last word of three letters")
    chosen = ends if len(ends) <= count else [ends[n * len(ends) // count] for n in range(count)]
    found = []
    for end in chosen:
        before = " ".join(piece.group() for piece in pieces[end - words + 1 : end])
        word = re.match(r"[^\W\d_]+", pieces[end].group())
        assert word is not None  # `ends` holds only pieces that begin with letters
        found.append((f"{before} {word.group()}", len(before) + 1))
    return found


def conditions(counts: Sequence[int], causal: bool) -> list[Condition]:
    """How many masks, or fillers, follow the masked word; a causal model sees nothing after it."""
    if causal:
        return [{"after": MASKS, "count": 0}]
    return [{"after": what, "count": n} for what in (MASKS, FILLERS) for n in counts]


def text_items(
    asker: Asker,
    chosen: Sequence[Passage],
    asked: Sequence[Condition],
    points: Sequence[int],
    done: Collection[Key],
) -> Iterator[Item]:
    """The items of these passages that are not yet done."""
    for point in points:
        encoded = encode_last_word(asker.tokenizer, *chosen[point])
        answer = asker.tokenizer.decode([encoded.ids[encoded.row]])
        for condition in asked:
            key = make_key(PROBE, TASK, point, condition)
            if key in done:
                continue
            count = int(condition["count"])
            masks, fillers = (1 + count, 0) if condition["after"] == MASKS else (1, count)
            prompt = opened(encoded, asker.mask_id, masks, [asker.filler_id] * fillers)
            yield Item(key, condition, prompt, answer)
