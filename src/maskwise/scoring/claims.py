"""A paper's claims judged from a run's records: what was measured, its 95 % interval, and a verdict.

A claim has two numbers: `nothing`, its value under the null hypothesis, and `asked`, the value that it requires (ours
where the paper says only "almost" or "close to"). If the whole interval is beyond both, it holds; beyond `nothing`
alone, it is in direction; wholly short of `asked`, it is rejected; otherwise, and without skill above guessing, it is
inconclusive.

A run judges many claims at once, so the verdicts are those of Holm's procedure (1979) over the whole table, at 5 %:
each claim's value is tested (two-sided) against what is asked, and against `nothing` where that is another number; of
these m tests the one with the smallest p-value must have p < .05 / m, the next p < .05 / (m - 1), and so on until one
fails. The intervals shown are those of each claim alone, and so is `alone`, its verdict by itself; `p` is the adjusted
p-value of the test against what is asked.

Differences are taken within a point (a question, or a piece of text), so they are paired. Intervals are the primary
ones of intervals.py: Student's over the points within tasks. Where no point differs from another, a share of them (the
exact bound of none in so many) may lie anywhere within the bounds of the measure.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import numpy as np
import scipy  # scipy.stats, which takes a second to import, is imported when it is first used
from msgspec import UNSET, Meta, UnsetType, structs

from maskwise.records.record import Record
from maskwise.scoring import intervals
from maskwise.scoring.contrasts import Answers, ConditionWeights
from maskwise.scoring.intervals import Bounds, Estimate, stratified_mean
from maskwise.scoring.scores import LEAST_SKILL
from maskwise.support.typed import Typed
from maskwise.tasks.episodes import CHANCE

Verdict = Literal["holds", "in direction", "rejected", "inconclusive"]
Strata = dict[str, np.ndarray]

LEVEL = 0.05


class ClaimTest(Typed, frozen=True, kw_only=True):
    """What a claim is tested by: standard error, degrees of freedom, bounds of the measure, skill, effective points."""

    error: float | None
    free: float | None
    bounds: Bounds | None
    enough: bool
    points: float


class Claim(Typed, frozen=True, kw_only=True):
    """A paper's claim with what was measured and its verdict. `less` and `test` are there until `holm` has judged."""

    name: Annotated[str, Meta(description="finding and number of relevant examples in one")]
    claim: Annotated[str, Meta(description="in words")]
    measure: Annotated[str, Meta(description="what was measured")]
    unit: Annotated[str, Meta(description="of the value")]
    n: Annotated[int, Meta(description="pieces of text, or questions")]
    value: Annotated[float, Meta(description="the mean")]
    low: Annotated[float | None, Meta(description="lower end of the 95 % interval")]
    high: Annotated[float | None, Meta(description="upper end")]
    nothing: Annotated[float, Meta(description="the value under the null hypothesis")]
    asked: Annotated[float, Meta(description="the value that the claim requires")]
    less: Annotated[bool | UnsetType, Meta(description="is the claim that the value is small?")] = UNSET
    verdict: Annotated[Verdict, Meta(description="by Holm's procedure over all claims of the run")]
    alone: Annotated[Verdict, Meta(description="the verdict by the claim's own interval")]
    p: Annotated[float | None, Meta(description="its adjusted p-value")] = None
    test: ClaimTest | UnsetType = UNSET
    skill: Annotated[float | UnsetType, Meta(description="of coherence: the skill that the value is a share of")] = (
        UNSET
    )
    nats: Annotated[Estimate | UnsetType, Meta(description="the same difference in nats")] = UNSET
    nats_content: Annotated[Estimate | UnsetType, Meta(description="of the content alone")] = UNSET
    finding: Annotated[str | UnsetType, Meta(description="the claim, for any number of examples")] = UNSET
    relevant: Annotated[int | UnsetType | None, Meta(description="relevant examples; null: the paper's 10")] = UNSET


def verdict(low: float | None, high: float | None, nothing: float, asked: float, less: bool = False) -> Verdict:
    """By the interval alone. `less`: the claim is that the value is small. Without an interval it is inconclusive."""
    if low is None or high is None:
        return "inconclusive"
    if less:
        low, high, nothing, asked = -high, -low, -nothing, -asked
    asked = max(asked, nothing)
    if low > asked:
        return "holds"
    if low > nothing:
        return "in direction"
    return "rejected" if high < asked else "inconclusive"


def judged(
    name: str,
    claim: str,
    measure: str,
    values: Sequence[float] | Strata,
    unit: str,
    nothing: float = 0.0,
    asked: float = 0.0,
    less: bool = False,
    bounds: Bounds | None = None,
    enough: bool = True,
) -> Claim:
    """A claim about the mean of these values (of one task, or by task), judged by itself: `holm` judges the table.

    bounds: the smallest and the largest a value can be. enough: whether there is skill enough to judge by.
    """
    strata = values if isinstance(values, dict) else {"": np.array(values, dtype=float)} if len(values) else {}
    points = sum(map(len, strata.values()))
    mean, low, high = intervals.bounded_mean(strata, bounds) if points else (math.nan, None, None)
    error, free = (intervals.mean_error(strata) if points else None) or (None, None)
    alone = verdict(low, high, nothing, asked, less) if enough else "inconclusive"
    return Claim(
        name=name,
        claim=claim,
        measure=measure,
        unit=unit,
        n=points,
        value=mean,
        low=low,
        high=high,
        nothing=nothing,
        asked=asked,
        less=less,
        verdict=alone,
        alone=alone,
        test=ClaimTest(error=error, free=free, bounds=bounds, enough=enough, points=effective(strata)),
    )


