"""Verdicts on the papers' claims, from records in which the truth was put by hand."""

import numpy as np
import pytest
from scipy import stats

from helpers.records import record as plain_record
from maskwise.probes import PROBES
from maskwise.probes.summary import claims_of
from maskwise.scoring.claims import holm, judged, p_value, verdict

MASKS = 16


def record(probe, point, condition, evidence=None, **more):
    base = {"probe": probe, "task": "text", "point": point, "condition": condition, "masks": MASKS, "correct": False,
            "confidence": 0.5, "entropy": 1.0, "evidence": evidence or {}}  # fmt: skip
    return plain_record(**(base | more))


def claims(records):
    by_probe = {name: [r for r in records if r["probe"] == name] for name in {r["probe"] for r in records}}
    return claims_of(by_probe, PROBES)


def named(found):
    return {claim["name"]: claim for claim in found}


def test_an_interval_beyond_what_is_asked_holds_and_beyond_nothing_alone_is_in_direction():
    assert verdict(0.6, 0.8, nothing=0, asked=0.5) == "holds"
    assert verdict(0.4, 0.8, nothing=0, asked=0.5) == "in direction"
    assert verdict(-0.1, 0.8, nothing=0, asked=0.5) == "inconclusive"  # it may be more than asked, or nothing
    assert verdict(-0.1, 0.4, nothing=0, asked=0.5) == "rejected"  # at most .4, and .5 is asked
    assert verdict(-0.2, -0.1, nothing=0, asked=0) == "rejected"
    assert verdict(-0.2, 0.1, nothing=0, asked=0) == "inconclusive"
    assert verdict(0.02, 0.08, nothing=0.5, asked=0.1, less=True) == "holds"
    assert verdict(0.2, 0.3, nothing=0.5, asked=0.1, less=True) == "in direction"
    assert verdict(0.4, 0.6, nothing=0.5, asked=0.1, less=True) == "rejected"
    assert verdict(None, None, nothing=0, asked=0) == "inconclusive"
    assert verdict(0.6, 0.7, nothing=0.8, asked=0.5) == "rejected"  # many, but fewer than without the claim
    assert verdict(0.7, 0.9, nothing=0.8, asked=0.5) == "inconclusive"


def test_runs_without_these_probes_have_no_claims():
    assert claims([record("mask-count", 0, {"masks": 2})]) == []


# Holm's procedure


def of_values(name, values, **rest):
    return judged(name, name, "", list(values), "points", **rest)


def test_holm_by_hand():
    """p-values of .01, .02 and .03 alone all pass at .05; together the smallest passes, 2 x .02 too, and .03."""
    draws = np.random.default_rng(0)

    def with_p(p):
        noise = draws.normal(size=20)
        noise = (noise - noise.mean()) / noise.std(ddof=1)
        return noise + stats.t.isf(p / 2, 19) / np.sqrt(20)  # of mean and spread such that its p-value is p

    alone = [of_values(str(p), with_p(p)) for p in (0.03, 0.01, 0.02)]
    assert [p_value(claim, 0.0) for claim in alone] == pytest.approx([0.03, 0.01, 0.02])
    assert [claim["verdict"] for claim in alone] == ["holds"] * 3
    found = holm(alone)
    assert [claim["p"] for claim in found] == pytest.approx([0.04, 0.03, 0.04])
    assert [claim["verdict"] for claim in found] == ["holds"] * 3
    more = holm([of_values(str(p), with_p(p)) for p in (0.03, 0.01, 0.02, 0.5)])
    assert [claim["p"] for claim in more] == pytest.approx([0.06, 0.04, 0.06, 0.5])
    assert [claim["verdict"] for claim in more] == ["inconclusive", "holds", "inconclusive", "inconclusive"]
    assert [claim["alone"] for claim in more] == ["holds", "holds", "holds", "inconclusive"]


def test_a_p_value_and_its_interval_tell_the_same():
    draws = np.random.default_rng(1)
    for values in (draws.normal(0.3, 1, 30), np.ones(30), np.zeros(30), -np.ones(9)):
        claim = of_values("x", values, bounds=(-1.5, 1.5))
        for end in ("low", "high"):
            if abs(claim[end] - claim["value"]) > 1e-9:
                assert p_value(claim, claim[end]) == pytest.approx(0.05)


