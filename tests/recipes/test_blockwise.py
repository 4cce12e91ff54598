"""The blockwise recipe's measures, on a model that is the source itself."""

import pytest
import torch

from blockwise import (
    LENGTH,
    PAIR_DISTANCES,
    greedy_orders,
    infilling_nll,
    marginals_table,
    measure,
    nll_by_distance,
    pair_correlation,
    possible_by_chance,
    possible_share,
    table_lines,
)
from helpers.oracle import oracle
from maskwise.probes.answers.decoded import kendall_tau
from maskwise.tasks.markov_source import small_chain

CHAIN = small_chain()


def perfect():
    def marginals(sequence):
        p = CHAIN.conditional([None if token == CHAIN.states else token for token in sequence])
        return torch.nn.functional.pad(p, (0, 1))

    return oracle(marginals, CHAIN.states + 1, CHAIN.states)


def test_a_perfect_model_has_the_sources_entropy_at_every_distance():
    found, least = nll_by_distance(perfect(), CHAIN), nll_by_distance(None, CHAIN)
    assert len(found) == LENGTH - 1
    assert found == pytest.approx(least, abs=1e-4)
    one_step = float(CHAIN.stationary @ torch.special.entr(CHAIN.kernel).sum(dim=-1))
    assert least[0] == pytest.approx(one_step)
    assert least[-1] == pytest.approx(float(torch.special.entr(CHAIN.stationary).sum()), abs=1e-3)


def test_a_perfect_model_fills_in_like_the_source():
    assert infilling_nll(perfect(), CHAIN, 4) == pytest.approx(infilling_nll(None, CHAIN, 4), abs=1e-4)


def test_one_token_a_step_is_always_possible_and_one_step_a_block_is_not():
    assert possible_share(perfect(), CHAIN, 4, one_step=False, tries=3) == 1
    assert possible_share(perfect(), CHAIN, 1, one_step=True, tries=3) == 1
    assert possible_share(perfect(), CHAIN, 32, one_step=True, tries=3) < 0.8


def test_the_share_of_one_step_a_block_is_known():
    """Blocks of two by adding up every pair; larger ones against draws, within four standard errors."""
    p, pi = CHAIN.kernel, CHAIN.stationary
    two = sum(
        float(pi[a] * p[a, x] * (p @ p)[a, y]) for a in range(12) for x in range(12) for y in range(12) if p[x, y]
    )
    assert possible_by_chance(CHAIN, 2) == pytest.approx((1 + two) / 2)
    assert possible_by_chance(CHAIN, 1) == 1
    expected, tries = possible_by_chance(CHAIN, 8), 20
    drawn = possible_share(perfect(), CHAIN, 8, one_step=True, tries=tries)
    assert drawn == pytest.approx(expected, abs=4 * (expected * (1 - expected) / (tries * 32)) ** 0.5)


def test_a_perfect_models_pairs_and_order_are_the_sources():
    for distance in PAIR_DISTANCES[:2]:
        truth = pair_correlation(None, CHAIN, distance)
        assert pair_correlation(perfect(), CHAIN, distance) == pytest.approx(truth, abs=1e-5)
    # By the chain rule, with nothing else visible: H(x2 | x0) - H(x2 | x1).
    assert pair_correlation(None, CHAIN, 1) == pytest.approx(
        nll_by_distance(None, CHAIN)[1] - nll_by_distance(None, CHAIN)[0]
    )
    orders = greedy_orders(None, CHAIN)
    assert greedy_orders(perfect(), CHAIN)[:3] == orders[:3]
    assert all(kendall_tau(order) == pytest.approx(1) for order in orders)


def test_the_table_has_a_line_for_each_measure_and_an_interval_over_seeds():
    source = {"a": 1.0, "b": 2.0}
    lines = table_lines(source, {"one": [{"a": 1.0, "b": 2.0}], "three": [{"a": v, "b": v} for v in (1.0, 2.0, 3.0)]})
    assert len(lines) == 4 and lines[0].count("|") == lines[1].count("|") == lines[2].count("|") == 5
    assert lines[2] == "| a | 1.000 | 1.000 | 2.000 (-0.484 to 4.484) |"
    assert next(iter(measure(None, CHAIN, 2))) == "NLL at distance 1"


def test_the_figure_lays_a_perfect_model_on_the_closed_form():
    table = marginals_table(perfect(), CHAIN).set_index(["measure", "distance", "series"]).value.unstack()
    for name in ("open end", "both ends visible"):
        assert table[f"{name}, model"].to_list() == pytest.approx(table[f"{name}, closed form"].to_list(), abs=1e-4)
