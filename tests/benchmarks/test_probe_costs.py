"""`python -m benchmarks.probe_costs`: every forward pass of a probe is counted once."""

import json

import pytest
import torch
from benchmarks.measure import Bench
from benchmarks.probe_costs import counting, main
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


@pytest.mark.slow
def test_a_toy_prints_the_cost_of_a_probe(tmp_path, capsys):
    file = tmp_path / "costs.json"
    assert main(["--toy", "--probes", "trajectory", "--out", str(file)]) == 0
    [found] = json.loads(file.read_text())
    assert found["probe"] == "trajectory" and found["records"] == 120 and found["peak"] is None
    # 20 questions under 3 strategies, 8 masks in 8 and in 4 steps: a pass per step, in slices of the questions
    assert 3 * (8 + 4) <= found["passes"] <= 20 * 3 * (8 + 4)
    assert "trajectory: " in capsys.readouterr().out
