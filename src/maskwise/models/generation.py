"""What goes into `generate` and what comes out: the types that a model's methods share with decoding."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Messages = Sequence[Mapping[str, str]]  # a chat: role and content of each turn, the user's last
Prompt = str | Sequence[int] | Messages


@dataclass(frozen=True)
class Generation:
    """What was generated for one prompt."""

    ids: list[int]  # the new tokens only: those that were masks, from left to right
    text: str  # their text; the whole text where the prompt itself held masks; empty without a tokenizer
    forwards: int  # forward passes this sequence took part in; two per step with guidance
    order: list[int]  # the step of this sequence, from 0, at which each of `ids` was committed
    sequence: list[int]  # the whole canvas, prompt included