def test_noise_is_seldom_called_a_finding():
    """Of tables of twelve claims that are all untrue (exactly nothing to them) at most 5 % tell of any."""
    draws, tables, wrong = np.random.default_rng(2), 400, 0
    for _ in range(tables):
        table = holm([of_values(str(n), draws.normal(size=12)) for n in range(12)])
        wrong += any(claim["verdict"] != "inconclusive" for claim in table)
    assert wrong / tables < 0.05 + 2 * np.sqrt(0.05 * 0.95 / tables)


# The first paper


TASKS = ("verb-smallest", "verb-largest", "animal-smallest", "animal-largest")


def answers(probe, condition, share, masks=2, points=40, nll=None):
    """Of each task the first `share` of the points right, and nats to match."""
    return [
        record(
            probe,
            point,
            condition,
            task=task,
            masks=masks,
            correct=bool(point < share * points),
            nll=nll if nll is not None else 0.1 + 2.0 * (point >= share * points),
        )
        for task in TASKS
        for point in range(points)
    ]


def few_shot(by_masks, by_fillers):
    found = [answers("mask-count", {"masks": k}, share, masks=k) for k, share in by_masks.items()]
    found += [answers("filler", {"filler": ".", "fillers": n}, share) for n, share in by_fillers.items()]
    return [one for group in found for one in group]


DISTRACTED = {
    "by_masks": {1: 0.9, 2: 0.9, 20: 0.8, 200: 0.5},
    "by_fillers": {0: 0.9, 20: 0.9, 200: 0.85},
}
OF_PAPER_A = {"masks-cost", "fillers-cost-less"}


def test_a_distracted_local_model_confirms_the_first_paper():
    found = named(claims(few_shot(**DISTRACTED)))
    assert {name: claim["verdict"] for name, claim in found.items()} == dict.fromkeys(OF_PAPER_A, "holds")
    assert found["masks-cost"]["value"] == pytest.approx(0.4) and found["masks-cost"]["n"] == 160
    assert found["masks-cost"]["nats"]["value"] == pytest.approx(0.8)  # 2 nats for each answer lost, in its favour
    assert found["fillers-cost-less"]["value"] == pytest.approx(0.4 - 0.05)


def test_a_model_that_is_the_same_everywhere_leaves_the_first_paper_open():
    level = {name: dict.fromkeys(shares, 0.8) for name, shares in DISTRACTED.items()}
    found = named(claims(few_shot(**level)))
    assert set(found) == OF_PAPER_A
    assert {claim["verdict"] for claim in found.values()} == {"inconclusive"}
    assert all(claim["low"] < 0 < claim["high"] for claim in found.values())  # never 0 to 0


def test_the_opposite_of_the_first_paper_does_not_hold():
    turned = {name: {key: 1.4 - share for key, share in shares.items()} for name, shares in DISTRACTED.items()}
    found = named(claims(few_shot(**turned)))
    assert {claim["verdict"] for claim in found.values()} == {"rejected"}


def test_without_skill_the_first_paper_cannot_be_judged():
    guessing = {name: {key: share - 0.6 for key, share in shares.items()} for name, shares in DISTRACTED.items()}
    found = claims(few_shot(**guessing))
    assert {claim["verdict"] for claim in found} == {"inconclusive"}


def test_claims_are_judged_for_each_number_of_relevant_examples():
    ten = few_shot(**DISTRACTED)
    one = [
        record | {"condition": {**record["condition"], "relevant": 1}}
        for record in few_shot(**{name: dict.fromkeys(shares, 0.8) for name, shares in DISTRACTED.items()})
    ]
    found = named(claims(ten + one))
    assert set(found) == OF_PAPER_A | {f"{name}_1" for name in OF_PAPER_A}
    assert {found[name]["verdict"] for name in OF_PAPER_A} == {"holds"}
    assert {found[f"{name}_1"]["verdict"] for name in OF_PAPER_A} == {"inconclusive"}
    assert found["masks-cost_1"]["claim"] == "appended masks lower the accuracy, 1 example"
    assert set(named(claims(one))) == OF_PAPER_A  # alone it is the run's main number
