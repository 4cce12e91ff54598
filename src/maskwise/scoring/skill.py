"""Skill at the baseline: whether a loss of accuracy can be shown at all.

No loss is found in a model that guesses, nor if every question is easy. `task_skill` decides which of the two it is,
for every report, comparison and advice.
"""

from collections.abc import Iterable
from typing import Annotated, Literal

import scipy  # scipy.special
from msgspec import Meta

from maskwise.scoring.claims import LEVEL
from maskwise.scoring.intervals import Ends
from maskwise.scoring.scores import LEAST_SKILL
from maskwise.support.typed import Count, Typed
from maskwise.tasks.episodes import CHANCE

SATURATED = 0.97  # accuracy at the baseline from which a task without a loss is too easy
LARGE_LOSS = 0.25  # about what LLaDA loses to 200 masks in the paper (.23 and .27)

Ability = Literal["unskilled", "undecided", "skilled", "saturated"]


class Skill(Typed, frozen=True, kw_only=True):
    """Right answers at a baseline compared with guessing, by an exact binomial test."""

    skill: Annotated[Ability, Meta(description="unskilled and undecided: not shown to be above guessing")]
    n: Annotated[Count, Meta(description="answers at the baseline")]
    right: Annotated[Count, Meta(description="of these, right ones")]
    guessing: Annotated[float, Meta(description="accuracy of guessing; 0 where it is not known")]
    p: Annotated[float, Meta(description="probability of as many right answers by guessing")]
    high: Annotated[float, Meta(description="exact 95 % upper bound of the accuracy")]

    @property
    def shown(self) -> bool:
        """Whether the model is shown to be able to do the task."""
        return self.skill in ("skilled", "saturated")


def task_skill(
    right: int, n: int, guessing: float = CHANCE, changes: Iterable[Ends] = (), level: float = LEVEL
) -> Skill:
    """The skill that `right` of `n` answers show.

    skilled: more are right than guessing explains (one-sided exact binomial test at `level`). unskilled: the upper
    bound lies less than .05 above guessing, so that more questions will not help. undecided: neither, ask more.
    saturated: skilled, at least 97 % right, and no loss among the changes from here, of which none may be large.

    changes: 95 % intervals of the changes of accuracy from this baseline, as shares.
    """
    p = float(scipy.special.bdtrc(right - 1, n, guessing)) if right > 0 else 1.0
    high = float(scipy.special.betaincinv(right + 1, n - right, 1 - LEVEL)) if right < n else 1.0
    found: Ability = "undecided"
    if p < level:
        known = [(low, high) for low, high in changes if low is not None and high is not None]
        none_lost = bool(known) and all(high >= 0 and low > -LARGE_LOSS for low, high in known)
        found = "saturated" if right >= SATURATED * n and none_lost else "skilled"
    elif high < guessing + LEAST_SKILL:
        found = "unskilled"
    return Skill(skill=found, n=n, right=right, guessing=guessing, p=p, high=high)
