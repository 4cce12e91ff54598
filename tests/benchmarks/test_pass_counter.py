"""The tokens of row r: every forward pass is counted once."""

import torch
from benchmarks.measure import Bench
from benchmarks.pass_counter import counting
from benchmarks.shapes import make_model

import maskwise as mw


def test_passes_of_predictions_and_decodings_are_counted_once():
    model = make_model(Bench(torch.device("cpu"), False, 1.0), "llada")
    with counting() as counter:
        model.predict([[5, 6, 7], [8, 9]], [[0], [1]])
    assert (counter.tokens, counter.passes) == (5, 1)
    with counting() as counter:
        mw.generate(model, [[5, 6, 7]], max_new_tokens=4, steps=2)
    assert (counter.tokens, counter.passes) == (2 * (3 + 4), 2)
    model.predict([[5, 6, 7]], [[0]])
    assert counter.passes == 2  # no longer counted
