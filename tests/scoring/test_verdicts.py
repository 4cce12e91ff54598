"""Every branch of the rule of verdicts, by closed examples."""

import numpy as np
import pytest

from helpers.tables import questions
from maskwise.scoring import verdicts as rule
from maskwise.scoring.estimates import POINTS, SHARE, Estimate, mean
from maskwise.scoring.verdicts import Change, Verdict, holm, side_by_side, verdict, verdicts


def change(value, low, high, n=256, right=0.9, p=None):
    return Change(Estimate("change", value, low, high, n, POINTS, p=p), Estimate("before", right, n=n, unit=SHARE))


LOST = change(-0.2, -0.25, -0.15)
LEVEL = change(-0.01, -0.04, 0.02)


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (LOST, "LOSS"),
        (change(0.1, 0.05, 0.15, right=0.5), "GAIN"),
        (LEVEL, "none detected"),
        (change(-0.02, -0.1, 0.06), "none detected"),
        (change(-0.02, -0.101, 0.06), "cannot tell, too few questions"),
        (change(0.0, -0.01, 0.01, right=1.0), "none detected"),  # near 100 % is no doubt about "no loss"
        (change(0.0, -0.04, 0.04, right=1 / 3), "cannot tell, guessing"),
        (change(0.0, -0.04, 0.04, right=0.4, n=40), "cannot tell, too few questions"),  # to tell it from guessing
        (change(-0.3, -0.35, -0.25, right=1 / 3), "LOSS"),  # answers that are no letters any more
        (change(0.3, 0.25, 0.35, right=1 / 3), "GAIN"),
        (change(-0.9, -1.0, -0.5, n=9), "too few questions"),  # numbers, no verdict
        (change(None, None, None, n=0), "too few questions"),
    ],
)
def test_a_change(one, expected):
    assert str(verdict(one)) == expected


@pytest.mark.parametrize(
    ("masks", "stops", "beyond", "expected"),
    [
        (LOST, change(-0.02, -0.05, 0.01), (-0.24, -0.12), "LOSS, mostly the masks"),
        (LOST, change(0.05, 0.01, 0.1), (-0.3, -0.2), "LOSS, mostly the masks"),
        (LOST, change(-0.1, -0.15, -0.05), (-0.15, -0.05), "LOSS, partly the masks"),
        (LOST, change(-0.2, -0.25, -0.15), (-0.05, 0.05), "LOSS, any text costs as much"),
        (LOST, change(-0.3, -0.35, -0.25), (0.05, 0.15), "LOSS, any text costs as much"),
        (LOST, change(-0.1, -0.3, 0.1), (-0.3, 0.1), "LOSS, masks or any text: cannot tell"),
        (LEVEL, change(-0.3, -0.35, -0.25), (0.2, 0.3), "none detected, text after the answer costs, masks do not"),
        (LEVEL, LEVEL, (-0.1, 0.1), "none detected"),
        (change(-0.05, -0.2, 0.1), LOST, (0.0, 0.2), "cannot tell, too few questions"),
        (LOST, None, None, "LOSS"),
    ],
)
def test_the_control_qualifies_the_masks_and_never_itself(masks, stops, beyond, expected):
    difference = beyond and Estimate("beyond", sum(beyond) / 2, *beyond, 256, POINTS)
    found = verdicts(masks, stops, beyond_stops=difference)
    assert str(found["masks"]) == expected
    assert stops is None or found["stops"] == verdict(stops)


def test_distance_is_one_of_many_beside_masks_and_leads_without_them():
    distance = change(-0.1, -0.19, -0.01, p=0.03)
    claims = {"order": Estimate("b", 0.1, 0.01, 0.2, 40, claim="above", p=0.04)}
    assert (
        str(verdicts(LOST, distance=distance, claims=claims)["distance"])
        == "cannot tell, not certain after 2 comparisons"
    )
    assert str(verdicts(LOST, distance=distance)["distance"]) == "LOSS"
    assert str(verdicts(None, distance=distance, claims=claims)["distance"]) == "LOSS"  # of an autoregressive model
    assert str(verdicts(LOST, distance=change(0.0, -0.05, 0.05, p=0.9), claims=claims)["distance"]) == "none detected"


@pytest.mark.parametrize(
    ("ends", "expected"),
    [((1.5, 2.1), rule.ONE_AT_A_TIME), ((0.0, 0.01), rule.TOGETHER), ((0.01, 0.2), rule.CANNOT_TELL)],
)
def test_what_neighbours_share(ends, expected):
    assert side_by_side(Estimate("tc", sum(ends) / 2, *ends, 12)).word == expected
    assert verdicts(None, together=Estimate("tc", sum(ends) / 2, *ends, 12))["together"].word == expected


def test_holm_stops_at_the_first_that_is_not_certain():
    claims = {
        name: Estimate(name, 1.0, 0.1, 2.0, 20, claim="above", p=p)
        for name, p in zip("abcd", (0.001, 0.02, 0.03, None), strict=True)
    }
    assert holm(claims) == {"a": True, "b": True, "c": True}
    claims["e"] = Estimate("e", 1.0, 0.1, 2.0, 20, claim="below", p=0.04)
    assert holm(claims) == {"a": True, "b": False, "c": False, "e": False}  # .02 * 3 > .05
    assert holm({}) == {}


def test_noise_is_seldom_called_a_finding():
    """Of tables of twelve estimates of nothing at most 5 % have one that is certain."""
    draws, tables = np.random.default_rng(2), 200
    noise = ({str(n): mean("", questions(draws.normal(size=12))) for n in range(12)} for _ in range(tables))
    wrong = sum(any(holm(table).values()) for table in noise)
    assert wrong / tables < 0.05 + 2 * np.sqrt(0.05 * 0.95 / tables)


@pytest.mark.parametrize(
    ("claim", "ends", "expected"),
    [
        ("above", (0.2, 0.3), "holds"),
        ("above", (0.0, 0.05), "does not hold"),
        ("above", (0.05, 0.3), "undecided"),
        ("below", (0.0, 0.05), "holds"),
        ("below", (0.2, 0.3), "does not hold"),
        ("below", (None, None), "undecided"),
        ("", (0.2, 0.3), ""),
    ],
)
def test_a_claim_holds_where_the_interval_is_beyond_its_threshold(claim, ends, expected):
    assert Estimate("e", 0.1, *ends, 20, against=0.1, claim=claim).verdict == expected


def test_a_verdict_in_words():
    assert str(Verdict(rule.LOSS)) == "LOSS" and str(Verdict(rule.LOSS, rule.MOSTLY)) == "LOSS, mostly the masks"
