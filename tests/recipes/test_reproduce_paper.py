"""The script for published checkpoints runs on a small model and writes the file to send back."""

import json

import pytest

import maskwise as mw
import reproduce_paper
from helpers.known import shipped_tokenizer
from helpers.tiny import llada_net
from reproduce_paper import FILE, PREDICTIONS, Measured, run_all, verdict


@pytest.mark.slow
def test_it_writes_one_file_with_every_prediction_of_the_model(tmp_path):
    folder = tmp_path / "LLaDA-8B-Base"  # a random network under the published name
    llada_net(vocab=2048, window=4096, width=16, layers=1, mask_token_id=1).save_pretrained(folder)
    shipped_tokenizer().save_pretrained(folder)
    file = run_all(mw.open(str(folder), device="cpu"), tmp_path / "out", 1, ("mask-count",))
    content = json.loads(file.read_text())
    assert file.name == FILE and str(tmp_path) not in file.read_text()
    assert content["model"]["of_the_paper"] == "LLaDA-8B-Base" and content["points"] == 1
    rows = {row["measure"]: row for row in content["measured"]}
    wanted = {one.measure for one in PREDICTIONS if "LLaDA-8B-Base" in one.models}
    assert wanted <= rows.keys() and all("predicted" in rows[name] for name in wanted)
    masks = rows["paper: accuracy, 200 masks less 2"]
    assert masks["inside"] is (-0.33 <= masks["value"] <= -0.13)
    assert content["selected_tasks"]["unfamiliar-2"]["questions"] == 12


def test_a_prediction_is_judged_for_its_models_alone():
    found = Measured("paper: accuracy, 200 masks less 2", -0.2, -0.25, -0.15)
    assert verdict("LLaDA-8B-Base", found)["inside"] and verdict("LLaDA-8B-Instruct", found)["inside"]
    assert not verdict("LLaDA-8B-Base", Measured(found.measure, 0.1, 0.0, 0.2))["inside"]
    assert verdict(None, found) == {} and verdict("Dream-7B-Base", found) == {}


def test_every_prediction_is_an_interval_with_a_reason():
    assert all(one.low < one.high and one.why for one in reproduce_paper.PREDICTIONS)
