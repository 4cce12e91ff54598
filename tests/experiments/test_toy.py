"""The toy experiment: the model must show the spec's table, read exactly."""

import math

import pytest
import torch

from helpers.oracle import perfect_toy
from maskwise.decoding.strategies import STRATEGIES
from maskwise.diffusion import nelbo_call
from maskwise.experiments import toy as toy
from maskwise.experiments.toy import COUNTS, QUESTION, every_noise, ids_of, read_toy, sequences

NAMED = {strategy.name for strategy in STRATEGIES}


def test_a_perfect_model_gives_the_specifications_table():
    found = read_toy(perfect_toy())
    assert found.marginals == pytest.approx({"A": 0.55, "B": 0.69}, abs=1e-6)
    assert found.data == pytest.approx([0.55, 0, 0.14, 0.31])
    assert found.parallel == pytest.approx([0.3795, 0.1705, 0.3105, 0.1395], abs=1e-6)
    assert found.sequential == pytest.approx(found.data, abs=1e-6)
    # Confidence picks by what was drawn: B (.69) goes first if drawn, else x1, and AB comes out too often.
    assert found.rules["low-confidence"][0] == pytest.approx(0.55 + 0.31 * 0.55, abs=1e-6)
    # Dream's schedule truncates: with three steps for three masks its last step takes two at once.
    assert found.rules["dream-entropy"] == pytest.approx(found.parallel, abs=1e-6)
    assert set(found.rules) == NAMED


def test_the_loss_without_chance_is_the_entropy_of_the_data_at_best():
    """The exact NELBO of a perfect model is the data's entropy (any order factorises it)."""
    model = perfect_toy()
    examples = every_noise()
    call = nelbo_call(model, examples)
    p = model.head(model.hidden(call.batch)[call.index]).log_softmax(dim=-1)
    targets = torch.cat([one.targets for one in examples])
    weights = torch.cat([one.weights for one in examples]) / len(examples)
    loss = -(weights * p.gather(1, targets[:, None])[:, 0]).sum()
    shares = [count / 100 for count in COUNTS.values()]
    assert float(loss) == pytest.approx(-sum(s * math.log(s) for s in shares), abs=1e-5)


def test_the_rows_are_the_specifications():
    assert len(sequences()) == 100 and len(QUESTION) == 5
    assert sequences().count(ids_of("ABCDG")) == 55
    assert toy.SYMBOLS[QUESTION[2]] + toy.SYMBOLS[QUESTION[3]] == "CD"
