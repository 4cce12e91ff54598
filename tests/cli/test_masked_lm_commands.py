"""Random masked language models of three architectures through every command, as a user would type them."""

import json

import lm_eval
import pytest
import torch
from lm_eval.api.instance import Instance
from lm_eval.tasks import TaskManager
from typer.testing import CliRunner

from helpers.masked_lms import framing_tokenizer, save_masked_lm
from maskwise.cli import app
from maskwise.lm_eval.model import MaskwiseLM
from maskwise.lm_eval.tasks import FOLDER

PROBES = "natural-text,marginals,total-correlation,order,attribution,mask-count,filler,location,recall,mechanism"
ARCHITECTURES = ("Bert", "Roberta", "ModernBert")


def called(*words):
    return CliRunner().invoke(app, [str(word) for word in words], prog_name="maskwise")


def run(*words):
    done = called(*words)
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.fixture(params=ARCHITECTURES)
def model(request, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pairs.jsonl").write_text('{"prompt": "One and one is", "answer": " two."}\n' * 32)
    return str(save_masked_lm("model", request.param, positions=1536))


@pytest.mark.slow
def test_a_masked_language_model_goes_through_every_command(model, tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(f"The old king had a house of {n} stones." for n in range(300)))

    assert "masked-lm" in run("models", model)
    assert json.loads(run("generate", model, "Once upon a time", "-n", 4, "--json"))
    assert json.loads(run("score", model, "--data", "pairs.jsonl", "--json"))
    small = ("--relevant", 1, "--distractors", 3, "--questions", 1)
    run("diagnose", model, "--quick", "--probes", PROBES, *small, "--out", "run")
    page = (tmp_path / "run" / "report.html").read_text()
    assert "mechanism was not run: the attention of a masked language model cannot be cut" in page
    assert "masked-lm" in run("report", "run", "--card")
    run("tune", model, "--data", "pairs.jsonl", "--out", "tuned", "--steps", 1, "--batch", 2, "--context", 64)
    run("train", model, "--data", "text.txt", "--out", "trained", "--steps", 1, "--batch", 2, "--context", 64)
    run("export", model, "--adapter", "tuned", "--out", "merged")
    assert run("generate", "merged", "Once upon a time", "-n", 4)
    run("compare", model, "merged", "--quick", "--questions", 1, "--out", "compared")


@pytest.mark.slow
def test_settings_are_advised_without_caches(model):
    space = ("-n", 4, "--questions", 8)
    found = json.loads(run("advise", model, "--data", "pairs.jsonl", "--exact", *space, "--out", "search", "--json"))
    assert found["confirmed"] and "cache" not in str(found["confirmed"]) + str(found["others"])
    space = ("-n", 4, "--questions", 8, "--settings", "canvas=blocks,block=2,cache=dual steps=2")
    refused = called("advise", model, "--data", "pairs.jsonl", "--exact", *space, "--out", "other")
    assert refused.exit_code == 2 and "takes no canvas cache" in refused.output


@pytest.mark.slow
def test_lm_eval_scores_and_generates_as_the_model_itself_does(model):
    """The log-likelihood of a one-token answer is that of transformers' own class at the mask."""
    lm = MaskwiseLM(model)
    prompt, answer = "One and one is", " two"
    ids, (start, end) = lm.model.tokenizer(prompt)["input_ids"], framing_tokenizer()("")["input_ids"]
    (token,) = lm.model.tokenizer(f"{prompt}{answer}")["input_ids"][len(ids) :]
    logits = lm.model.net(input_ids=torch.tensor([[start, *ids, lm.model.mask_id, end]])).logits[0, len(ids) + 1]
    logits[lm.model.mask_id] = float("-inf")
    ((likelihood, greedy),) = lm.loglikelihood([Instance("loglikelihood", {}, (prompt, answer), 0)])
    assert likelihood == pytest.approx(logits.log_softmax(-1)[token].item(), abs=1e-4)
    assert greedy == (logits.argmax().item() == token)
    results = lm_eval.simple_evaluate(
        model="maskwise",
        tasks=["maskwise_country_smallest"],
        task_manager=TaskManager(include_path=str(FOLDER), include_defaults=False),
        model_args={"pretrained": model, "max_new_tokens": 4},
        num_fewshot=2,
        limit=2,
        bootstrap_iters=0,
    )
    assert 0 <= results["results"]["maskwise_country_smallest"]["exact_match,letter"] <= 1
    assert results["config"]["maskwise"]["masks_generated"] == [4]


def test_verify_refuses_a_checkpoint_that_carries_no_code(tmp_path):
    done = called("verify", save_masked_lm(tmp_path / "model", "Bert"))
    assert done.exit_code == 2 and "no original code to compare with" in done.output
