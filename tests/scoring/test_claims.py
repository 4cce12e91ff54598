"""Verdicts on the second paper's claims, from records in which the truth was put by hand."""

import numpy as np
import pytest

from maskwise.probes import PROBES
from maskwise.probes.marginals import ALIKE
from maskwise.probes.summary import claims_of
from maskwise.scoring.claims import verdict
from maskwise.scoring.intervals import none_seen, reach

MASKS = 16
PIECES = 8
MIDDLE = (PIECES - 1) / 2  # the pieces' mean number
POINTS = 50


def record(probe, point, condition, evidence=None, **told):
    base = {"probe": probe, "task": "text", "point": point, "condition": condition, "masks": MASKS, "correct": False,
            "confidence": 0.5, "entropy": 1.0, "evidence": evidence or {}}  # fmt: skip
    return base | told


def gaps(entropy, confidence, tv_next, mode_common):
    """Each measure is a function of (suffix, distance, piece)."""
    found = []
    for suffix in ("none", "visible"):
        for d in (1, 2, 4, 8, 12, 15, 16):
            for piece in range(PIECES):
                evidence = {"tv_unigram": 0.5, "common": 0.5, "mode_common": mode_common(suffix, d, piece)}
                if d < MASKS:
                    evidence["tv_next"] = tv_next(suffix, d, piece)
                found.append(
                    record("marginals", piece, {"suffix": suffix, "distance": d}, evidence,
                           entropy=entropy(suffix, d, piece), confidence=confidence(suffix, d, piece))
                )  # fmt: skip
    return found


def claims(records):
    by_probe = {name: [r for r in records if r["probe"] == name] for name in {r["probe"] for r in records}}
    return claims_of(by_probe, PROBES)


def named(found):
    return {claim["name"]: claim for claim in found}


def test_an_interval_beyond_what_is_asked_holds_and_beyond_nothing_alone_is_in_direction():
    assert verdict(0.6, 0.8, nothing=0, asked=0.5) == "holds"
    assert verdict(0.4, 0.8, nothing=0, asked=0.5) == "in direction"
    assert verdict(-0.1, 0.8, nothing=0, asked=0.5) == "does not hold"
    assert verdict(0.02, 0.08, nothing=0.5, asked=0.1, less=True) == "holds"
    assert verdict(0.2, 0.3, nothing=0.5, asked=0.1, less=True) == "in direction"
    assert verdict(0.4, 0.6, nothing=0.5, asked=0.1, less=True) == "does not hold"
    assert verdict(None, None, nothing=0, asked=0) == "cannot be told"
    assert verdict(0.7, 0.9, nothing=0.8, asked=0.5) == "does not hold"  # many, but no more than without the claim


def test_a_source_that_fades_into_frequencies_confirms_the_second_claim():
    def nearest_text(suffix, d):
        return min(d, MASKS + 1 - d) if suffix == "visible" else d

    found = named(claims(gaps(
        entropy=lambda suffix, d, piece: 3 - (2 + 0.01 * piece) / nearest_text(suffix, d),
        confidence=lambda suffix, d, piece: 0.2 + (0.7 + 0.01 * piece) / d,
        tv_next=lambda suffix, d, piece: (0.5 + 0.01 * piece) / d,
        mode_common=lambda suffix, d, piece: float(d > 2),
    )))  # fmt: skip
    assert {name: claim["verdict"] for name, claim in found.items()} == dict.fromkeys(
        ("far-unsure", "far-doubtful", "grow-alike", "far-identical", "far-frequent", "middle-unsure"), "holds"
    )
    # Far is 8, 12 and 15 of 16 masks; the piece's own level cancels in the difference.
    fall = 1 - np.mean([1 / 8, 1 / 12, 1 / 15])
    differences = [(2 + 0.01 * piece) * fall for piece in range(PIECES)]
    assert found["far-unsure"]["value"] == pytest.approx(np.mean(differences))
    assert found["far-unsure"]["high"] - found["far-unsure"]["value"] == pytest.approx(reach(differences))
    far = [np.mean([(0.5 + 0.01 * piece) / d for d in (8, 12, 15)]) for piece in range(PIECES)]
    assert found["far-identical"]["value"] == pytest.approx(np.mean(far)) and found["far-identical"]["asked"] == ALIKE
    assert found["far-identical"]["high"] == pytest.approx(np.mean(far) + reach(far))
    # With text on both sides: the middle (8 of 16) against both ends.
    assert found["middle-unsure"]["value"] == pytest.approx((2 + 0.01 * MIDDLE) * (1 - 1 / 8))


def test_a_source_that_is_as_sure_everywhere_refutes_it():
    draws = np.random.default_rng(0)
    noise = lambda suffix, d, piece: float(draws.normal(1, 0.1))  # noqa: E731
    found = named(claims(gaps(noise, noise, noise, lambda suffix, d, piece: 0.0)))
    assert all(claim["verdict"] == "does not hold" for claim in found.values()), found


