"""What more steps win back, on answers whose accuracies are known."""

import pandas as pd
import pytest

from maskwise.probes.library.steps import by_masks, metrics

POINTS = 40


def table(by_condition, names):
    """Of each task the first `share` of the points right, under each condition."""
    rows = [
        {
            "task": task,
            "point": point,
            **dict(zip(names, condition, strict=True)),
            "relevant": 10,
            "correct": float(point < share * POINTS),
        }
        for condition, share in by_condition.items()
        for task in ("a", "b", "c", "d")
        for point in range(POINTS)
    ]
    return pd.DataFrame(rows)


def measured(one_step, many, few):
    """many: the accuracies with 200 masks in 40 steps, most confident first and in random order."""
    steps = {("confidence", 40, 200): many[0], ("random", 40, 200): many[1]}
    steps |= {("random", 2, masks): share for masks, share in few.items()}
    own = table(steps, ("order", "steps", "masks"))
    others = {"mask-count": table({(masks,): share for masks, share in one_step.items()}, ["masks"])}
    return metrics(own, others), by_masks(own, others)


def test_more_steps_win_back_what_masks_cost():
    found, drawn = measured({2: 0.9, 200: 0.5}, (0.9, 0.7), {2: 0.9, 200: 0.6})
    first, order, degradation = found
    assert first.name == "accuracy with 200 masks in 40 steps, most confident first, less in one step"
    assert (first.value, first.verdict, first.n) == (pytest.approx(0.4), "holds", 160)
    assert (order.value, order.verdict) == (pytest.approx(0.2), "holds")
    assert degradation.name == "degradation in 2 steps" and degradation.value == pytest.approx((0.9 - 0.6) / 0.9)
    assert degradation.low < degradation.value < degradation.high
    assert set(drawn.way) == {"1 step", "2 steps", "40 steps", "40 steps, most confident first"}
    assert drawn[(drawn.way == "1 step") & (drawn.masks == 200)].change.tolist() == pytest.approx([-0.4])


def test_where_masks_cost_nothing_there_is_nothing_to_win_back():
    found, _ = measured({2: 0.5, 200: 0.5}, (0.9, 0.9), {2: 0.9, 200: 0.9})
    assert [one.verdict for one in found[:2]] == ["", "undecided"]
    found, _ = measured({2: 0.9, 200: 0.5}, (0.9, 0.7), {2: 0.9, 300: 0.6})  # few steps were asked with more masks
    assert "with 200 masks in 40 steps" in found[0].name
    found, _ = measured({2: 0.9}, (0.9, 0.7), {2: 0.9, 200: 0.6})  # one step was not asked with 200 masks
    assert "less random order" in found[0].name
