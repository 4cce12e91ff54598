"""The runner: answers against the plain door, and the same records however they are made."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from helpers.asked_alone import small_model
from helpers.known import CORE_PROBES, DECODED, SMALL, known_model, shipped_tokenizer, uniform
from helpers.same_records import assert_same_records, sampled_again
from helpers.tiny import tiny_ar, tiny_dream, tiny_llada
from maskwise.probes import PROBES
from maskwise.probes.answers.plain import Answer, ask
from maskwise.probes.setup import Asker, Setup
from maskwise.probes.text import load_text
from maskwise.records.folder import read_run
from maskwise.records.record import Record
from maskwise.runs.diagnose import diagnose, plan, plan_run
from maskwise.runs.runner import batch_budget, batches
from maskwise.runs.settings import DEFAULT, with_examples
from maskwise.support.errors import UserError
from maskwise.support.typed import convert
from maskwise.tasks.prompts import Prompt, filler_id
from maskwise.tasks.words import load_words

ALONE = Path(__file__).parent.parent / "helpers" / "asked_alone.py"
TESTS = os.pathsep.join([str(ALONE.parent.parent), os.environ.get("PYTHONPATH", "")])
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": TESTS}


@pytest.mark.parametrize("make", [tiny_llada, tiny_dream, tiny_ar])
def test_answers_are_those_of_the_plain_door(make):
    model = make()
    draws = torch.Generator().manual_seed(0)
    prompts = []
    for length in (5, 17, 9):
        ids = torch.randint(0, 60, (length,), generator=draws).tolist()
        row = length if model.causal else length // 2
        if not model.causal:
            ids[row] = model.mask_id
        prompts.append(Prompt(tuple(ids), row, answer_id=length, masks=1))
    logits = model.predict([prompt.ids for prompt in prompts], [[prompt.row] for prompt in prompts])
    for prompt, answer, row in zip(prompts, ask(model, prompts), logits, strict=True):
        p = torch.softmax(row[0].double(), 0)
        assert answer.token == int(p.argmax())
        assert answer.confidence == pytest.approx(float(p.max()), rel=1e-5)
        assert answer.nll == pytest.approx(-float(p[prompt.answer_id].log()), rel=1e-5)
        assert answer.entropy == pytest.approx(-float((p[p > 0] * p[p > 0].log()).sum()), rel=1e-5)


def prompts_of(*lengths):
    return [Prompt((0,) * length, 0, 0, 1) for length in lengths]


def test_batches_keep_to_the_budget_and_halve_it_when_memory_runs_out():
    sizes = []

    def answer(prompts):
        tokens = sum(len(prompt.ids) for prompt in prompts)
        if tokens > 60:
            raise torch.OutOfMemoryError
        sizes.append(tokens)
        return [Answer(len(prompt.ids), 1.0, 0.0, 0.0) for prompt in prompts]

    prompts = prompts_of(40, 30, 30, 20, 20, 10, 10, 10)
    found = list(batches(prompts, 200, answer))
    assert [answer.token for _, answers in found for answer in answers] == [len(prompt.ids) for prompt in prompts]
    assert [first for first, _ in found] == [sum(len(answers) for _, answers in found[:n]) for n in range(len(found))]
    assert max(sizes) <= 60 and sum(sizes) == 170
    with pytest.raises(UserError, match="one prompt of 61 tokens"):
        list(batches(prompts_of(61), 200, answer))


def test_a_prompt_longer_than_the_budget_goes_alone():
    found = list(batches(prompts_of(50, 5, 5), 10, lambda some: [Answer(0, 1, 0, 0)] * len(some)))
    assert [len(answers) for _, answers in found] == [1, 2]


def test_the_budget_must_be_positive():
    with pytest.raises(UserError, match="batch_tokens"):
        batch_budget(small_model(), 0)


def assert_same_run(folder, reference):
    assert_same_records(read_run(folder).records, read_run(reference).records)
    assert read_run(folder).manifest == read_run(reference).manifest


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return diagnose(small_model(), SMALL, tmp_path_factory.mktemp("reference"))


@pytest.fixture(scope="module")
def decoded(tmp_path_factory):
    return diagnose(small_model(), DECODED, tmp_path_factory.mktemp("decoded"))


def test_every_point_is_asked_once_under_every_condition(reference):
    records = read_run(reference).records
    keys = [json.dumps([record[name] for name in ("probe", "task", "point", "condition")]) for record in records]
    conditions = 9 + 4 + 3
    assert len(set(keys)) == len(keys) == 2 * SMALL.questions * conditions + SMALL.passages * 4
    assert read_run(reference).manifest["complete"]


@pytest.mark.parametrize("batch_tokens", [500, 100_000])
def test_the_same_records_for_any_batch_size(tmp_path, reference, batch_tokens):
    assert_same_run(diagnose(small_model(), SMALL, tmp_path, batch_tokens=batch_tokens), reference)


def test_exact_records_are_equal_to_the_byte(tmp_path):
    """Interrupted twice, among other prompts, or never: --exact promises bytes where batches promise answers."""
    few = replace(DECODED, questions=2)
    whole = diagnose(small_model(), few, tmp_path / "whole", exact=True)
    calls = []
    model = small_model()
    body = model._body

    def stopping(net, batch, layout):
        calls.append(len(batch.offsets) - 1)
        if len(calls) in (9, 30):
            raise KeyboardInterrupt
        return body(net, batch, layout)

    model._body = stopping
    for _ in range(3):
        with suppress(KeyboardInterrupt):
            diagnose(model, few, tmp_path / "stopped", exact=True)
    assert len(calls) > 30 and set(calls) == {1}
    assert (tmp_path / "stopped" / "records.jsonl").read_bytes() == (whole / "records.jsonl").read_bytes()
    with pytest.raises(UserError, match="exact was true"):
        diagnose(small_model(), few, whole)
    with pytest.raises(UserError, match="leave batch_tokens out"):
        diagnose(small_model(), few, tmp_path / "both", batch_tokens=9, exact=True)


@pytest.mark.slow
def test_the_same_random_orders_for_any_batch_size(tmp_path, decoded):
    assert_same_run(diagnose(small_model(), DECODED, tmp_path, batch_tokens=1), decoded)
    assert {record.condition.get("order") for record in read_run(decoded).records} >= {"random", "confidence"}


@pytest.mark.slow
def test_two_processes_make_the_same_records_as_one(tmp_path, decoded):
    """With the environment torchrun gives them, but in this session: torchrun's children outlive a test that is cut."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        crew = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    command = [sys.executable, ALONE, tmp_path, "DECODED"]
    started = [
        subprocess.Popen(command, env=ENVIRONMENT | crew | {"RANK": rank, "LOCAL_RANK": rank}, stderr=subprocess.PIPE)
        for rank in ("0", "1")
    ]
    try:
        for process in started:
            _, problem = process.communicate(timeout=120)
            assert process.returncode == 0, problem
    finally:
        for process in started:
            process.kill()
    assert_same_run(tmp_path, decoded)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["manifest.json", "records.jsonl", "sample.json"]


