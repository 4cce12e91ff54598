"""Ratios of accuracies against the formulas written out, and their intervals by their laws."""

import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.tables import questions
from maskwise.probes.library.mask_count import of_masks
from maskwise.scoring.estimates import QUESTION, ratio, recovered
from maskwise.scoring.intervals import none_seen
from maskwise.scoring.scores import NO_SKILL, TOO_LITTLE_LOSS, relative_loss, share_of_skill

CHANCE = 1 / 3


def table(tasks=("t1", "t2"), points=100, **right):
    """`right` of `points` answered right in each task, by number of masks: k2=90."""
    rows = [
        {"task": task, "point": point, "masks": int(k[1:]), "correct": float(point < count), "nll": 1.0}
        for k, count in right.items()
        for task in tasks
        for point in range(points)
    ]
    return pd.DataFrame(rows, columns=[*QUESTION, "masks", "correct", "nll"])


def scores(answers):
    """What mask-count says of a table: mask tax, degradation, nats."""
    named = {one.name.partition(" over")[0]: one for one in of_masks(answers)}
    return named.get("mask tax"), named.get("degradation"), named.get("nats lost to masks")


def tax_of(answers):
    return scores(answers)[0]


def test_formulas_by_hand():
    a = {1: 0.95, 2: 0.90, 5: 0.80, 50: 0.60, 200: 0.40}
    tax, lost, _ = scores(table(k1=95, k2=90, k5=80, k50=60, k200=40))
    assert tax.value == pytest.approx(1 - np.mean([(a[k] - CHANCE) / (a[2] - CHANCE) for k in (5, 50, 200)]))
    assert lost.value == pytest.approx((0.95 - 0.40) / 0.95)


def test_nats_lost_by_hand():
    nats = {2: 0.5, 20: 0.7, 200: 1.5}
    answers = table(points=3, k2=3, k20=3, k200=3)
    answers["nll"] = answers.masks.map(nats) + 0.01 * answers.point
    assert scores(answers)[2].value == pytest.approx(((0.7 - 0.5) + (1.5 - 0.5)) / 2)


def test_there_is_no_share_of_what_is_not_there():
    assert tax_of(table(k2=38, k50=90)).why == NO_SKILL  # .38 is less than .05 above chance
    assert tax_of(table(k2=39, k50=30)).value is not None
    assert scores(table(k1=38, k2=30, k5=30))[1].why == NO_SKILL
    assert of_masks(table(k1=90, k5=80)) == of_masks(table(k2=90)) == []
    few, most, after = (questions([1] * right + [0] * (100 - right)) for right in (90, 50, 80))
    assert recovered("", few, most, after).value == pytest.approx(0.75)
    assert recovered("", most + 0.01, most, after).why == TOO_LITTLE_LOSS
    assert recovered("", few[:0], most, after).value is None


def test_lowering_the_accuracy_with_few_masks_recovers_nothing():
    few, most = questions([1] * 90 + [0] * 10), questions([1] * 50 + [0] * 50)
    assert recovered("", few, most, most).value == 0


@settings(max_examples=10)
@given(st.lists(st.tuples(st.integers(60, 100), st.integers(40, 100)), min_size=2, max_size=6))
def test_an_interval_holds_its_value_and_is_the_same_each_time(tasks):
    answers = pd.concat([table([f"t{number}"], k2=two, k50=many) for number, (two, many) in enumerate(tasks)])
    found = tax_of(answers)
    assert found.low <= found.value <= found.high
    assert found == tax_of(answers[::-1])


def test_the_interval_of_one_task_is_as_wide_as_the_binomial():
    """One task, k=2 always right: the tax is a linear map of a binomial share, whose spread is known."""
    points, right = 400, 280
    found = tax_of(table(["t"], points, k2=points, k9=right))
    spread = np.sqrt(0.7 * 0.3 / points) / (2 / 3)
    assert found.value == pytest.approx(1 - (0.7 - CHANCE) / (2 / 3))
    assert found.high - found.low == pytest.approx(2 * 1.96 * spread, rel=0.1)


