"""The size of a run, from the configuration and the tokenizer alone."""

from dataclasses import replace

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
    planned = workload_of(plan_run(described, settings, load_words()).units)
    run = mw.diagnose("tiny-llada", "mask-count", preset="quick", questions=3, out=tmp_path / "run")
    rows = run.table("mask-count").to_dict("records")
    asked = [len(asked_ids(run.manifest, row, described.tokenizer)) for row in rows]
    assert planned.prompts == len(asked) and planned.tokens == pytest.approx(sum(asked), rel=0.1)


def test_every_decoding_step_is_a_pass_over_its_prompt():
    settings = chosen_settings("paper", probes="steps", questions=1)
    settings = replace(settings, tasks=settings.tasks[:1]).changed("steps", masks=(2, 20))
    plan = plan_run(describe_model("tiny-llada"), settings, load_words())
    length = len(next(plan.units[0].items([0], set())).prompt.ids) - 2  # but for the masks
    steps = (2, 4, 6, 40, 40)  # each no more than there are masks
    tokens = sum(min(n, masks) * (length + masks) for n in steps for masks in (2, 20))
    assert (workload_of(plan.units).prompts, workload_of(plan.units).tokens) == (10, tokens)
