"""The two commands of docs/how-to/train.md, as they are written there."""

import json
import re
import shlex

import pytest
from typer.testing import CliRunner

import maskwise as mw
from helpers.wheel import ROOT
from maskwise.cli import app


@pytest.mark.slow
def test_two_commands_make_a_diffusion_model_of_an_autoregressive_one(tmp_path, monkeypatch):
    page = (ROOT / "docs" / "how-to" / "train.md").read_text()
    commands = re.findall(r"^maskwise (.*)$", page, flags=re.MULTILINE)[:2]
    assert [command.split()[0] for command in commands] == ["convert", "train"]
    (tmp_path / "README.md").write_text((ROOT / "README.md").read_text())
    monkeypatch.chdir(tmp_path)
    for command in commands:
        done = CliRunner().invoke(app, [*shlex.split(command), "--json"])
        assert done.exit_code == 0, done.output
    source, model = mw.open("tiny-qwen", device="cpu"), mw.open("trained", device="cpu")
    assert source.causal and not model.causal and model.mask_id is not None
    result = json.loads((tmp_path / "trained" / "result.json").read_text())
    assert result["steps"] == 30 and result["after"]["nelbo"] < result["before"]["nelbo"]