@pytest.mark.slow
def test_a_killed_run_goes_on_where_it_stopped(tmp_path, reference):
    command = [sys.executable, ALONE, tmp_path, "SMALL", "0.05"]
    process = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.DEVNULL)
    records = tmp_path / "records.jsonl"
    while not (records.exists() and records.read_text().count("\n") > 20):
        assert process.poll() is None, "the process ended before it could be killed"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = [json.loads(line) for line in records.read_text().split("\n")[:-1]]
    assert 20 < len(kept) < len(read_run(reference).records)
    assert not read_run(tmp_path).manifest["complete"]
    with records.open("a") as file:  # what a kill in the middle of a write leaves
        file.write('{"model": "tiny')

    passes = []
    model = small_model()
    body = model._body
    model._body = lambda net, batch, layout: passes.append(len(batch.offsets) - 1) or body(net, batch, layout)
    diagnose(model, SMALL, tmp_path)
    assert_same_run(tmp_path, reference)
    assert [record for record in kept if convert(record, Record) not in read_run(tmp_path).records] == []
    asked = sum(passes) - sampled_again(tmp_path)
    assert 0 < asked <= len(read_run(reference).records) - len(kept)  # nothing kept was asked again
    passes.clear()
    diagnose(model, SMALL, tmp_path)
    assert passes == []


