"""Word sets whose kinds and words stand in no few-shot training document: questions outside the training distribution.

A set is a pair of kinds: the right option is a word of the first, the two wrong ones are words of the second. Set I is
for development, set II for confirmation (looked at once). No word of them is in tasks/words.json or in the recipes'
few-shot lists. Prose is exempt: the words are common English, so training prose (and the recall documents made of its
words) contains most of them.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Part = Literal["I", "II"]
FILE = Path(__file__).with_name("unfamiliar_sets.json")


@dataclass(frozen=True)
class WordSet:
    """The right option is one of `targets`, the two wrong ones are of `others`."""

    target: str
    other: str
    targets: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.target} among {self.other}"


def load_sets(part: Part) -> list[WordSet]:
    """The twelve sets of one part, in a fixed order."""
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    words = {kind: tuple(listed.split()) for kind, listed in stored["kinds"].items()}
    return [WordSet(target, other, words[target], words[other]) for target, other in stored[part]]
