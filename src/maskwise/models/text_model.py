"""The interface of models that return text only: no logits, and no access to their tokenizer."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from maskwise.models.tokenizers.text_pieces import GAP, TextPieces
from maskwise.records.manifest import ModelDescription

UNKNOWN_WINDOW = 2**31


@dataclass(frozen=True)
class Continuation:
    """Generated text. ended: the model stopped before the token limit. tokens: their number, None if not known."""

    text: str
    ended: bool
    tokens: int | None = None


class TextModel(ABC):
    """A model that probes ask through `write`. They plan its questions from the same attributes as a `Model`'s.

    A prompt consists of pieces of text, with a gap in place of the answer. infills: the model also reads the text after
    the gap; otherwise it continues the text before the gap, and the rest is left out. requests: how many it answers at
    a time. canvas: the number of masks that an answer is decoded from, None if not known.
    """

    mask_id: int = GAP
    causal: bool = True  # no count of masks is varied
    shift: bool = False
    block: int | None = None
    weights: str | None = None
    name: str = ""
    kind: str = "served"
    window: int = UNKNOWN_WINDOW
    requests: int = 1
    canvas: int | None = None

    def __init__(self) -> None:
        self.tokenizer = TextPieces()

    @property
    def infills(self) -> bool:
        return False

    @abstractmethod
    def write(self, before: str, after: str, tokens: int, temperature: float, seed: int) -> Continuation:
        """Generates at most `tokens` tokens after `before` and, if the model infills, before `after`."""

    @abstractmethod
    def description(self) -> ModelDescription:
        """The description that the manifest holds."""

    def notes(self) -> list[str]:
        """Remarks for the manifest and the report."""
        return []

    @abstractmethod
    def check_sequence(self, ids: Sequence[int], what: str) -> None:
        """Refuses a prompt that is too long, if the context length is known."""

    def fill(self, ids: Sequence[int], row: int, tokens: int, temperature: float = 0.0, seed: int = 0) -> Continuation:
        """Generates the text at `row` of a prompt."""
        after = self.tokenizer.decode(ids[row:], skip_special_tokens=True) if self.infills else ""
        return self.write(self.tokenizer.decode(ids[:row]), after, tokens, temperature, seed)