def test_an_error_in_the_middle_loses_one_batch_at_most(tmp_path, reference):
    model = small_model()
    body, passes = model._body, []

    def failing(net, batch, layout):
        passes.append(len(batch.offsets) - 1)
        if len(passes) == 4:
            raise KeyboardInterrupt
        return body(net, batch, layout)

    model._body = failing
    with pytest.raises(KeyboardInterrupt):
        diagnose(model, SMALL, tmp_path, batch_tokens=1000)
    assert len(read_run(tmp_path).records) >= sum(passes[:3])
    assert_same_run(diagnose(small_model(), SMALL, tmp_path), reference)


def test_equal_prompts_are_asked_once(tmp_path):
    model = known_model(uniform)
    asked = []
    body = model._body
    model._body = lambda net, batch, layout: asked.append(len(batch.offsets) - 1) or body(net, batch, layout)
    folder = diagnose(model, SMALL, tmp_path)
    repeated = SMALL.passages  # nothing after a passage
    assert sum(asked) - sampled_again(folder) == len(read_run(folder).records) - repeated


def test_probes_with_the_same_prompts_are_asked_once_and_recorded_as_if_each_were_alone(tmp_path):
    """Two masks after mixed examples are asked by mask-count and filler."""
    model = known_model(uniform)
    body, rows = model._body, []
    model._body = lambda net, batch, layout: rows.append(len(batch.offsets) - 1) or body(net, batch, layout)
    after = {"filler_counts": (), "after_two_masks": (".",), "mask_counts": (2, 20)}
    settings = SMALL.changed("filler", **after).changed("mask-count", mask_counts=(2, 5))

    def asked(*probes):
        rows.clear()
        folder = diagnose(model, replace(settings, probes=probes), tmp_path / "-".join(probes))
        return read_run(folder).records, sum(rows) - sampled_again(folder)

    (first, first_rows), (second, second_rows) = asked("mask-count"), asked("filler")
    both, both_rows = asked("mask-count", "filler")
    assert both == first + second
    assert (first_rows, second_rows) == (len(first), len(second)) and both_rows == first_rows + second_rows // 2


def test_no_prompt_of_a_run_is_in_two_units_that_are_asked_alike():
    """So whatever probes share is found within a unit, where equal prompts are asked once."""
    model = small_model()
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, "."))
    settings = replace(DEFAULT, tasks=DEFAULT.tasks[:2], questions=1, passages=1)
    setup = Setup(model, asker, settings, load_words(), load_text(), {}, [])
    asked: dict[object, list[Prompt]] = {}
    for unit in plan(setup, [probe for probe in PROBES if probe.name in settings.probes]):
        asked.setdefault(unit.answer, []).extend({item.prompt for item in unit.items(unit.points, set())})
    assert sum(map(len, asked.values())) > 100
    assert all(len(set(prompts)) == len(prompts) for prompts in asked.values())


def test_a_prompt_longer_than_the_window_is_refused_before_anything_is_written(tmp_path):
    model = tiny_llada(tokenizer=shipped_tokenizer(), vocab=2048, window=120, mask_token_id=1)
    with pytest.raises(UserError, match=r"of tiny random LLaDA is 120; leave the probe out with probes$"):
        diagnose(model, CORE_PROBES, tmp_path / "run")
    with pytest.raises(UserError, match=r'120; use preset="quick" \(shorter prompts\) or leave the probe out'):
        diagnose(model, replace(CORE_PROBES, preset="default"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_model_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(UserError, match="no tokenizer"):
        diagnose(tiny_llada(), SMALL, tmp_path / "run")


def test_prompts_of_a_preset_are_sized_to_a_short_context_and_a_named_number_is_kept():
    model = tiny_llada(tokenizer=shipped_tokenizer(), vocab=2048, window=700, mask_token_id=1)
    settings = replace(DEFAULT, tasks=DEFAULT.tasks[:1], probes=("mask-count", "filler"), questions=1)
    planned = plan_run(model, settings)
    assert planned.setup.settings.distractors in (30, 20, 12, 6)
    assert any("distractors in place of 40" in note for note in planned.setup.notes)
    longest = [item.prompt for unit in planned.units for item in unit.items(unit.points[:1], set())]
    assert max(len(prompt.ids) for prompt in longest) <= 700
    with pytest.raises(UserError, match="the context length of tiny random LLaDA is 700"):
        plan_run(model, with_examples(settings, None, 39))
