"""Claims about masks in prose, from tables in which the truth was put by hand."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from maskwise.probes.library import marginals, order, total_correlation
from maskwise.scoring.intervals import none_seen

MASKS, PIECES = 16, 8
MIDDLE = (PIECES - 1) / 2  # the pieces' mean number
ENTROPY, NEIGHBOURS = "entropy, far less near", "distance of neighbours, far"
BETWEEN, FREQUENT = "entropy, middle less ends, text after", "most probable token is frequent, far"


def reach(values):
    """Half the width of Student's interval of a mean."""
    return stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))


def table(rows):
    """rows: (piece, condition, evidence, other fields)"""
    plain = {"task": "text", "masks_seen": MASKS, "correct": 0.0, "confidence": 0.5, "entropy": 1.0}
    return pd.DataFrame(plain | {"point": piece} | condition | found | more for piece, condition, found, more in rows)


def gaps(entropy, confidence, tv_next, mode_common):
    """Each measure is a function of (suffix, distance, piece)."""
    rows = []
    for suffix in ("none", "visible"):
        for d in (1, 2, 4, 8, 12, 15, 16):
            for piece in range(PIECES):
                evidence = {"tv_unigram": 0.5, "common": 0.5, "mode_common": mode_common(suffix, d, piece)}
                if d < MASKS:
                    evidence["tv_next"] = tv_next(suffix, d, piece)
                measured = {"entropy": entropy(suffix, d, piece), "confidence": confidence(suffix, d, piece)}
                rows.append((piece, {"suffix": suffix, "distance": d}, evidence, measured))
    return table(rows)


def named(found):
    return {one.name: one for one in found}


def test_a_source_that_fades_into_frequencies_confirms_the_second_claim():
    def nearest_text(suffix, d):
        return min(d, MASKS + 1 - d) if suffix == "visible" else d

    faded = gaps(
        entropy=lambda suffix, d, piece: 3 - (2 + 0.01 * piece) / nearest_text(suffix, d),
        confidence=lambda suffix, d, piece: 0.2 + (0.7 + 0.01 * piece) / d,
        tv_next=lambda suffix, d, piece: (0.5 + 0.01 * piece) / d,
        mode_common=lambda suffix, d, piece: float(d > 2),
    )
    found = named(marginals.metrics(faded, {}))
    assert [one.verdict for one in found.values()] == ["holds"] * 4
    # Far is 8, 12 and 15 of 16 masks; the piece's own level cancels in the difference.
    fall = 1 - np.mean([1 / 8, 1 / 12, 1 / 15])
    differences = [(2 + 0.01 * piece) * fall for piece in range(PIECES)]
    assert found[ENTROPY].value == pytest.approx(np.mean(differences)) and found[ENTROPY].n == PIECES
    assert found[ENTROPY].high - found[ENTROPY].value == pytest.approx(reach(differences))
    far = [np.mean([(0.5 + 0.01 * piece) / d for d in (8, 12, 15)]) for piece in range(PIECES)]
    assert found[NEIGHBOURS].value == pytest.approx(np.mean(far)) and found[NEIGHBOURS].against == marginals.ALIKE
    assert found[NEIGHBOURS].high == pytest.approx(np.mean(far) + reach(far))
    # With text on both sides: the middle (8 of 16) less both ends.
    assert found[BETWEEN].value == pytest.approx((2 + 0.01 * MIDDLE) * (1 - 1 / 8))
    # The last mask has no neighbour, in the figure too.
    farthest = marginals.by_distance(faded, {}).groupby("measure").distance.max()
    assert farthest[marginals.DRAWN["tv_next"]] == 15 and farthest["entropy"] == 16


def test_a_source_that_is_as_sure_everywhere_refutes_it():
    draws = np.random.default_rng(0)
    noise = lambda suffix, d, piece: float(draws.normal(1, 0.1))  # noqa: E731
    found = named(marginals.metrics(gaps(noise, noise, noise, lambda suffix, d, piece: 0.0), {}))
    assert {one.verdict for one in found.values()} <= {"does not hold", "undecided"}, found
    assert found[NEIGHBOURS].verdict == "does not hold"  # about 1, and less than .1 is asked
    surer = named(marginals.metrics(gaps(lambda suffix, d, piece: 1 / d + 0.01 * piece, noise, noise, noise), {}))
    assert surer[ENTROPY].verdict == "undecided"  # the pieces agree, and nothing bounds an entropy
    surer = named(marginals.metrics(gaps(lambda suffix, d, piece: (1 + 0.1 * piece) / d, noise, noise, noise), {}))
    assert surer[ENTROPY].verdict == "does not hold"


