"""Prompts with extra tokens, masks or fillers, in several places, and how attention to them is changed.

Format B with two masks, and `count` extra tokens: behind the masks, at the front, in the middle or scattered. The
prompt knows where they stand, so that attention to them can be changed (`answers/changed_attention.py`).
"""

import random
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from maskwise.tasks.prompts import Encoded, Prompt, opened

END, FRONT, MIDDLE, SCATTERED = "end", "front", "middle", "scattered"
PLACES = (END, FRONT, MIDDLE, SCATTERED)

WHOLE = "whole"  # nothing is changed
ANSWER, OTHERS, BOTH = "answer cut", "others cut", "both cut"  # the rows that do not see the extra tokens
BIASED = "biased"  # minus the log of their number on their keys: together they weigh as much as one
ONE_POSITION = "one position"  # the rotary position of all is that of the first
CUTS = (WHOLE, ANSWER, OTHERS, BOTH)
CHANGES = (*CUTS, BIASED, ONE_POSITION)


@dataclass(frozen=True)
class ChangedPrompt(Prompt):
    """A prompt whose tokens at `extra` are attended to as `attention` says (one of CHANGES).

    The answer's row is the one that predicts the answer: for shifted models the one before it. The others are all rows
    but this one and those of the extra tokens, which see everything.
    """

    extra: tuple[int, ...] = ()
    attention: str = WHOLE


def question_starts(parts: Sequence[int]) -> list[int]:
    """The start of each question, given the number of the question of each token."""
    return [place for place, part in enumerate(parts) if part >= 0 and (place == 0 or parts[place - 1] != part)]


def slots(place: str, count: int, starts: Sequence[int], length: int, draws: random.Random) -> list[int]:
    """Before which token each extra token is put, ascending; scattered: each before a question drawn at random."""
    if place == SCATTERED:
        return sorted(draws.choices(starts, k=count))
    return [{END: length, FRONT: starts[0], MIDDLE: starts[len(starts) // 2]}[place]] * count


def with_extra(
    prompt: ChangedPrompt, before: Sequence[int], token: int, is_mask: bool, attention: str
) -> ChangedPrompt:
    """The prompt with `token` put in before each of these places (ascending)."""
    ids: list[int] = []
    done = 0
    for place in before:
        ids += [*prompt.ids[done:place], token]
        done = place
    return replace(
        prompt,
        ids=(*ids, *prompt.ids[done:]),
        row=prompt.row + bisect_right(before, prompt.row),
        masks=prompt.masks + len(before) * is_mask,
        extra=tuple(place + number for number, place in enumerate(before)),
        attention=attention,
    )


def two_masks(encoded: Encoded, mask_id: int | None) -> ChangedPrompt:
    return ChangedPrompt(**vars(opened(encoded, mask_id, 2)))
