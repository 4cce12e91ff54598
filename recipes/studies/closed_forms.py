"""Closed forms of the coherence puzzles, and the test of a measured value against a known one.

The chance that c tokens drawn at once from the ideal model's marginals fit together, with n items of which r are still
masked:

    copy      1                                     one answer, so that tokens cannot disagree
    replace   one step (1 - 1/n)^(n-1) -> 1/e       exactly one item, any one, becomes another word
    shuffle   one step n!/n^n, two tokens a step (n-1)!!/n!!
"""

import math
from collections.abc import Sequence
from typing import Literal

from maskwise.tasks.word_puzzles import Name

Equivalence = Literal["holds", "rejected", "inconclusive"]


def closed_form(name: Name, counts: Sequence[int]) -> float:
    """The chance that the ideal model solves the task when `counts` tokens are drawn in each step (sum: n).

    For any order of the places that does not depend on the tokens drawn.
    """
    if name == "copy":
        return 1.0
    return _shuffled(counts) if name == "shuffle" else _replaced(counts)


def _shuffled(counts: Sequence[int]) -> float:
    """c draws from the r items left are all different with r! / (r-c)! / r^c."""
    chance, left = 1.0, sum(counts)
    for count in counts:
        chance *= math.perm(left, count) / left**count if count else 1.0
        left -= count
    return chance


def _replaced(counts: Sequence[int]) -> float:
    """Each of r masked places is the replaced one with 1/r, as long as none is; once one is, the rest is copying."""
    solved, still_open, left = 0.0, 1.0, sum(counts)
    for count in counts:
        if count == 0:
            continue
        solved += still_open * count / left * (1 - 1 / left) ** (count - 1)
        still_open *= (1 - 1 / left) ** count
        left -= count
    return solved


def equivalence(low: float | None, high: float | None, known: float, margin: float) -> Equivalence:
    """Whether a value equals a known one (a closed form) up to a margin, by two one-sided tests (Schuirmann 1987).

    holds: the whole 95 % interval is within the margin of the known value; rejected: it is wholly beyond; else
    inconclusive. An interval that contains the known value but reaches beyond the margin decides nothing, so few
    questions never make a claim hold. Each one-sided test has level 2.5 %.
    """
    if low is None or high is None:
        return "inconclusive"
    if known - margin <= low and high <= known + margin:
        return "holds"
    return "rejected" if low > known + margin or high < known - margin else "inconclusive"
