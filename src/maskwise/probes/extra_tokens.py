"""Prompts in which attention to the masks beyond the second is changed (answers/changed_attention.py)."""

from dataclasses import dataclass

from maskwise.tasks.prompts import Prompt

WHOLE = "whole"  # nothing is changed
ANSWER, OTHERS, BOTH = "answer cut", "others cut", "both cut"  # the rows that do not see them
BIASED = "biased"  # minus the log of their number on their keys: together they weigh as much as one


@dataclass(frozen=True)
class ChangedPrompt(Prompt):
    """A prompt whose tokens at `extra` are attended to as `attention` says.

    The answer's row is the one that predicts the answer: for shifted models the one before it. The others are all rows
    but this one and those of the extra tokens, which see everything.
    """

    extra: tuple[int, ...] = ()
    attention: str = WHOLE


def changed(prompt: Prompt, attention: str) -> ChangedPrompt:
    """prompt: in format B."""
    return ChangedPrompt(**vars(prompt), extra=tuple(range(prompt.row + 2, len(prompt.ids))), attention=attention)