def effective(strata: Strata) -> float:
    return intervals.effective_points(intervals.points_of(strata)) if strata else 0.0


# Holm's procedure


def holm(claims: Sequence[Claim]) -> list[Claim]:
    """The claims with the verdicts that stand when all of the table is judged at once."""
    tests = [
        (number, against, p_value(claim, against))
        for number, claim in enumerate(claims)
        for against in sorted({claim.nothing, bar(claim)})
    ]
    known = {(number, against): p for number, against, p in tests if p is not None}
    adjusted = dict(zip(known, holm_adjusted(list(known.values())), strict=True))
    return [_rejudged(claim, number, adjusted) for number, claim in enumerate(claims)]


def holm_adjusted(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values of these tests, in their order: each is significant where its own is below the level."""
    adjusted, largest = [1.0] * len(p_values), 0.0
    for rank, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[number]))
        adjusted[number] = largest
    return adjusted


def _rejudged(claim: Claim, number: int, adjusted: Mapping[tuple[int, float], float]) -> Claim:
    sign = -1 if claim.less is True else 1

    def side(against: float) -> int:
        """+1 where the value lies beyond it on the claim's side, -1 on the other, 0 where that is not certain."""
        p = adjusted.get((number, against))
        return 0 if p is None or p >= LEVEL else int(math.copysign(1, sign * (claim.value - against)))

    of_asked, of_nothing = side(bar(claim)), side(claim.nothing)
    found: Verdict = "inconclusive"
    if of_asked > 0:
        found = "holds"
    elif of_nothing > 0:
        found = "in direction"
    elif of_asked < 0:
        found = "rejected"
    adjusted_p = adjusted.get((number, bar(claim)))
    return structs.replace(claim, verdict=found, p=adjusted_p, less=UNSET, test=UNSET)


def bar(claim: Claim) -> float:
    """The threshold that the value must exceed (or stay below) for the claim to hold."""
    beyond = min if claim.less is True else max
    return float(beyond(claim.asked, claim.nothing))


def p_value(claim: Claim, against: float) -> float | None:
    """Two-sided: the level at which the interval's end would lie at `against`. None without an interval or skill."""
    test, value = claim.test, claim.value
    if test is UNSET or not test.enough or claim.low is None or math.isnan(against):
        return None
    if test.error is not None:
        return float(2 * scipy.stats.t.sf(abs(value - against) / test.error, test.free))
    assert test.bounds is not None  # without them a claim of values that never vary has no interval
    room = value - test.bounds[0] if value > against else test.bounds[1] - value
    share = min(1.0, abs(value - against) / room) if room > 0 else 1.0
    return float((1 - share) ** test.points)


# Claims about few-shot questions: a weighted sum of what a point gave under several conditions


def contrast_claim(
    name: str,
    claim: str,
    measure: str,
    records: Sequence[Record],
    weights: ConditionWeights,
    chance: float = CHANCE,
    enough: bool = True,
) -> Claim:
    """The claim that a difference in accuracy is above zero, with the same difference in nats.

    "nats" and, where the records hold it, "nats_content" are the differences of the right answer's negative
    log-likelihood and of its part that is no matter of format, with the sign of the claim: above zero is in its favour.
    It is inconclusive where the best of the conditions is less than .05 above chance.
    """
    most, least = (sum(max(0.0, sign * weight) for weight in weights.values()) for sign in (1, -1))
    answers = Answers(records)
    enough = enough and best_accuracy(answers, weights) - chance >= LEAST_SKILL
    strata = answers.sums(weights, "correct")
    found = judged(name, claim, measure, strata, "points", bounds=(-least, most), enough=enough)
    more = {}
    for key, field in (("nats", "nll"), ("nats_content", "nll_choice")):
        if strata := answers.sums(weights, field):
            more[key] = Estimate.of(stratified_mean({task: -nats for task, nats in strata.items()}))
    return structs.replace(found, **more)


def best_accuracy(answers: Answers, weights: ConditionWeights) -> float:
    """The highest accuracy among the weighted conditions."""
    return max((float(answers.of[key].column("correct").mean()) for key in weights if key in answers.of), default=0.0)


def clearly_above_zero(strata: Strata) -> bool:
    """Whether the mean over tasks is above zero beyond its interval; of values that never vary, whether it is."""
    if not strata:
        return False
    mean, low, _ = stratified_mean(strata)
    return mean > 0 if low is None else low > 0
