"""Calibration error, AUROC and threshold on predictions whose truth is known."""

import math

import numpy as np
import pytest

from maskwise.scoring.reliability import (
    BINS,
    Predictions,
    auroc,
    calibration_error,
    reliability,
    share_over_sequences,
    threshold,
)


def drawn(seed, sequences=60, length=12, off=0.0, shared=0.0):
    """Predictions that are right with probability sure - off; `shared`: how alike those of one sequence are."""
    draws = np.random.default_rng(seed)
    sure = draws.uniform(0.3, 1.0, (sequences, length))
    own = draws.uniform(size=(sequences, length))
    common = np.repeat(draws.uniform(size=(sequences, 1)), length, axis=1)
    together = draws.uniform(size=(sequences, 1)) < shared
    right = np.where(together, common, own) < sure - off
    return Predictions.of(sure.tolist(), right.astype(int).tolist())


def plug_in_square(found):
    """The textbook estimate, bin by bin."""
    bins = np.minimum((found.sure * BINS).astype(int), BINS - 1)
    return sum(
        (bins == b).mean() * (found.sure[bins == b] - found.right[bins == b]).mean() ** 2 for b in set(bins.tolist())
    )


@pytest.mark.parametrize("shared", [0.0, 0.8])
def test_calibrated_predictions_have_error_zero_within_the_interval(shared):
    found = [calibration_error(drawn(seed, shared=shared)) for seed in range(40)]
    assert sum(low == 0 for _, low, _ in found) >= 37  # 95 % would be 38 of 40
    assert np.mean([value**2 for value, _, _ in found]) < 0.4 * np.mean(
        [plug_in_square(drawn(seed, shared=shared)) for seed in range(40)]
    )


def test_a_calibration_error_is_found_with_its_size():
    found = drawn(1, sequences=300, off=0.2)
    _, low, high = calibration_error(found)
    assert 0.15 < low < 0.2 < high


def test_auroc_counts_pairs_and_ties():
    sure, right = [[0.1, 0.4], [0.4, 0.8], [0.9, 0.4]], [[0, 1], [0, 1], [1, 0]]
    flat, fine = np.concatenate(sure), np.concatenate(right) > 0
    pairs = [(a > b) + (a == b) / 2 for a in flat[fine] for b in flat[~fine]]
    assert auroc(Predictions.of(sure, right))[0] == pytest.approx(np.mean(pairs))
    value, low, high = auroc(Predictions.of([[0.1, 0.9]] * 5, [[0, 1]] * 5))
    assert value == high == 1 and 0.4 < low < 0.6  # 0 of 5 sequences disagree: 1 - .05^(1/5)


def test_a_threshold_is_chosen_on_one_half_and_verified_on_the_other():
    found = drawn(2, sequences=400)
    half = found.sequence % 2 == 0
    chosen = threshold(found.where(half))
    assert 0.75 < chosen < 0.85  # sure is uniform above 0.3: the mean above t is (1 + t) / 2
    _, low, high = found.where(~half & (found.sure >= chosen)).share_right()
    assert low < 0.9 < high
    assert threshold(drawn(2, off=0.3)) is None


def test_a_share_over_sequences_counts_predictions_of_one_sequence_as_one_where_they_agree():
    counts = np.full(20, 10.0)
    alike = share_over_sequences(np.where(np.arange(20) < 10, 10.0, 0.0), counts)
    alone = share_over_sequences(np.where(np.arange(20) % 2, 4.0, 6.0), counts)
    assert alike[0] == alone[0] == 0.5 and alike[2] - alike[1] > 2 * (alone[2] - alone[1])
    _, low, high = share_over_sequences(np.zeros(20), counts)
    assert low == 0 and high == pytest.approx(1 - 0.025 ** (1 / 20), abs=0.06)


def test_a_diagram_has_the_bins_with_enough_predictions():
    found = list(reliability(drawn(3, sequences=200)))
    assert [math.floor(BINS * one["x"]) for one in found] == [3, 4, 5, 6, 7, 8, 9]
    assert sum(one["n"] for one in found) == 2400 and sum(one["low"] < one["x"] < one["high"] for one in found) >= 5