def test_pairs_and_orders():
    pairs = [record("total-correlation", piece, {"distance": d}, {"tc": tc + 0.01 * piece})
             for piece in range(PIECES) for d, tc in ((1, 0.5), (8, 0.0))]  # fmt: skip
    measured = {"low-confidence": (0.9, 0.5), "random": (0.0, 0.2)}
    orders = [record("order", piece, {"rule": rule}, {"tau": tau + 0.01 * piece, "global1": first + 0.01 * piece})
              for piece in range(PIECES) for rule, (tau, first) in measured.items()]  # fmt: skip
    found = named(claims(pairs + orders))
    assert found["coupled"]["value"] == pytest.approx(0.5 + 0.01 * MIDDLE) and found["coupled"]["verdict"] == "holds"
    assert (
        found["reading-order"]["value"] == pytest.approx(0.9 + 0.01 * MIDDLE)
        and found["reading-order"]["verdict"] == "holds"
    )
    harmonic = sum(1 / n for n in range(1, MASKS + 1)) / MASKS
    assert found["leftmost-first"]["nothing"] == pytest.approx(harmonic)
    assert found["leftmost-first"]["verdict"] == "in direction"  # above chance, below .7


def puzzle_records(solved):
    """`solved`: puzzle -> the share of the puzzles solved at 1 and at 4 tokens a step."""
    return [
        record("coherence", point, {"puzzle": puzzle, "rule": rule, "speed": speed}, correct=point < POINTS * share)
        for puzzle, shares in solved.items()
        for speed, share in zip(("1 a step", "4 a step"), shares, strict=True)
        for rule in ("random", "entropy")
        for point in range(POINTS)
    ]


def test_speed_costs_what_is_coupled_and_cannot_be_told_without_skill():
    wrong_rule = [record("coherence", 0, {"puzzle": "copy", "rule": "threshold", "speed": "tau 0.9"}, correct=False)]
    found = named(claims(wrong_rule + puzzle_records({"copy": (1, 1), "replace": (0.9, 0.4), "shuffle": (0.1, 0)})))
    assert {name: claim["verdict"] for name, claim in found.items()} == {
        "speed-copy": "holds", "speed-replace": "holds", "speed-shuffle": "cannot be told",
    }  # fmt: skip
    assert found["speed-replace"]["value"] == pytest.approx(0.5) and found["speed-replace"]["skill"] == 0.9
    lost = named(claims(puzzle_records({"copy": (1, 0.4), "replace": (0.9, 0.9)})))
    assert all(claim["verdict"] == "does not hold" for claim in lost.values())


def test_a_handful_of_equal_puzzles_proves_nothing_and_one_pace_alone_no_claim():
    solved = puzzle_records({"copy": (1, 1)})
    few = named(claims([one for one in solved if one["point"] < 6]))["speed-copy"]
    assert few["verdict"] == "cannot be told" and few["low"] == pytest.approx(-few["high"])
    assert few["high"] == pytest.approx(1 - 0.025 ** (1 / 6))  # none of 6
    assert claims([one for one in solved if one["condition"]["speed"] == "1 a step"]) == []


def test_values_that_never_vary_and_have_no_bounds_cannot_be_told():
    flat = [record("total-correlation", piece, {"distance": 1}, {"tc": 0.3}) for piece in range(PIECES)]
    assert named(claims(flat))["coupled"]["verdict"] == "cannot be told"
    same = [record("order", piece, {"rule": "low-confidence"}, {"tau": 1.0, "global1": 1.0}) for piece in range(30)]
    found = named(claims(same))
    assert found["reading-order"]["low"] == pytest.approx(1 - 2 * none_seen(30)) and found["reading-order"]["high"] == 1
    assert found["leftmost-first"]["low"] == pytest.approx(1 - none_seen(30))


def test_runs_without_these_probes_have_no_claims():
    assert claims([record("mask-count", 0, {"masks": 2})]) == []


def test_shares_that_never_vary_get_exact_bounds():
    flat = lambda suffix, d, piece: 0.5  # noqa: E731
    found = named(claims(gaps(flat, flat, flat, lambda suffix, d, piece: float(d > 1))))
    assert found["far-frequent"]["value"] == 1 and found["far-frequent"]["high"] == pytest.approx(1)
    assert found["far-frequent"]["low"] == pytest.approx(0.025 ** (1 / PIECES))  # all of them


def test_unfinished_and_older_runs_leave_claims_out():
    whole = gaps(*[lambda suffix, d, piece: 0.5] * 4)
    near_only = [one for one in whole if one["condition"] == {"suffix": "none", "distance": 1}]
    assert claims(near_only) == []
    older = [one | {"evidence": {k: v for k, v in one["evidence"].items() if k != "mode_common"}} for one in whole]
    assert set(named(claims(whole))) - set(named(claims(older))) == {"far-frequent"}
