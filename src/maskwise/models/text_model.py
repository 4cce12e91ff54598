"""A model that gives text alone: a prompt in, its continuation out; no logits, and a tokenizer that is not here."""

from collections.abc import Sequence
from dataclasses import dataclass

from maskwise.models.tokenizers.text_pieces import GAP, TextPieces
from maskwise.records.manifest import ModelDescription

UNKNOWN_WINDOW = 2**31


@dataclass(frozen=True)
class Continuation:
    """What was written. ended: before the number of tokens was used up. tokens: None where that is not known."""

    text: str
    ended: bool
    tokens: int | None = None


class TextModel:
    """What probes plan their questions from, as of a `Model`, and `write` in place of hidden states and head.

    Prompts are in pieces of text, with a gap in the answer's place. infills: text after the gap is read too; else the
    text before it is continued, and what follows is not given. requests: how many may be asked at a time. canvas: the
    masks that an answer is decoded from, None where that is not known. As it is, it plans questions and answers none.
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

    def write(self, before: str, after: str, tokens: int, temperature: float, seed: int) -> Continuation:
        """At most `tokens` tokens after `before` and, where the model infills, in front of `after`."""
        raise NotImplementedError

    def description(self) -> ModelDescription:
        """For the manifest."""
        raise NotImplementedError

    def notes(self) -> list[str]:
        """What a reader of the run must know."""
        return []

    def check_sequence(self, ids: Sequence[int], what: str) -> None:
        """Refuses a prompt that is too long, as far as that can be known."""

    def fill(self, ids: Sequence[int], row: int, tokens: int, temperature: float = 0.0, seed: int = 0) -> Continuation:
        """What the model writes at `row` of a prompt."""
        after = self.tokenizer.decode(ids[row:], skip_special_tokens=True) if self.infills else ""
        return self.write(self.tokenizer.decode(ids[:row]), after, tokens, temperature, seed)
