"""The law of seeds: unambiguous, the same everywhere, and all of its bits count."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from maskwise.support.randomness import (
    number_repeats,
    numpy_generator,
    python_random,
    seed_of,
    state_words,
    torch_generator,
)

PARTS = st.recursive(
    st.one_of(st.integers(), st.text(max_size=4), st.booleans(), st.none()), lambda inner: st.lists(inner, max_size=3)
)


def frozen(part):
    """A value that is equal for equal parts only: in Python 1 == True."""
    return tuple(map(frozen, part)) if isinstance(part, list) else (type(part).__name__, part)


@pytest.mark.slow
@settings(max_examples=300)
@given(one=st.lists(PARTS, max_size=4), two=st.lists(PARTS, max_size=4))
def test_seeds_are_equal_only_for_equal_parts(one, two):
    assert (seed_of(*one) == seed_of(*two)) == (frozen(one) == frozen(two))


def test_the_seeds_are_these_for_ever():
    """Records of earlier runs are resumed and reproduced by them."""
    assert seed_of(0) == 11243728523470438572
    assert seed_of(7, "answer", [1, 2]) == seed_of(7, "answer", (1, 2)) == 17742488497347189363
    assert 0 <= seed_of("x") < 2**64


def test_what_is_not_plain_is_refused():
    for part in (np.int64(3), torch.tensor(3), object()):
        with pytest.raises(TypeError):
            seed_of(part)


def test_many_prompts_share_no_seed():
    seeds = [seed_of(0, number, 5, 9) for number in range(50_000)]
    assert len(set(seeds)) == 50_000


def test_all_bits_of_the_seed_reach_torchs_cpu_generator():
    """The draws are those of numpy's Mersenne Twister from the same 624 words."""
    ours = torch.randint(2**16, (2000,), generator=torch_generator(3, "x"))
    theirs = np.random.MT19937()
    key = np.frombuffer(state_words(seed_of(3, "x")), dtype="<u4")
    theirs.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": 624}}
    assert ours.tolist() == (theirs.random_raw(2000) % 2**16).tolist()
    seeds = {}
    for number in range(200_000):  # two numbers whose seeds agree in the 32 bits torch's manual_seed reads
        low = seed_of(number) & 0xFFFFFFFF
        if low in seeds:
            break
        seeds[low] = number
    one, two = seeds[low], number
    plain = [torch.Generator().manual_seed(seed_of(which)) for which in (one, two)]
    assert torch.equal(*(torch.rand(8, generator=chance) for chance in plain))
    assert not torch.equal(*(torch.rand(8, generator=torch_generator(which)) for which in (one, two)))


def test_generators_repeat_and_differ_with_their_parts():
    makers = {
        python_random: lambda chance: [chance.random() for _ in range(4)],
        numpy_generator: lambda chance: chance.random(4).tolist(),
        torch_generator: lambda chance: torch.rand(4, generator=chance).tolist(),
    }
    for make, draw in makers.items():
        assert draw(make(1, "a")) == draw(make(1, "a")) != draw(make(2, "a"))
        assert draw(make(1, "a")) != draw(make("1", "a"))


def test_uniform_draws_look_uniform():
    draws = torch.rand(100_000, generator=torch_generator("uniform"))
    assert draws.mean() == pytest.approx(0.5, abs=0.005) and draws.var() == pytest.approx(1 / 12, abs=0.002)
    assert torch.randn(100_000, generator=torch_generator("normal")).var() == pytest.approx(1, abs=0.02)


def test_repeated_prompts_are_numbered():
    assert number_repeats([[1, 2], [3], [1, 2], [1, 2]]) == [(0, 1, 2), (0, 3), (1, 1, 2), (2, 1, 2)]


def test_seeds_need_neither_torch_nor_numpy():
    code = (
        "import sys, maskwise.support.randomness as r; r.seed_of(1, 'a'); r.python_random(2); "
        "print({'torch', 'numpy'} & {*sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
