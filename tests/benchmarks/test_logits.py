"""`python -m benchmarks.logits`: the three numbers in bf16 on a toy, against the plain code."""

import json
import sys

import pytest
import torch
from benchmarks.logits import main, relative, same_token, without_mask


def test_relative_differences_and_arg_max_on_numbers_by_hand():
    wanted = torch.tensor([[3.0, 0.0, 4.0], [0.0, 0.0, 5.0]])
    found = torch.tensor([[3.0, 0.0, 4.0], [5.0, 0.0, 0.0]])
    assert relative(found, wanted) == pytest.approx(1.0)  # sqrt(50) / sqrt(50)
    assert same_token(found, wanted) == 0.5
    assert without_mask(wanted, 1).tolist() == [[3.0, 4.0], [0.0, 5.0]]


def test_a_toy_prints_all_three_numbers(tmp_path, monkeypatch, capsys):
    """Ours and the plain code lie closer to each other than either lies to float32, where they agree."""
    file = tmp_path / "logits.json"
    given = ["benchmarks.logits", "--toy", "--prompts", "2", "--length", "24", "--out", str(file)]
    monkeypatch.setattr(sys, "argv", given)
    assert main() == 0
    found = json.loads(file.read_text())
    assert found["rows"] == 48 and found["in_float32"] < 1e-5
    assert 0 < found["ours_peer"] < max(found["ours_float32"], found["peer_float32"]) < 0.1
    assert min(found["same_token_ours"], found["same_token_peer"]) > 0.7
    printed = capsys.readouterr().out
    assert "| ours against float32 |" in printed and "re-implementation of the published modelling code" in printed
