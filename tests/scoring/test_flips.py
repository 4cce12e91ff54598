"""Flips: perturbed logits with a known answer, and the noise between two runs against plain simulation."""

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import binom

from maskwise.scoring.flips import Answered, by_margin, flips, noise_count, run_noise
from maskwise.scoring.intervals import none_seen

QUESTIONS, TOKENS, NOISE = 4000, 3, 0.4


def answered(logits: np.ndarray) -> Answered:
    """The greedy answers of logits [n, V]; token 0 is right."""
    top = np.sort(logits, axis=1)
    texts = [str(token) for token in logits.argmax(1)]
    return Answered(texts, logits.argmax(1) == 0, top[:, -1] - top[:, -2], np.abs(logits).max(1))


def two_runs(noise: float) -> tuple[Answered, Answered]:
    """Two tokens with margins spread over 0 to 3, and a third far below, before and after normal noise."""
    draws = np.random.default_rng(0)
    margins = draws.uniform(0, 3, QUESTIONS)
    sign = draws.choice([-1, 1], QUESTIONS)
    logits = np.stack([sign * margins / 2, -sign * margins / 2, np.full(QUESTIONS, -9.0)], axis=1)
    # Noise of NOISE / sqrt(2) on each logit is noise of NOISE on their difference.
    return answered(logits), answered(logits + draws.normal(0, noise / np.sqrt(2), logits.shape))


def test_perturbed_logits_flip_at_the_predicted_rate_in_every_bin_of_margins():
    before, after = two_runs(NOISE)
    edges = (0.1, 0.3, 0.6, 1.0)
    for one in by_margin(before, after, edges):
        inside = (before.margins >= one.low) & (before.margins < (np.inf if one.high is None else one.high))
        assert one.n == inside.sum()
        expected = ndtr(-before.margins[inside] / NOISE).mean()  # the noise changes the sign of the margin
        low, high = binom.interval(0.9999, one.n, expected)
        assert low <= one.flipped <= high


def test_gross_and_net_flips_and_the_margin_below_which_they_happen():
    before, after = two_runs(NOISE)
    found = flips("one pass", "bfloat16", "reference", before, after, rounding=0.0)
    changed = np.array([one != other for one, other in zip(before.texts, after.texts, strict=True)])
    assert found.flipped == changed.sum() > 0
    assert found.gained - found.lost == after.right.sum() - before.right.sum()
    assert found.margin == before.margins[changed].max()
    assert found.ties == 0
    assert found.flipped_low < changed.mean() < found.flipped_high


def test_without_noise_nothing_flips_and_the_bound_is_exact():
    before, after = two_runs(0.0)
    found = flips("one pass", "repeated", "exact", before, after, rounding=0.0)
    assert (found.flipped, found.gained, found.lost, found.margin, found.ties) == (0, 0, 0, None, 0)
    assert found.flipped_high == none_seen(QUESTIONS)


def test_a_flip_within_rounding_of_the_largest_logit_is_a_tie():
    before = Answered(["A", "A"], np.array([True, True]), np.array([1e-4, 0.5]), np.array([20.0, 20.0]))
    after = Answered(["B", "B"], np.array([False, False]), np.array([1e-4, 0.5]), np.array([20.0, 20.0]))
    assert flips("one pass", "batch", "reference", before, after, rounding=1e-5).ties == 1


@pytest.mark.parametrize("chances", [[0.25], [0.1] * 30, [0.02, 0.3, 0.5, 0.0]])
def test_the_percentile_of_the_noise_is_that_of_all_outcomes_enumerated_or_simulated(chances):
    draws = np.random.default_rng(1)
    uniform = draws.random((200_000, len(chances)))
    chance = np.array(chances)
    total = np.abs(((uniform < chance).astype(int) - (uniform > 1 - chance)).sum(1))
    found = noise_count(chance)
    assert (total <= found).mean() >= 0.949
    assert found == 0 or (total <= found - 1).mean() < 0.951


def test_two_runs_of_a_noisy_model_differ_by_less_than_the_noise_in_95_of_100_pairs():
    draws = np.random.default_rng(2)
    share = np.where(draws.random(300) < 0.1, 0.5, draws.integers(0, 2, 300))  # a tenth of the questions is a coin
    found = run_noise("one pass", "bfloat16", draws.random((6, 300)) < share)
    runs = (draws.random((4000, 300)) < share).mean(1)
    difference = 100 * np.abs(runs[::2] - runs[1::2])
    assert (difference < found.below).mean() >= 0.93
    assert (difference < found.below / 2).mean() < 0.9
    assert found.percentile < found.below <= found.below_high


def test_runs_that_agree_on_all_questions_bound_the_noise_by_what_was_not_seen():
    found = run_noise("one pass", "bfloat16", np.ones((4, 50), dtype=bool))
    assert (found.unstable, found.percentile, found.below) == (0, 0.0, 2.0)
    assert found.below_high == 100 * (noise_count(np.full(50, none_seen(50) / 2)) + 1) / 50