@pytest.mark.parametrize("counts", [(1, 2, 5, 20, 100), (1, 2, 5, 10, 20, 50, 100, 200)])
def test_a_perfect_model_loses_nothing_whatever_the_counts(counts):
    tax, lost, _ = scores(table("ab", 9, **{f"k{k}": 9 for k in counts}))
    unseen = none_seen(18)
    assert (tax.value, tax.n) == (lost.value, lost.n) == (0, 18)
    # A share of 1 - .05^(1/18) of the points may be wrong under all but one of the conditions, or under one.
    assert lost.low == 0 and lost.high == pytest.approx(unseen)
    assert tax.high == pytest.approx(unseen / (2 / 3)) and tax.low < 0


def test_answers_that_change_places_within_their_tasks_are_not_called_the_same():
    answers = table("abcd", 20, k2=0, k50=0)
    answers["correct"] = (((answers.point + (answers.masks > 2)) % 2 == 0) | (answers.point > 3)).astype(float)
    found = tax_of(answers)
    assert found.value == 0 and found.low < 0 < found.high


def test_the_luck_of_the_best_and_the_worst_is_no_degradation():
    """Seven accuracies differ by luck alone: the draws of (max - min) / max all lie above 0, its low end does not."""
    right = np.random.default_rng(0).random((2, 50, 7)) < 0.8
    answers = table(points=50, **{f"k{k}": 0 for k in (1, 2, 5, 10, 20, 50, 100)})
    order = answers.sort_values(["task", "point", "masks"]).index
    answers.loc[order, "correct"] = right.astype(float).ravel()
    found = scores(answers)[1]
    columns = answers.set_index([*QUESTION, "masks"]).correct.unstack("masks")
    assert found.low == 0 < found.value < found.high and ratio("", columns, relative_loss).low > 0.02


def test_one_point_has_no_interval():
    found = tax_of(table(["t"], 1, k2=1, k9=0))
    assert (found.value, found.low, found.high) == (pytest.approx(1.5), None, None)


def test_over_tasks_the_interval_of_a_difference_is_students():
    """Of a formula that is linear, the jackknife values are the tasks' own."""
    right = table("abcd", k2=90, k50=60)
    gone = right.correct.where((right.task != "a") | (right.masks == 2), 0.0)
    columns = right.assign(correct=gone).set_index([*QUESTION, "masks"]).correct.unstack("masks")
    found = ratio("", columns, lambda a: a[:, 1] - a[:, 0])
    own = np.array([-0.9, -0.3, -0.3, -0.3])
    half = 3.182446 * own.std(ddof=1) / 2
    assert (found.value, found.tasks_low, found.tasks_high) == pytest.approx(
        (-0.45, -0.45 - half, -0.45 + half), abs=1e-6
    )


def test_points_that_a_stopped_run_did_not_reach_are_left_out():
    whole = table(k2=90, k50=60)
    part = whole[(whole.masks != 2) | (whole.point < 50)]
    assert tax_of(part).value == pytest.approx(0) != tax_of(whole).value


def test_a_million_points_cost_what_their_patterns_cost():
    draws = np.random.default_rng(0)
    index = pd.MultiIndex.from_product([range(16), range(60_000)], names=QUESTION)
    answers = pd.DataFrame((draws.random((960_000, 8)) < 0.8).astype(float), index)
    before = time.perf_counter()
    found = ratio("", answers, lambda accuracy: accuracy[:, 0] - accuracy[:, 1:].mean(1))
    assert time.perf_counter() - before < 20
    assert found.n == 960_000 and found.high - found.low < 0.004


def test_degradation_names_the_mask_counts_it_spans():
    assert "degradation over 1, 2, 50 masks" in {one.name for one in of_masks(table(k1=95, k2=90, k50=60))}


def test_what_formulas_are_made_of():
    assert np.isnan(share_of_skill(np.array([0.1]), np.array([0.049]))) and share_of_skill(0.1, 0.2) == 0.5
    assert relative_loss(np.array([[0.9, 0.6, 0.45]])) == pytest.approx(0.5)
