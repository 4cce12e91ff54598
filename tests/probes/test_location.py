"""Location by hand: locality, nats, and the claims of the first paper, on answers that are known."""

import pandas as pd
import pytest

from maskwise.probes.library.location import metrics

POINTS, CHANCE = 40, 1 / 3
LOCAL = {
    ("right", 0, 0): 0.5,
    ("right", 20, 0): 0.7,
    ("right", 40, 0): 0.95,
    ("left", 0, 0): 0.9,
    ("left", 40, 0): 0.5,
    ("middle", 0, 0): 0.6,
    ("middle", 20, 0): 0.9,
    ("middle", 40, 0): 0.6,
    ("right", 0, 2): 0.6,
    ("right", 40, 2): 0.95,
    ("right", 0, 200): 0.5,
    ("right", 40, 200): 0.55,
}
CHANGE = "change of accuracy with the examples far instead of near"
MIDDLE = "question in the middle: accuracy with the examples nearest less the mean of the other places"
LOWER, NEAR = (
    "change of accuracy with 200 masks instead of 2, " + what for what in ("mean over places", "near less far")
)


def table(shares, seen=1):
    """Of each task the first `share` of the points right; 2 nats for each that is wrong."""
    rows = [
        {"task": task, "point": point, "question": question, "location": at, "masks": masks, "masks_seen": seen}
        | {"correct": float(point < share * POINTS), "nll": 0.1 + 2.0 * (point >= share * POINTS)}
        for (question, at, masks), share in shares.items()
        for task in ("a", "b", "c", "d")
        for point in range(POINTS)
    ]
    return pd.DataFrame(rows)


def measured(shares, seen=1):
    return {one.name: one for one in metrics(table(shares, seen), {})}


def test_by_hand_with_the_question_last():
    found = measured(LOCAL)
    first = next(iter(found.values()))
    assert first.name == CHANGE
    assert first.value == pytest.approx(-0.45) and first.side == -1 and first.n == 160
    assert found["locality"].value == pytest.approx((0.95 - 0.5) / (0.95 - CHANCE))
    assert found["nats lost to distance"].value == pytest.approx(2 * 0.45)


def test_a_distracted_local_model_confirms_the_first_paper():
    found = measured(LOCAL)
    claimed = {name: one for name, one in found.items() if one.claim}
    assert len(claimed) == 6 and {one.verdict for one in claimed.values()} == {"holds"}
    assert found[MIDDLE].value == pytest.approx(0.3)
    assert found[LOWER].value == pytest.approx(-(0.1 + 0.4) / 2)
    assert found[NEAR].value == pytest.approx(-(0.4 - 0.1))


def test_level_and_turned_models():
    level = measured(dict.fromkeys(LOCAL, 0.8))
    assert {one.verdict for one in level.values() if one.claim} == {"undecided"}
    assert all(one.low < 0 < one.high for one in level.values() if one.claim)  # never 0 to 0
    turned = measured({key: 1.4 - share for key, share in LOCAL.items()})
    assert {one.verdict for one in turned.values() if one.claim} == {"does not hold"}


def test_what_was_not_asked_has_no_estimate():
    last = {key: share for key, share in LOCAL.items() if key[0] == "right" and key[2] == 0}
    assert measured({key: share for key, share in last.items() if key[1] == 0}) == {}
    found = measured(last, seen=0)
    assert CHANGE in found and not any(one.claim for one in found.values())  # autoregressive: the paper says a U
    weak = measured({key: 0.35 for key in last})
    assert weak["locality"].value is None and "skill" in weak["locality"].why
