"""Whether answers are more than guessing explains: the exact binomial test."""

from fractions import Fraction
from math import comb

import pytest

from maskwise.scoring.estimates import Estimate
from maskwise.scoring.intervals import p_by_guessing
from maskwise.scoring.verdicts import GUESSING, TOO_FEW, Change


def by_guessing(right: int, n: int) -> Fraction:
    """P(at least `right` of n), guessing among three, by summing all terms."""
    return sum((comb(n, k) * Fraction(1, 3) ** k * Fraction(2, 3) ** (n - k) for k in range(right, n + 1)), Fraction(0))


@pytest.mark.parametrize(("right", "n"), [(0, 35), (12, 35), (20, 35), (35, 35), (0, 1), (1, 1), (540, 1600)])
def test_the_p_value_is_that_of_the_exact_binomial_test(right, n):
    assert p_by_guessing(right, n, 1 / 3) == pytest.approx(float(by_guessing(right, n)), rel=1e-9)


def test_where_guessing_is_not_known_one_right_answer_shows_skill():
    assert p_by_guessing(1, 100, 0.0) == 0 and p_by_guessing(0, 100, 0.0) == 1


@pytest.mark.parametrize(
    ("right", "n", "skill"),
    [
        (0, 35, GUESSING),  # below guessing: the answer is not even one of the options
        (12, 35, GUESSING),
        (533, 1600, GUESSING),
        (16, 40, TOO_FEW),  # 40 %, which few questions do not tell from guessing
        (640, 1600, ""),  # and many do
        (20, 35, ""),
    ],
)
def test_a_baseline_has_skill_where_it_is_above_guessing(right, n, skill):
    assert Change(Estimate("change", 0.0), Estimate("before", right / n, n=n)).skill == skill
