"""The Markov source: its closed forms against enumeration, its laws, and its samples."""

from itertools import pairwise, product

import pytest
import torch

from maskwise.tasks.markov_source import Chain, small_chain


def enumerated(chain, visible):
    """p(x_i | visible) by adding up the probability of every sequence."""
    total = torch.zeros(len(visible), chain.states, dtype=torch.float64)
    for line in product(range(chain.states), repeat=len(visible)):
        if all(seen in (None, token) for seen, token in zip(visible, line, strict=True)):
            p = chain.stationary[line[0]]
            for a, b in pairwise(line):
                p = p * chain.kernel[a, b]
            total[range(len(visible)), line] += p
    return total / total.sum(dim=-1, keepdim=True)


def random_chain(states=3, seed=0):
    draws = torch.rand(states, states, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Chain(draws / draws.sum(dim=-1, keepdim=True))


@pytest.mark.parametrize(
    "visible",
    [
        (0, None, None, None, None),
        (None, None, 2, None, None),
        (1, None, None, None, 2),
        (None,) * 5,
        (0, None, 1, None, None),
        (2, 1, 0, 1, 2),
    ],
)
def test_the_closed_form_is_what_enumeration_gives(visible):
    chain = random_chain()
    assert torch.allclose(chain.conditional(visible), enumerated(chain, visible), atol=1e-9)


def test_marginals_mix_at_dobrushins_rate():
    for chain in (random_chain(5, seed=1), small_chain()):
        pi = chain.stationary
        assert torch.allclose(pi @ chain.kernel, pi) and float(pi.sum()) == pytest.approx(1)
        # Dobrushin's coefficient: the largest total variation between two rows.
        delta = float((chain.kernel[:, None] - chain.kernel[None]).abs().sum(dim=-1).max() / 2)
        assert delta < 1
        p = chain.conditional([0, *[None] * 20])
        for d in range(1, 21):
            assert float((p[d] - pi).abs().sum() / 2) <= delta**d + 1e-9


def test_samples_follow_the_kernel():
    chain = small_chain(6)
    drawn = chain.sample(4000, 5, torch.Generator().manual_seed(0))
    assert all(all(chain.possible(line)) for line in drawn[:200].tolist())
    counted = torch.zeros(6, 6, dtype=torch.float64)
    counted.index_put_((drawn[:, :-1].flatten(), drawn[:, 1:].flatten()), torch.tensor(1.0).double(), accumulate=True)
    assert torch.allclose(counted / counted.sum(dim=-1, keepdim=True), chain.kernel, atol=0.04)
    first = torch.bincount(drawn[:, 0], minlength=6) / 4000
    assert torch.allclose(first.double(), chain.stationary, atol=0.04)
