"""The size of a run, before it is asked."""

from dataclasses import replace
from math import sqrt

import pytest

import maskwise as mw
from maskwise.runs.asked import asked_ids
from maskwise.runs.diagnose import plan_run
from maskwise.runs.settings import chosen_settings
from maskwise.runs.workload import expected, workload_of
from maskwise.tasks.words import load_words


def test_the_planned_prompts_and_tokens_are_those_that_are_asked(tmp_path):
    model = mw.open("tiny-llada")
    settings = chosen_settings("quick", probes="mask-count", questions=3)
    planned = workload_of(plan_run(model, settings, load_words()).units)
    run = mw.diagnose(model, "mask-count", preset="quick", questions=3, out=tmp_path / "run")
    rows = run.table("mask-count").to_dict("records")
    asked = [len(asked_ids(run.manifest, row, model.tokenizer)) for row in rows]
    assert planned.prompts == len(asked) and planned.tokens == pytest.approx(sum(asked), rel=0.1)


def test_every_decoding_step_is_a_pass_over_its_prompt():
    settings = chosen_settings("paper", probes="steps", questions=1)
    settings = replace(settings, tasks=settings.tasks[:1]).changed("steps", masks=(2, 20))
    plan = plan_run(mw.open("tiny-llada"), settings, load_words())
    length = len(next(plan.units[0].items([0], set())).prompt.ids) - 2  # but for the masks
    steps = (2, 4, 6, 40, 40)  # each no more than there are masks
    tokens = sum(min(n, masks) * (length + masks) for n in steps for masks in (2, 20))
    assert (workload_of(plan.units).prompts, workload_of(plan.units).tokens) == (10, tokens)


def test_the_half_width_counts_the_questions_of_the_lead_once():
    model = mw.open("tiny-llada")
    settings = chosen_settings("quick", probes="mask-count,contrast,confidence", questions=2)
    settings = settings.changed("mask-count", shots=(1,)).changed("contrast", tasks=2)
    plan = plan_run(model, settings)
    few, distance = (
        expected(model, plan.units, plan.firsts, 512, *lead) for lead in (("mask-count",), ("contrast", 3))
    )
    assert few["half_width_10"] == pytest.approx(1.96 * sqrt(0.1 / (5 * 2)), rel=1e-3)
    assert distance["half_width_30"] == pytest.approx(1.96 * sqrt(0.3 / (2 * 2)), rel=1e-3)
    passes = {unit.passes for unit, some in zip(plan.units, plan.firsts, strict=True) if some[0].key[0] == "confidence"}
    assert min(passes) > 1
