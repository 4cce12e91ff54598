"""Calibration of probabilities: calibration error, AUROC and threshold, over sequences.

Predictions of one sequence depend on each other, so intervals resample sequences (a cluster bootstrap) and shares have
the effective number of predictions. With r_b = the mean of (confidence - right) in bin b and w_b the bin's share of the
predictions, the calibration error is the root of the sum of w_b r_b^2. Its plug-in estimate is biased upwards: noise
alone makes r_b^2 positive. Here r_b^2 is estimated by products of different sequences only, which is unbiased (a
U-statistic; Kumar, Liang and Ma, Verified Uncertainty Calibration, arXiv 1909.10155, debias it for independent
predictions). The estimate of the square may be negative: the error is then given as 0.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from maskwise.scoring.intervals import TAILS, Interval, jeffreys_bounds, none_seen
from maskwise.support.randomness import numpy_generator

BINS = 10
RESAMPLES = 1000
WANTED = 0.9  # of the commits at or above the threshold are right
FEWEST = 10  # predictions above a threshold that can be judged
THRESHOLDS = tuple(round(number / 100, 2) for number in range(100))
UNKNOWN: Interval = (None, None, None)


@dataclass(frozen=True)
class Predictions:
    """n predictions of N sequences: of which sequence each is, its probability, and whether it is right."""

    sequence: np.ndarray  # [n] int, 0..N-1
    sure: np.ndarray  # [n]
    right: np.ndarray  # [n] 0 or 1
    sequences: int

    @staticmethod
    def of(sure: Sequence[Sequence[float]], right: Sequence[Sequence[float]]) -> "Predictions":
        """From the lists of each sequence."""
        sequence = np.repeat(np.arange(len(sure)), [*map(len, sure)])
        return Predictions(sequence, np.concatenate([*sure, []]), np.concatenate([*right, []]), len(sure))

    def where(self, kept: np.ndarray) -> "Predictions":
        return Predictions(self.sequence[kept], self.sure[kept], self.right[kept], self.sequences)

    def per_sequence(self, values: np.ndarray) -> np.ndarray:
        """Sums over each sequence, [N]."""
        return np.bincount(self.sequence, values, minlength=self.sequences)

    def share_right(self) -> Interval:
        return share_over_sequences(self.per_sequence(self.right), self.per_sequence(np.ones(len(self.sure))))


def multiplicities(sequences: int) -> np.ndarray:
    """How often each of N sequences occurs in each resample, [RESAMPLES, N]."""
    return numpy_generator("reliability").multinomial(sequences, np.full(sequences, 1 / sequences), size=RESAMPLES)


def bin_of(sure: np.ndarray) -> np.ndarray:
    return np.minimum((sure * BINS).astype(int), BINS - 1)


def calibration_error(found: Predictions) -> Interval:
    """The debiased root mean square of (confidence - right) over BINS bins, with its interval over sequences."""
    bins, n = bin_of(found.sure), found.sequences
    if n < 2 or not len(bins):
        return UNKNOWN
    off, count = np.zeros((n, BINS)), np.zeros((n, BINS))
    np.add.at(off, (found.sequence, bins), found.sure - found.right)
    np.add.at(count, (found.sequence, bins), 1.0)

    def squared(times: np.ndarray) -> np.ndarray:
        """times [m, N]: how often each sequence occurs; products of a sequence with itself are left out."""
        products = (times @ off) ** 2 - (times**2) @ off**2
        counts = times @ count
        return (products / np.maximum(counts, 1.0)).sum(1) / counts.sum(1) * n / (n - 1)

    value = float(squared(np.ones((1, n)))[0])
    resampled = squared(multiplicities(n).astype(float)) * n / (n - 1)
    low, high = np.quantile(resampled, TAILS)
    error, least, most = (float(np.sqrt(max(0.0, one))) for one in (value, min(low, value), max(high, value)))
    return error, least, most


def auroc(found: Predictions) -> Interval:
    """The chance that a right prediction has a higher probability than a wrong one; ties count half."""
    order = np.argsort(found.sure, kind="stable")
    sure, right, sequence = found.sure[order], found.right[order] > 0, found.sequence[order]
    if not len(sure):
        return UNKNOWN
    first = np.flatnonzero(np.r_[True, np.diff(sure) > 0])  # where each group of ties begins

    def area(times: np.ndarray) -> np.ndarray:
        weight = times[:, sequence]
        good, bad = (np.add.reduceat(weight * side, first, axis=1) for side in (right, ~right))
        pairs = good.sum(1) * bad.sum(1)
        below = bad.cumsum(1) - bad / 2
        return np.where(pairs > 0, (good * below).sum(1) / np.maximum(pairs, 1e-12), np.nan)

    n = found.sequences
    value, resampled = float(area(np.ones((1, n)))[0]), area(multiplicities(n).astype(float))
    if np.isnan(value) or n < 2:
        return (None if np.isnan(value) else value), None, None
    low, high = map(float, np.nanquantile(resampled, TAILS))
    if high - low < 1e-9:  # all alike: the exact bound of none in n says how many sequences may be at either end
        unseen = float(none_seen(n))
        low, high = value - unseen * value, value + unseen * (1 - value)
    return value, min(low, value), max(high, value)


def share_over_sequences(right: np.ndarray, counts: np.ndarray) -> Interval:
    """A share of predictions, `right` [N] of `counts` [N] in each sequence: Jeffreys' bounds of the effective number.

    That is the number of independent predictions with the variance found between sequences. Where all are right or none
    is, the predictions of a sequence count as one.
    """
    used = counts > 0
    right, counts, n = right[used], counts[used], int(used.sum())
    if not n:
        return UNKNOWN
    share, total = float(right.sum()) / float(counts.sum()), counts.sum()
    points = float(n)
    variance = ((right - share * counts) ** 2).sum() * n / max(1, n - 1) / total**2
    if n > 1 and variance > 0:
        points = float(np.clip(share * (1 - share) / variance, 1.0, total))
    low, high = jeffreys_bounds(np.array(share), points)
    return share, float(low), float(high)


def threshold(found: Predictions) -> float | None:
    """The least confidence at which nine of ten predictions are right; None where there is none."""
    above = ((one, found.right[found.sure >= one]) for one in THRESHOLDS)
    return next((one for one, right in above if len(right) >= FEWEST and right.mean() >= WANTED), None)


def reliability(found: Predictions) -> Iterator[dict[str, float | None]]:
    """Of each bin with FEWEST predictions or more: the mean confidence x, and the share right of n."""
    bins = bin_of(found.sure)
    for number in range(BINS):
        here = found.where(bins == number)
        if len(here.sure) >= FEWEST:
            value, low, high = here.share_right()
            yield {"x": float(here.sure.mean()), "value": value, "low": low, "high": high, "n": len(here.sure)}
