"""The sample of a run: the questions of its records, asked again one by one."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.asked_alone import small_model
from helpers.known import SMALL
from helpers.records import record as plain_record
from maskwise.records.folder import read_run
from maskwise.records.record import key_of
from maskwise.records.sample import MOST_PROMPTS, read_sample
from maskwise.runs.diagnose import diagnose
from maskwise.runs.run import Run, Sources
from maskwise.runs.run_sample import both_ends, choose

SETTINGS = replace(SMALL, probes=("mask-count", "filler", "nelbo"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return diagnose(small_model(), SETTINGS, tmp_path_factory.mktemp("sampled") / "run")


def test_prompts_and_likelihoods_are_those_of_the_records(folder: Path) -> None:
    run = read_run(folder)
    records = {key_of(record): record for record in run.records}
    prompts = read_sample(folder, run.manifest)
    value = Run(run.folder, run.manifest, run.answers, Sources(small_model().tokenizer))
    assert {prompt["probe"] for prompt in prompts} == {"mask-count", "filler"}  # nelbo has no one answer
    for prompt in prompts[:4]:
        record = records[key_of(prompt)]
        assert prompt["top"][0][0] == record["predicted"] and prompt["correct"] == record["correct"]
        assert prompt["top"][0][1] == pytest.approx(record["confidence"], abs=1e-5)
        assert prompt["probability"] == pytest.approx(math.exp(-record["nll"]), abs=1e-5)
        assert [chance for _, chance in prompt["top"]] == sorted((p for _, p in prompt["top"]), reverse=True)
        row = {"probe": record.probe, "task": record.task, "point": record.point, **record.condition}
        assert "".join(prompt["tokens"]) == value.prompt(row)
        assert prompt["tokens"][prompt["row"] :].count("<|mask|>") == record["masks"]


def test_with_a_probe_of_gradients_two_prompts_are_attributed(folder: Path, tmp_path: Path) -> None:
    """The fewest masks and the most; the norms are of the largest, and the answer's own place is left out."""
    model = small_model()
    settings = replace(SETTINGS, probes=("mask-count", "attribution"), questions=1)
    run = read_run(diagnose(model, settings, tmp_path / "run"))
    prompts = [prompt for prompt in read_sample(run.folder, run.manifest) if "attribution" in prompt]
    counts = [record["masks"] for record in run.records if record["probe"] == "mask-count"]
    assert sorted(prompt["condition"]["masks"] for prompt in prompts) == [min(counts), max(counts)]
    for prompt in prompts:
        weights = prompt["attribution"]
        assert len(weights) == len(prompt["tokens"]) and max(weights) == 1 and weights[prompt["row"]] == 0
        assert sum(weight > 0 for weight in weights) > len(weights) / 2
    assert not any("attribution" in prompt for prompt in read_sample(folder, read_run(folder).manifest))


def test_a_run_that_is_taken_up_again_keeps_its_sample(folder: Path) -> None:
    """Deleted it is made again, to the byte; a complete run asks nothing for it that it has."""
    file = folder / "sample.json"
    first, made = file.read_bytes(), file.stat().st_mtime_ns
    diagnose(small_model(), SETTINGS, folder)
    assert file.stat().st_mtime_ns == made
    file.unlink()
    diagnose(small_model(), SETTINGS, folder)
    assert file.read_bytes() == first


def test_right_and_wrong_ones_of_the_outermost_conditions_come_first() -> None:
    records = [
        plain_record(probe=probe, point=point, condition={"masks": masks, "relevant": 1}, correct=point == 1)
        for probe in ("mask-count", "order")
        for masks in (2, 5, 20, 200)
        for point in range(2)
    ]
    found = choose(records, ["mask-count"])
    asked = [(one["condition"]["masks"], one["correct"]) for one in found]
    assert asked == [(2, True), (200, True), (2, False), (200, False), (5, False), (20, False)]  # first the lead's ends
    answers = {0: (True, True), 1: (True, False), 2: (False, True)}  # of each point, with 2 and with 200 masks
    ends = both_ends(
        [
            plain_record(probe="mask-count", point=point, condition={"masks": masks, "relevant": 1}, correct=own[at])
            for point, own in answers.items()
            for at, masks in enumerate((2, 200))
        ]
    )
    assert [one["point"] for one in ends] == [1, 1, 0, 0]  # one becomes wrong, one stays right
    many = [record | {"condition": {"masks": masks, "relevant": 1}} for masks in range(100) for record in records]
    found = choose(many, ["mask-count", "order"])
    assert len(found) == MOST_PROMPTS and sum(one["correct"] for one in found) >= MOST_PROMPTS // 3
    assert {one["probe"] for one in found[2:5]} == {"mask-count", "order"}
