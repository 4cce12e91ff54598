"""Whether a loss can be shown: the exact binomial test against guessing, and questions that are too easy."""

from fractions import Fraction
from math import comb

import pytest

from maskwise.scoring.skill import task_skill

NO_CHANGE = [(-0.06, 0.06)]


def by_guessing(right: int, n: int) -> Fraction:
    """P(at least `right` of n), guessing among three, by summing all terms."""
    return sum((comb(n, k) * Fraction(1, 3) ** k * Fraction(2, 3) ** (n - k) for k in range(right, n + 1)), Fraction(0))


@pytest.mark.parametrize(("right", "n"), [(0, 35), (12, 35), (20, 35), (35, 35), (0, 1), (1, 1), (540, 1600)])
def test_the_p_value_is_that_of_the_exact_binomial_test(right: int, n: int) -> None:
    assert task_skill(right, n).p == pytest.approx(float(by_guessing(right, n)), rel=1e-9)


@pytest.mark.parametrize(
    ("right", "n", "skill"),
    [
        (0, 35, "unskilled"),  # below guessing: the answer is not even one of the options
        (0, 3, "undecided"),  # three questions exclude nothing
        (12, 35, "undecided"),  # what guessing gives; a model with 50 % is not excluded
        (533, 1600, "unskilled"),  # the same of many questions
        (20, 35, "skilled"),
        (35, 35, "skilled"),  # nothing was compared with it yet
    ],
)
def test_more_questions_are_asked_for_only_where_they_can_help(right: int, n: int, skill: str) -> None:
    found = task_skill(right, n)
    assert found.skill == skill
    assert found.shown == (found.p < 0.05)


def test_the_upper_bound_is_exact() -> None:
    """With 0 of n right it is the rate at which that still happens in one run of twenty."""
    assert (1 - task_skill(0, 35).high) ** 35 == pytest.approx(0.05)
    assert task_skill(35, 35).high == 1


@pytest.mark.parametrize(
    ("right", "changes", "skill"),
    [
        (35, NO_CHANGE, "saturated"),
        (34, NO_CHANGE, "saturated"),
        (33, NO_CHANGE, "skilled"),  # 94 %: a loss could be seen
        (35, [*NO_CHANGE, (-0.4, -0.1)], "skilled"),  # and was
        (35, [*NO_CHANGE, (-0.4, 0.1)], "skilled"),  # too few questions to call it easy
        (35, [(None, None)], "skilled"),
    ],
)
def test_a_task_is_too_easy_where_nearly_all_is_right_and_nothing_is_lost(right, changes, skill) -> None:
    assert task_skill(right, 35, changes=changes).skill == skill


def test_where_guessing_is_not_known_one_right_answer_shows_skill() -> None:
    assert task_skill(1, 100, 0.0).skill == "skilled"
    assert task_skill(0, 100, 0.0).skill == "unskilled"
    assert task_skill(0, 20, 0.0).skill == "undecided"
