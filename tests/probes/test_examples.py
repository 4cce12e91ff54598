"""Numbers of relevant examples: what is drawn, what conditions say, and that nothing mixes two numbers."""

import json
from collections import defaultdict
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from helpers.known import (
    SMALL,
    diagnosed,
    is_word_example,
    known_model,
    measured,
    nearest_rule,
    truth,
    with_parameters,
)
from maskwise.cli import app
from maskwise.runs.diagnose import diagnose
from maskwise.runs.run import read_run
from maskwise.runs.settings import DEFAULT, FULL, PAPER, QUICK, check, with_examples
from maskwise.support.errors import UserError
from maskwise.tasks.episodes import draw, draw_afresh, mixed
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words, split_words

BOTH = with_parameters(
    replace(SMALL, probes=("location", "mask-count"), relevant=(1, 10)),
    location={"places": ("right", "left"), "mask_counts": (2, 20)},
)


def majority_of_ten(questions, asked, text):
    """Right with ten relevant examples wherever they stand; with fewer, only next to them."""
    relevant = sum(is_word_example(options) for place, (options, _) in enumerate(questions) if place != asked)
    return truth()[questions[asked][0]] if relevant >= 10 else nearest_rule(questions, asked, text)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return diagnosed(known_model(majority_of_ten), BOTH, tmp_path_factory.mktemp("runs") / "both")


def test_every_condition_names_its_number(run):
    """In the lines of the file too: readers of 0.2 took a missing number for 10."""
    lines = map(json.loads, (run.folder / "records.jsonl").read_text().splitlines())
    assert {line["condition"]["relevant"] for line in lines} == {1, 10}
    location, masks = run.table("location"), run.table("mask-count")
    assert set(map(tuple, masks[["masks", "relevant"]].to_numpy())) == {(k, n) for k in (1, 2, 5, 20) for n in (1, 10)}
    last = location[location.question == "right"]
    asked = {(at, k, n) for at in (0, 2, 4) for k in (0, 2, 20) for n in (1, 10)}
    assert set(map(tuple, last[["location", "masks", "relevant"]].to_numpy())) == asked
    assert set(location.relevant[location.question == "left"]) == {10}  # the main number alone


def test_estimates_are_of_one_number_the_main_one_first(run):
    found = measured(run, "location")
    assert found["locality"].value == 0  # ten examples: right wherever they stand
    assert found["locality, 1 example"].value == pytest.approx(1)  # one: far is guessing
    masks = list(measured(run, "mask-count"))
    half = len(masks) // 2
    assert masks[half:] == [f"{name}, 1 example" for name in masks[:half]]


def test_one_number_alone_gives_the_plain_names(tmp_path):
    run = diagnosed(known_model(nearest_rule), replace(BOTH, probes=("location",), relevant=(1,)), tmp_path)
    found = measured(run, "location")
    assert found["locality"].value == pytest.approx(1) and not any("example" in name[-9:] for name in found)
    assert set(run.table("location").relevant) == {1}


def test_examples_drawn_afresh_differ_from_point_to_point_and_only_there():
    words = load_words()
    shown, _ = split_words(words)
    episode = draw(TASKS[4], words, relevant=1, distractors=3, points=5, seed=7)
    contexts = [draw_afresh(episode, shown, point) for point in range(5)]
    assert len({context.relevant for context in contexts}) == len({context.distractors for context in contexts}) == 5
    assert contexts[2] == draw_afresh(episode, shown, 2) and contexts[2].tests == episode.tests
    assert {(len(context.relevant), len(context.distractors)) for context in contexts} == {(1, 3)}
    places = {[question.relevant for question in mixed(draw_afresh(episode, shown, p))].index(True) for p in range(40)}
    assert places == {0, 1, 2, 3}


@pytest.mark.parametrize("one_context", [True, False])
def test_ten_examples_are_one_context_if_asked_and_one_example_is_not(one_context, tmp_path):
    seen = defaultdict(set)

    def reply(questions, asked, text):
        others = [options for place, (options, _) in enumerate(questions) if place != asked]
        seen[sum(map(is_word_example, others))].add(tuple(others))
        return "A"

    settings = replace(BOTH, probes=("mask-count",), tasks=BOTH.tasks[:1], one_context=one_context)
    diagnose(known_model(reply), settings, tmp_path)
    assert len(seen[10]) == (1 if one_context else settings.questions) and len(seen[1]) == settings.questions


def test_presets_and_other_numbers_of_distractors():
    assert (DEFAULT.relevant, FULL.relevant, QUICK.relevant) == ((10,), (1, 10), (1,))
    assert (DEFAULT.distractors, FULL.distractors, QUICK.distractors) == (40, 40, 15)
    assert [one.one_context for one in (QUICK, DEFAULT, FULL, PAPER)] == [False, False, True, True]
    fewer = with_examples(DEFAULT, (1, 5, 1), 20)
    assert (fewer.relevant, fewer.distractors, fewer.main_relevant) == ((1, 5), 20, 5)
    assert fewer.parameters["location"]["locations"] == (0, 5, 10, 15, 20)
    assert fewer.parameters["context-length"]["distractors"] == (0, 5, 10, 15)
    assert with_examples(DEFAULT, None, None) == DEFAULT
    for relevant, distractors in ((0,), 40), ((), 40), ((1,), 0):
        with pytest.raises(UserError, match=r"relevant takes|distractors must"):
            check(replace(DEFAULT, relevant=relevant, distractors=distractors))


def test_the_command_takes_a_list(tmp_path):
    arguments = ["diagnose", "tiny-llada", "--quick", "--questions", "1", "--probes", "location", "--device", "cpu",
                 "--relevant", "1,10", "--distractors", "3", "--json", "--out", str(tmp_path / "run")]  # fmt: skip
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    run = read_run(tmp_path / "run")
    assert run.manifest.settings.relevant == [1, 10]
    found = run.table("location")[["location", "relevant"]].to_numpy()
    assert {(0, 10), (3, 10), (0, 1), (3, 1)} == set(map(tuple, found))
    assert {"locality", "locality, 1 example"} <= {one["name"] for one in json.loads(result.stdout)["estimates"]}
    bad = CliRunner().invoke(app, ["diagnose", "tiny-llada", "--relevant", "one"])
    assert bad.exit_code == 2 and "--relevant" in bad.stderr
