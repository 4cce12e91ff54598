"""Order measures on orders whose values are known."""

import pytest
import torch

from helpers.tiny import tiny_llada
from maskwise.decoding.generate import generate
from maskwise.probes.answers.decoded import global_arness, kendall_tau
from maskwise.probes.library.order import leftmost_at_random


def pair_count_tau(order):
    pairs = [(i, j) for j in range(len(order)) for i in range(j)]
    return sum(1 if order[i] < order[j] else -1 for i, j in pairs) / len(pairs)


def test_reading_order_is_one_and_its_reverse_minus_one():
    forth, back = list(range(8)), list(range(7, -1, -1))
    assert kendall_tau(forth) == pytest.approx(1) and kendall_tau(back) == pytest.approx(-1)
    assert global_arness(forth) == 1 and global_arness(back) == 1 / 8  # only the last step has nothing left of it


def test_a_mixed_order_by_hand():
    order = [0, 3, 1, 2, 4]  # places 0, 2, 3, 1, 4 are revealed
    assert global_arness(order) == 3 / 5  # 0, 1, 4
    assert global_arness([0, 0, 1]) == 1  # those of one step are taken from left to right


@pytest.mark.parametrize("seed", range(5))
def test_tau_counts_pairs_and_random_orders_are_known_on_average(seed):
    order = torch.randperm(12, generator=torch.Generator().manual_seed(seed)).tolist()
    assert kendall_tau(order) == pytest.approx(pair_count_tau(order))


def test_global_arness_of_random_orders_is_harmonic():
    """Step t picks among n - t + 1 masks, so the leftmost goes with 1/(n - t + 1): on average H_n / n."""
    n, tries = 6, 3000
    draws = torch.Generator().manual_seed(0)
    mean = sum(global_arness(torch.randperm(n, generator=draws).tolist()) for _ in range(tries)) / tries
    assert mean == pytest.approx(sum(1 / i for i in range(1, n + 1)) / n, abs=0.02)


def test_the_decoders_left_to_right_rule_reads_in_order():
    written = generate(tiny_llada(), [[1, 2, 3]], 8, rule="left-to-right")[0]
    assert kendall_tau(written.order) == pytest.approx(1)


def test_the_leftmost_at_random_is_harmonic_for_any_number_of_masks():
    """A stranger's record may state 10**15."""
    assert leftmost_at_random(4) == pytest.approx((1 + 1 / 2 + 1 / 3 + 1 / 4) / 4)
    assert 0 < leftmost_at_random(10**15) < 1e-13 and leftmost_at_random(0) == 0
