"""LLaDA2.2 as a folder: it is opened by its configuration, diagnosed within its blocks, and decoded with its edits."""

import json

import pytest
from typer.testing import CliRunner

import maskwise as mw
from helpers.tiny import llada22_net
from maskwise.cli import app
from maskwise.decoding.strategies.levenshtein import EditTokens

PROBES = "mask-count,filler,location,contrast,recall,natural-text,self-correction,coherence,mechanism"
EDITS = ("--rule", "threshold", "--edit", "0", "--parameter", "threshold=0.02")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Random weights with tiny-llada's tokenizer; blocks of 8, in which tokens 61 and 62 edit."""
    where = tmp_path_factory.mktemp("llada22")
    tokenizer = mw.open("tiny-llada").tokenizer
    shape = {"vocab": len(tokenizer), "window": 1536, "mask_token_id": tokenizer.mask_token_id}
    llada22_net(**shape).save_pretrained(where)
    tokenizer.save_pretrained(where)
    return where


def called(*words):
    return CliRunner().invoke(app, [str(word) for word in words], prog_name="maskwise")


def test_the_command_decodes_with_insertions_and_deletions(folder):
    done = called("generate", folder, "Once upon a time", "-n", 6, "--json", *EDITS)
    assert done.exit_code == 0, done.output
    model = mw.open(folder)
    (own,) = mw.generate(model, ["Once upon a time"], max_new_tokens=6, rule="threshold", tau=0.02, edit=0.0)
    (made,) = json.loads(done.stdout)["generations"]
    special = EditTokens.of(model)
    assert made["ids"] == own.ids and special is not None
    assert not {special.mask, special.delete, special.split} & set(own.ids)


@pytest.mark.slow
def test_it_is_diagnosed_within_its_blocks(folder, tmp_path):
    small = ("--quick", "--points", 1, "--relevant", 1, "--distractors", 2)
    done = called("diagnose", folder, "--probes", PROBES, *small, "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    run = mw.read_run(tmp_path / "run")
    assert {record.probe for record in run.records} >= {"mask-count", "filler", "location", "contrast", "recall"}
    assert max(record.condition["masks"] for record in run.records if record.probe == "mask-count") == 8
    assert "its block of 8 tokens" in (tmp_path / "run" / "report.html").read_text()
