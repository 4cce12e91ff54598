"""The smallest difference in accuracy that a run of n paired questions detects: 80 % power, 5 % two-sided.

The same question is asked under both conditions; d is the share of questions whose answer becomes right or wrong. A
difference D is detected with power 1 - b at level a where (Connor 1987, Biometrics 43, 207-211)

    D sqrt(n) = z(1 - a/2) sqrt(d) + z(1 - b) sqrt(d - D^2)

d is not known before a run: 10 % or less in models that masks hardly change, about 30 % in the planted model.
"""

import math
from statistics import NormalDist
from typing import Annotated

from msgspec import Meta

from maskwise.support.typed import Typed

POWER, LEVEL = 0.8, 0.05
DISCORDANCES = (0.1, 0.3)
Z_LEVEL, Z_POWER = 1.959964, 0.841621  # quantiles .975 and .8 of the normal law; scipy takes a second to import


class DetectableDifference(Typed, frozen=True, kw_only=True):
    probe: Annotated[str, Meta(description="the probe")]
    questions: Annotated[int, Meta(description="questions asked under both conditions of a difference")]
    few_change: Annotated[float, Meta(description="smallest difference detected if 10 % of the answers change")]
    many_change: Annotated[float, Meta(description="the same if 30 % change")]


def smallest_detectable(questions: int, discordance: float) -> float:
    """Of so many paired questions; where `discordance` is too small for any, the smallest with all changes one way."""
    n = float(max(1, questions))
    root = math.sqrt(max(0.0, n + Z_POWER**2 - Z_LEVEL**2))
    per_root = (Z_LEVEL * math.sqrt(n) + Z_POWER * root) / (n + Z_POWER**2)
    return min(1.0, per_root * max(math.sqrt(discordance), per_root))


def questions_for(difference: float, discordance: float, tests: int = 1) -> int:
    """How many paired questions detect such a difference; the reverse of `smallest_detectable`.

    tests: of so many by Holm's procedure, whatever the others give.
    """
    share, z_level = max(discordance, difference), NormalDist().inv_cdf(1 - LEVEL / (2 * tests))
    return math.ceil(((z_level * math.sqrt(share) + Z_POWER * math.sqrt(share - difference**2)) / difference) ** 2)


def detectable(probe: str, questions: int) -> DetectableDifference:
    few, many = (smallest_detectable(questions, share) for share in DISCORDANCES)
    return DetectableDifference(probe=probe, questions=questions, few_change=few, many_change=many)


def power_in_words(found: DetectableDifference) -> str:
    """`mask-count, 300 questions: 5.1 points if 10 % of the answers change, 8.8 if 30 %`"""
    few, many = f"{100 * found.few_change:.1f} points", f"{100 * found.many_change:.1f}"
    first, second = (f"{100 * share:.0f}\u00a0%" for share in DISCORDANCES)
    return f"{found.probe}, {found.questions:,} questions: {few} if {first} of the answers change, {many} if {second}"
