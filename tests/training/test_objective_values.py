"""Objectives as values: what each one states, and one from outside the package (`outside_objective.py`)."""

import json
import re
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from outside_objective import FOCAL

import maskwise as mw
from maskwise.diffusion import MicroBatch
from maskwise.diffusion.objectives import OBJECTIVES, find_objective
from maskwise.support.errors import UserError
from maskwise.training.checked_settings import OF_OBJECTIVES, train_settings
from maskwise.training.data.documents import TextPiece
from maskwise.training.data.noised_rows import NoisedRows, collate_rows
from maskwise.training.training_settings import TrainSettings

SMALL = {
    "steps": 2,
    "batch": 2,
    "context": 24,
    "held_out": 4,
    "many": 10,
    "lora_rank": 2,
    "learning_rate": 1e-2,
    "warmup": 0,
    "device": "cpu",
    "tensorboard": False,
}


def test_each_objective_has_its_paper_and_takes_known_settings():
    assert len({objective.name for objective in OBJECTIVES}) == len(OBJECTIVES)
    for objective in OBJECTIVES:
        assert re.search(r"arXiv \d{4}\.\d{5}$", objective.paper), objective
        assert set(objective.takes) <= set(OF_OBJECTIVES)
        assert find_objective(objective.name) is find_objective(objective) is objective
    assert {name for objective in OBJECTIVES for name in objective.takes} == set(OF_OBJECTIVES)


def test_objectives_and_settings_are_listed_without_torch():
    code = "import sys, maskwise.training.checked_settings; print([m for m in ('torch', 'numpy') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_an_objective_from_outside_trains(checkpoint, text_file, tmp_path):
    result = mw.train(str(checkpoint), text_file, tmp_path / "out", objective=FOCAL, gamma=1.5, **SMALL)
    assert result["steps"] == 2 and len(result["losses"]) == 2
    stored = json.loads((tmp_path / "out" / "settings.json").read_text())["identity"]["settings"]
    assert stored["objective"] == "focal" and stored["parameters"] == {"gamma": 1.5}
    assert "| objective | focal |" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(UserError, match=r"settings\.parameters\.gamma is 1\.5 there and 2\.0 here"):
        mw.train(str(checkpoint), text_file, tmp_path / "out", objective=FOCAL, **SMALL)


def test_the_loss_of_an_objective_from_outside_is_the_one_it_states(checkpoint):
    model = mw.open(checkpoint, device="cpu")
    settings = TrainSettings(objective=FOCAL, parameters={"gamma": 2.0})
    rows = [
        (TextPiece(torch.arange(5, 13)), TextPiece(torch.arange(9, 14))),
        (TextPiece(torch.arange(6, 17)),),
    ]
    data = NoisedRows(rows, settings, model.mask_id, 1)
    inputs = collate_rows([data.item(0, 3), data.item(1, 3)])
    call = FOCAL.loss(MicroBatch(model, model, inputs["examples"], 2, inputs["chances"], settings))
    wanted = 0.0
    for example in inputs["examples"]:
        logits = model.core(example.ids[None]).logits[0].index_fill(1, torch.tensor([model.mask_id]), -torch.inf)
        ce = F.cross_entropy(logits[example.rows], example.targets, reduction="none")
        wanted = wanted + (example.weights * (1 - torch.exp(-ce)) ** 2 * ce).sum() / 2
    torch.testing.assert_close(model(call.batch, call.index, call.loss), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"objective": FOCAL, "gamma": "2"}, "gamma of the objective focal is '2': it must be a number"),
        ({"objective": FOCAL, "parameters": {"gama": 2.0}}, "focal has no parameter 'gama': did you mean gamma?"),
        ({"objective": FOCAL, "block": 4}, "block is of the objective blockwise: leave it out for focal"),
        ({"gamma": 2.0}, "there is no setting 'gamma'"),
    ],
    ids=["type", "name", "block", "without"],
)
def test_what_does_not_go_with_an_objective_is_refused(changes, reason):
    with pytest.raises(UserError, match=re.escape(reason)):
        train_settings(changes)
