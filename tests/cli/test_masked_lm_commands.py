"""Random masked language models of three architectures through every command, as a user would type them."""

import json

import pytest
from typer.testing import CliRunner

from helpers.masked_lms import save_masked_lm
from maskwise.cli import app

PROBES = (
    "natural-text,marginals,total-correlation,order,attribution,mask-attribution,attention,mask-count,filler,location"
)


def run(*words):
    done = CliRunner().invoke(app, [str(word) for word in words], prog_name="maskwise")
    assert done.exit_code == 0, done.output
    return done.output


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Bert", "Roberta", "ModernBert"])
def test_a_masked_language_model_goes_through_every_command(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    model = save_masked_lm("model", name, positions=1536)
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "One and one is", "answer": " two."}\n' * 8)
    (tmp_path / "text.txt").write_text("\n\n".join(f"The old king had a house of {n} stones." for n in range(300)))

    assert "masked-lm" in run("models", model)
    assert json.loads(run("generate", model, "Once upon a time", "-n", 4, "--json"))
    assert json.loads(run("score", model, "--data", "pairs.jsonl", "--json"))
    small = ("--relevant", 1, "--distractors", 3, "--points", 1)
    run("diagnose", model, "--quick", "--probes", PROBES, *small, "--out", "run")
    assert (tmp_path / "run" / "report.html").exists()
    run("tune", model, "--data", "pairs.jsonl", "--out", "tuned", "--steps", 1, "--batch", 2, "--context", 64)
    run("train", model, "--data", "text.txt", "--out", "trained", "--steps", 1, "--batch", 2, "--context", 64)
    run("export", model, "--adapter", "tuned", "--out", "merged")
    assert run("generate", "merged", "Once upon a time", "-n", 4)
    run("compare", model, "merged", "--quick", "--points", 1, "--out", "compared")
