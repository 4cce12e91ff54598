"""Numbers of relevant examples: what is drawn, what conditions say, and that nothing mixes two numbers."""

import json
from collections import defaultdict
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from helpers.known import (
    SMALL,
    is_word_example,
    known_model,
    nearest_rule,
    truth,
    with_parameters,
)
from maskwise.cli import app
from maskwise.records.folder import read_run
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import DEFAULT, FULL, QUICK, check, with_examples
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
def folder(tmp_path_factory):
    return diagnose(known_model(majority_of_ten), BOTH, tmp_path_factory.mktemp("runs") / "both")


def test_the_papers_number_keeps_its_conditions_and_others_are_named(folder):
    found = defaultdict(list)
    for record in read_run(folder).records:
        if record.condition not in found[record.probe]:
            found[record.probe].append(record.condition)
    places = [one for one in found["location"] if one["question"] == "right" and one["masks"] == 0]
    plain = [{"question": "right", "location": at, "masks": 0} for at in (0, 2, 4)]
    assert sorted(places, key=str) == sorted([*plain, *(one | {"relevant": 1} for one in plain)], key=str)
    assert {"masks": 20} in found["mask-count"] and {"masks": 20, "relevant": 1} in found["mask-count"]
    assert {"question": "right", "location": 4, "masks": 2, "relevant": 1} in found["location"]
    assert not any("relevant" in one for one in found["location"] if one["question"] == "left")  # the main number alone


def test_scores_and_baselines_are_those_of_one_number(folder):
    summary = summarise(read_run(folder))
    assert summary["scores"]["locality"]["value"] == 0  # ten examples: right wherever they stand
    assert summary["scores"]["locality_1"]["value"] == pytest.approx(1)  # one: far is guessing
    assert {"mask_tax", "mask_tax_1", "degradation", "degradation_1"} <= summary["scores"].keys()
    entries = summary["probes"]["mask-count"]
    paired = [(entry["condition"], entry["paired"]["baseline"]) for entry in entries if "paired" in entry]
    assert all(one.get("relevant") == other.get("relevant") for one, other in paired)


def test_one_number_alone_gives_the_plain_scores(tmp_path):
    run = read_run(diagnose(known_model(nearest_rule), replace(BOTH, probes=("location",), relevant=(1,)), tmp_path))
    scores = summarise(run)["scores"]
    assert scores["locality"]["value"] == pytest.approx(1) and "locality_1" not in scores
    assert {record["condition"]["relevant"] for record in run.records} == {1}


def test_examples_drawn_afresh_differ_from_point_to_point_and_only_there():
    words = load_words()
    shown, _ = split_words(words)
    episode = draw(TASKS[4], words, relevant=1, distractors=3, questions=5, seed=7)
    contexts = [draw_afresh(episode, shown, point) for point in range(5)]
    assert len({context.relevant for context in contexts}) == len({context.distractors for context in contexts}) == 5
    assert contexts[2] == draw_afresh(episode, shown, 2) and contexts[2].tests == episode.tests
    assert {(len(context.relevant), len(context.distractors)) for context in contexts} == {(1, 3)}
    places = {[question.relevant for question in mixed(draw_afresh(episode, shown, p))].index(True) for p in range(40)}
    assert places == {0, 1, 2, 3}


def test_ten_examples_are_one_context_and_one_example_is_not(tmp_path):
    seen = defaultdict(set)

    def reply(questions, asked, text):
        others = [options for place, (options, _) in enumerate(questions) if place != asked]
        seen[sum(map(is_word_example, others))].add(tuple(others))
        return "A"

    settings = replace(BOTH, probes=("mask-count",), tasks=BOTH.tasks[:1])
    diagnose(known_model(reply), settings, tmp_path)
    assert len(seen[10]) == 1 and len(seen[1]) == settings.questions


def test_presets_and_other_numbers_of_distractors():
    assert DEFAULT.relevant == FULL.relevant == (1, 10) and DEFAULT.distractors == 40
    assert (QUICK.relevant, QUICK.distractors) == ((1,), 15)
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
    summary = json.loads(result.stdout)
    assert summary["settings"]["relevant"] == [1, 10] and {"locality", "locality_1"} <= summary["scores"].keys()
    found = [record.condition for record in read_run(tmp_path / "run").records]
    assert {(one["location"], one.get("relevant")) for one in found} == {(0, None), (3, None), (0, 1), (3, 1)}
    bad = CliRunner().invoke(app, ["diagnose", "tiny-llada", "--relevant", "one"])
    assert bad.exit_code == 2 and "--relevant takes numbers" in bad.stderr
