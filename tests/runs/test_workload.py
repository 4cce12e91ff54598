"""The size of a run, from the configuration and the tokenizer alone."""

import pytest

import maskwise as mw
from maskwise.models.checkpoints.catalog import describe_checkpoint
from maskwise.runs.asked import asked_ids
from maskwise.runs.described_model import describe_model
from maskwise.runs.diagnose import plan_run
from maskwise.runs.settings import chosen_settings
from maskwise.runs.workload import workload_of
from maskwise.tasks.words import load_words


def test_the_planned_prompts_and_tokens_are_those_that_are_asked(tmp_path):
    described = describe_model("tiny-llada")
    assert described.parameters == describe_checkpoint("tiny-llada").parameters
    settings = chosen_settings("quick", probes="mask-count", questions=3)
    planned = workload_of(plan_run(described, settings, load_words()))
    run = mw.diagnose("tiny-llada", "mask-count", preset="quick", questions=3, out=tmp_path / "run")
    asked = [len(asked_ids(run.manifest, record, described.tokenizer)) for record in run.records]
    assert planned.prompts == len(asked) and planned.tokens == pytest.approx(sum(asked), rel=0.1)
