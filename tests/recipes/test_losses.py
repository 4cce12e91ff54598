"""The recipe that compares the terms of the loss: every stage at toy size, and the arithmetic of its table."""

import json

import pytest
import torch

from losses import LOSSES, Job, differences, main, number, of_pair


@pytest.mark.slow
def test_three_losses_of_the_small_model(tmp_path, capsys):
    main(["--distracted", "--toy", "--seeds", "1", "--processes", "1", "--out", str(tmp_path)])
    table = json.loads((tmp_path / "losses.json").read_text())
    (rate,) = table["rates"].values()
    assert table["points"]["tv"] == 8
    for loss, (alpha, beta) in LOSSES.items():
        run = tmp_path / Job(loss, 0.003, 0).folder / "tuned"
        asked = json.loads((run / "settings.json").read_text())["identity"]["settings"]
        assert (asked["alpha"], asked["beta"], asked["learning_rate"]) == (alpha, beta, 0.003)
        for entries in rate.values():
            assert entries[loss]["change"] == pytest.approx(entries[loss]["value"] - entries["untuned"]["value"])
            if entries[loss]["low"] is not None:  # where no pair changed there is no interval
                assert entries[loss]["low"] <= entries[loss]["change"] <= entries[loss]["high"]
    assert len({rate["ce"][loss]["value"] for loss in LOSSES}) == 3
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "losses.md").read_text()
    assert "| | untuned | CE alone | CE + TV | TV alone |" in printed


def test_measures_of_a_pair():
    few = torch.tensor([[0.5, 0.5, 0.0], [0.8, 0.1, 0.1]], dtype=torch.float64).log()
    many = torch.tensor([[0.25, 0.5, 0.25], [0.1, 0.8, 0.1]], dtype=torch.float64).log()
    found = of_pair(few, many, torch.tensor([1, 0]))
    assert found["tv"] == pytest.approx((0.5 + 1.4) / 2)
    assert (found["right, few masks"], found["right, many masks"], found["lost"]) == (0.5, 0.5, 0.0)
    assert found["confidence"] == pytest.approx((0.5 + 0.8 + 0.5 + 0.8) / 4)
    few_right = of_pair(few[1:], many[1:], torch.tensor([0]))
    assert few_right["lost"] == 1.0 and few_right["ce"] == pytest.approx(-(torch.tensor([0.8, 0.1]).log().mean()))


def test_changes_are_paired_and_numbers_plain():
    untuned = [("a", 1.0), ("a", 0.0), ("b", 1.0)]
    runs = [[("a", 1.0), ("a", 1.0), ("b", 0.0)], [("a", 0.0), ("a", 1.0), ("b", 1.0)]]
    assert differences(untuned, runs) == [("a", -0.5), ("a", 1.0), ("b", -0.5)]
    assert [number(v, 100, 1, "+") for v in (0.0123, -0.5, -1e-9)] == ["+1.2", "−50.0", "0.0"]
