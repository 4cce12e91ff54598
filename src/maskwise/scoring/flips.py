"""Answers that change under settings that should not matter: flips, the margins at which they happen, their noise.

A flip is an answer that differs from the reference's. Gross: flips over questions. Net: answers that became right less
answers that became wrong, which is what a change of accuracy shows. The margin is the best logit less the second.

Noise between two runs: a question that k of R repeated runs answer right differs between two of them with probability
2 k (R - k) / (R (R - 1)), in either direction alike. The sum over questions, which answer independently, is convolved
exactly; its 95th percentile says how large a difference of accuracy numerical noise makes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from msgspec import Meta

from maskwise.scoring.intervals import CONFIDENCE, TAILS, jeffreys_bounds, none_seen
from maskwise.support.randomness import numpy_generator
from maskwise.support.typed import Typed

RESAMPLES = 400  # of questions, for the interval of the percentile
THOUSAND = 1000


class Flips(Typed, frozen=True, kw_only=True):
    """What one setting changed, compared with its reference."""

    answers: Annotated[str, Meta(description="one pass, or generations")]
    setting: Annotated[str, Meta(description="the one setting that differs")]
    compared_with: Annotated[str, Meta(description="the setting it is compared with")]
    n: Annotated[int, Meta(description="questions asked under both")]
    flipped: Annotated[int, Meta(description="gross flips: answers that differ")]
    flipped_low: Annotated[float, Meta(description="lower end of the 95 % interval of their share")]
    flipped_high: Annotated[float, Meta(description="upper end; of 0 flips the exact one-sided bound")]
    gained: Annotated[int, Meta(description="answers that became right")]
    lost: Annotated[int, Meta(description="answers that became wrong")]
    margin: Annotated[float | None, Meta(description="the largest margin of an answer that changed; null without one")]
    ties: Annotated[int, Meta(description="flips whose margin is within rounding in float32")]


class MarginBin(Typed, frozen=True, kw_only=True):
    """Answers whose margin lies between two ends, and how many of them changed."""

    low: float
    high: Annotated[float | None, Meta(description="null: no upper end")]
    n: int
    flipped: int


class RunNoise(Typed, frozen=True, kw_only=True):
    """How far the accuracy of two runs differs by numerical noise alone, in points."""

    answers: str
    dtype: str
    draws: Annotated[int, Meta(description="repeated runs, each under settings drawn at random")]
    n: Annotated[int, Meta(description="questions")]
    unstable: Annotated[int, Meta(description="questions that some of these runs answer right and others wrong")]
    percentile: Annotated[float, Meta(description="95th percentile of the absolute difference, in points")]
    below: Annotated[float, Meta(description="differences below this, in points, are within numerical noise")]
    below_high: Annotated[float, Meta(description="upper end of its 95 % interval over questions")]
    below_thousand: Annotated[float, Meta(description="the same with 1,000 such questions")]


@dataclass(frozen=True)
class Answered:
    """The answers to n questions under one setting."""

    texts: Sequence[str]
    right: np.ndarray  # [n] bool
    margins: np.ndarray  # [n] best less second logit; nan where it was not measured
    scales: np.ndarray  # [n] the largest absolute logit


def flips(answers: str, setting: str, compared_with: str, before: Answered, after: Answered, rounding: float) -> Flips:
    """The flips of a setting; one is a tie if its margin is at most `rounding` times the largest logit."""
    changed = _changed(before, after)
    n, count = len(changed), int(changed.sum())
    low, high = jeffreys_bounds(np.array(count / n), float(n))
    margins = before.margins[changed]
    return Flips(
        answers=answers,
        setting=setting,
        compared_with=compared_with,
        n=n,
        flipped=count,
        flipped_low=float(low),
        flipped_high=float(high) if count else float(none_seen(n)),
        gained=int((~before.right & after.right).sum()),
        lost=int((before.right & ~after.right).sum()),
        margin=float(np.nanmax(margins)) if np.isfinite(margins).any() else None,
        ties=int((margins <= rounding * before.scales[changed]).sum()),
    )


def _changed(before: Answered, after: Answered) -> np.ndarray:
    return np.array([one != other for one, other in zip(before.texts, after.texts, strict=True)], dtype=bool)


def by_margin(before: Answered, after: Answered, edges: Sequence[float]) -> list[MarginBin]:
    """Flips by the margin of the reference, in bins that begin at 0 and at each of `edges`; empty ones are left out."""
    changed = _changed(before, after)
    place = np.searchsorted(np.array(edges), before.margins, side="right")
    found = []
    for number, (low, high) in enumerate(zip((0.0, *edges), (*edges, None), strict=True)):
        here = changed[place == number]
        if len(here):
            found.append(MarginBin(low=low, high=high, n=len(here), flipped=int(here.sum())))
    return found


def run_noise(answers: str, dtype: str, right: np.ndarray) -> RunNoise:
    """right [R, n]: what each of R repeated runs answered right. The interval resamples questions."""
    draws, n = right.shape
    k = right.sum(0)
    differs = k * (draws - k) / (draws * (draws - 1))  # [n] probability of a difference in one direction
    generator = numpy_generator("numerical noise", n, draws)
    if differs.any():
        counts = [noise_count(differs[generator.integers(0, n, n)]) for _ in range(RESAMPLES)]
        high = int(np.quantile(counts, TAILS[1], method="higher"))
    else:
        high = noise_count(np.full(n, float(none_seen(n)) / 2))
    count = noise_count(differs)
    thousand = np.resize(differs, THOUSAND) if differs.any() else np.zeros(THOUSAND)
    return RunNoise(
        answers=answers,
        dtype=dtype,
        draws=draws,
        n=n,
        unstable=int((differs > 0).sum()),
        percentile=100 * count / n,
        below=100 * (count + 1) / n,
        below_high=min(100.0, 100 * (max(high, count) + 1) / n),
        below_thousand=100 * (noise_count(thousand) + 1) / THOUSAND,
    )


def noise_count(differs: np.ndarray) -> int:
    """The 95th percentile of |sum| of independent terms that are +1 and -1 with probability differs [n] each."""
    total = np.ones(1)
    for chance in differs[differs > 0]:
        total = np.convolve(total, (chance, 1 - 2 * chance, chance))
    middle = len(total) // 2
    absolute = total[middle:].copy()
    absolute[1:] *= 2
    return int(np.searchsorted(absolute.cumsum(), CONFIDENCE - 1e-12))
