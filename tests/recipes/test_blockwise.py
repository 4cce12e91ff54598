"""The blockwise recipe's measures, on a model that is the source itself."""

import pytest
import torch

from blockwise import LENGTH, infilling_nll, marginals_panels, nll_by_distance, possible_share
from maskwise.tasks.markov import small_chain
from probes.oracle import oracle

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


def test_the_figure_lays_a_perfect_model_on_the_closed_form():
    for panel in marginals_panels(perfect(), CHAIN):
        for closed, said in zip(panel.curves[::2], panel.curves[1::2], strict=True):
            assert said.y == pytest.approx(closed.y, abs=1e-4)
