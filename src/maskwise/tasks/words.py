"""The words the tasks are made of: our own lists (words.json) or a user's file."""

import json
import random
from importlib import resources
from pathlib import Path

from maskwise.support.errors import UserError
from maskwise.support.files import read_json

CATEGORIES = (
    *("animal", "object", "verb", "adjective", "country", "name"),
    *("fruit", "sport", "colour", "emotion", "preposition"),
)
# Half of a list is held out, and a question needs one target and two others from it.
FEWEST_WORDS = 8
REMEDY = "word lists are a JSON object of lists"

Words = dict[str, list[str]]


def load_words(path: str | Path | None = None) -> Words:
    """The word lists by category: ours, or ours with those of a JSON file {category: [word, ...]} in their place.

    The file may be the `categories.json` of the function-vectors data: "color" means colour, and categories that no
    rule asks about (pronoun) are left aside. Repeated words count once.
    """
    ours: Words = json.loads(resources.files("maskwise.tasks").joinpath("words.json").read_text(encoding="utf-8"))
    return ours if path is None else ours | _read_lists(Path(path), read_json(Path(path), REMEDY))


def with_lists(path: Path, content: object) -> Words:
    """Our lists with those that a file holds in their place."""
    return load_words() | _read_lists(path, content)


def split_words(words: Words, held_out: float = 0.5) -> tuple[Words, Words]:
    """(shown, held): every category cut in two, the second part holding that share of its words.

    The same word is on the same side in every category. Test questions use `held` alone, so a model trained on
    `shown` alone, or shown examples from it, has not met the words it is tested on.
    """
    draws = random.Random(0)  # not a draw of the run: models were trained on one side of this very split
    is_held: dict[str, bool] = {}
    for listed in words.values():
        fresh = [word.casefold() for word in listed if word.casefold() not in is_held]
        draws.shuffle(fresh)
        cut = round(len(fresh) * held_out)
        is_held |= {word: place < cut for place, word in enumerate(fresh)}
    shown = {category: [w for w in listed if not is_held[w.casefold()]] for category, listed in words.items()}
    held = {category: [w for w in listed if is_held[w.casefold()]] for category, listed in words.items()}
    return shown, held


def _read_lists(path: Path, content: object) -> Words:
    if not isinstance(content, dict):
        raise UserError(f'{path} must hold one JSON object of lists, like {{"animal": ["ant", ...]}}')
    if "color" in content:
        content["colour"] = content.pop("color")
    known = {category: content[category] for category in CATEGORIES if category in content}
    if not known:
        raise UserError(f"{path} holds none of the categories {', '.join(CATEGORIES)}")
    return {category: checked_list(path, category, listed) for category, listed in known.items()}


def checked_list(path: Path, category: str, listed: object) -> list[str]:
    """The different words of a user's list; refused where it is no list of words or too short."""
    if not isinstance(listed, list) or not all(isinstance(word, str) and word.strip() for word in listed):
        raise UserError(f'{path}: "{category}" must be a list of words')
    first_spelling: dict[str, str] = {}
    for word in listed:
        first_spelling.setdefault(word.strip().casefold(), word.strip())
    if len(first_spelling) < FEWEST_WORDS:
        raise UserError(f'{path}: "{category}" has {len(first_spelling)} different words, {FEWEST_WORDS} are needed')
    return list(first_spelling.values())
