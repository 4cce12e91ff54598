"""The word sets of the studies: those that `maskwise diagnose --words unfamiliar-1` (set I) and `unfamiliar-2` name."""

from typing import Literal

from maskwise.tasks.word_sources import WordSet
from maskwise.tasks.word_sources import load_sets as load_named_sets

Part = Literal["I", "II"]
NAMES: dict[Part, str] = {"I": "unfamiliar-1", "II": "unfamiliar-2"}


def load_sets(part: Part) -> list[WordSet]:
    """The twelve sets of one part, in a fixed order."""
    return list(load_named_sets(NAMES[part]))