def test_what_is_so_next_to_the_text_is_asked_of_distant_masks_too():
    """Predictions that are frequent words everywhere do not show that distant ones become so."""
    flat = lambda suffix, d, piece: 0.01 * (1 + piece)  # noqa: E731
    found = named(marginals.metrics(gaps(flat, flat, flat, lambda suffix, d, piece: 0.8 + 0.02 * piece), {}))
    assert found[FREQUENT].against == pytest.approx(0.8 + 0.02 * MIDDLE) and found[FREQUENT].verdict == "undecided"
    assert found[NEIGHBOURS].against == pytest.approx(found[NEIGHBOURS].value) and not found[NEIGHBOURS].side


def test_shares_that_never_vary_get_exact_bounds():
    flat = lambda suffix, d, piece: 0.5  # noqa: E731
    found = named(marginals.metrics(gaps(flat, flat, flat, lambda suffix, d, piece: float(d > 1)), {}))[FREQUENT]
    assert found.value == 1 == found.high and found.low == pytest.approx(0.05 ** (1 / PIECES))  # all of them


def test_unfinished_and_older_runs_leave_claims_out():
    whole = gaps(*[lambda suffix, d, piece: 0.5] * 4)
    assert marginals.metrics(whole[(whole.suffix == "none") & (whole.distance == 1)], {}) == []
    older = named(marginals.metrics(whole.drop(columns="mode_common"), {}))
    assert set(named(marginals.metrics(whole, {}))) - set(older) == {FREQUENT}


def test_neighbours_are_coupled_and_distant_masks_are_not():
    pairs = [
        (piece, {"distance": d}, {"tc": tc + 0.01 * piece}, {})
        for piece in range(PIECES)
        for d, tc in ((8, -0.03), (1, 0.5))
    ]
    near, far = total_correlation.metrics(table(pairs), {})
    assert near.name == "nats shared by neighbours" and near.value == pytest.approx(0.5 + 0.01 * MIDDLE)
    assert near.verdict == "holds" and near.against == 0.05
    assert far.name == "nats shared 8 apart" and far.side == -1 and not far.claim
    assert sorted(total_correlation.by_distance(table(pairs), {}).distance) == [1, 8]
    flat = table([(piece, {"distance": 1}, {"tc": 0.3}, {}) for piece in range(PIECES)])
    (same,) = total_correlation.metrics(flat, {})  # values that never vary and have no bounds
    assert same.verdict == "undecided" and same.value == pytest.approx(0.3)


def orders(measured, pieces=PIECES):
    return table(
        [
            (piece, {"rule": rule}, dict(zip(order.MEASURES, of(piece), strict=True)), {})
            for piece in range(pieces)
            for rule, of in measured.items()
        ]
    )


def test_the_order_by_confidence_is_judged():
    found = orders(
        {
            "random": lambda piece: (0.0, 0.2),
            "low-confidence": lambda piece: (0.9 + 0.01 * piece, 0.5 + 0.01 * piece),
        }
    )
    tau, leftmost = order.metrics(found, {})
    assert tau.value == pytest.approx(0.9 + 0.01 * MIDDLE) and tau.verdict == "holds"
    assert leftmost.value == pytest.approx(0.5 + 0.01 * MIDDLE) and leftmost.verdict == "does not hold"  # below .7
    assert list(order.by_rule(found, {}).rule.unique()) == ["low-confidence", "random"]  # in the order of STRATEGIES
    assert order.metrics(found[found.rule == "random"], {}) == []
    alone = order.metrics(found.assign(masks_seen=1), {})[1]
    assert alone.against == 1  # the only mask left is the leftmost


def test_orders_that_never_vary_get_exact_bounds():
    tau, leftmost = order.metrics(orders({"low-confidence": lambda piece: (1.0,) * 2}, pieces=30), {})
    assert tau.low == pytest.approx(1 - 2 * none_seen(30)) and tau.high == 1
    assert leftmost.low == pytest.approx(1 - none_seen(30))
