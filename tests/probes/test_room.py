"""Which tasks leave room for a loss is judged on questions of its own, and scores say which tasks they rest on."""

from dataclasses import replace
from zlib import crc32

import pytest

import maskwise as mw
from helpers.known import SMALL, known_model, uniform
from helpers.page_reader import read
from maskwise.probes import PROBES
from maskwise.probes.probe import Asker, Setup
from maskwise.probes.text import load_text
from maskwise.report.pages.page import write_page
from maskwise.report.readings import read_all
from maskwise.report.sections import sections_for
from maskwise.report.words.printed_summary import print_summary
from maskwise.runs.asked import asked_ids
from maskwise.runs.diagnose import diagnose, plan
from maskwise.support.errors import UserError
from maskwise.tasks.episodes import LETTERS
from maskwise.tasks.prompts import filler_id
from maskwise.tasks.words import load_words

SETTINGS = replace(SMALL, probes=("mask-count", "room"), points=30)
TARGETS = {word.casefold() for kind in ("country", "verb") for word in load_words()[kind]}


def sure_of_countries(questions, asked, text):
    """Always right about countries, about verbs in some two of three questions; masks change nothing."""
    words = [option.split(") ")[1] for option in questions[asked][0].split(", ")]
    place = next(place for place, word in enumerate(words) if word.casefold() in TARGETS)
    wrong = words[place] not in load_words()["country"] and crc32(" ".join(words).encode()) % 3 == 0
    return LETTERS[(place + wrong) % 3]


@pytest.mark.slow
def test_scores_over_tasks_with_room_are_kept_with_those_over_all(tmp_path, capsys):
    folder = diagnose(known_model(sure_of_countries), SETTINGS, tmp_path / "run")
    readings = read_all([folder])
    (found,) = readings[0].summary.extras["room"]
    assert (found.relevant, found.room.tasks, found.room.too_easy) == (2, ["verb-largest"], ["country-smallest"])
    tax, nats = found.scores["mask_tax"], found.scores["mask_nats"]
    assert (tax.tasks, tax.left_out, tax.n) == (["verb-largest"], {"country-smallest": "too easy"}, 30)
    assert nats.n == readings[0].summary.scores["mask_nats"].n == 60  # likelihoods are over all tasks
    assert readings[0].summary.scores["mask_tax"].n == 60
    print_summary(readings[0])
    assert "1 of 2 tasks leaves room for a loss" in " ".join(capsys.readouterr().out.split())
    page = read(write_page(readings, tmp_path / "page")).words.replace("\u00a0", " ")
    assert "1 of 2 tasks leaves room for a loss (45 to 90 % right); 1 is too easy" in page


def test_each_number_of_examples_has_a_section_with_a_mark_for_each_task(tmp_path):
    settings = replace(SETTINGS, probes=("room",), points=3, relevant=(1, 2))
    (reading,) = read_all([diagnose(known_model(sure_of_countries), settings, tmp_path / "run")])
    sections = [section for _, section in sections_for([reading])]
    reports = {found.relevant: found.room for found in reading.summary.extras["room"]}
    for section, number in zip(sections, (2, 1), strict=True):
        assert section.says(reading)[0].startswith(f"With {number} example")
        marks = {point.entry.condition["task"]: point for point in section.points(reading)}
        assert {task: mark.entry.accuracy for task, mark in marks.items()} == reports[number].accuracy
        assert sorted(mark.x for mark in marks.values()) == [1, 2]
        assert marks["country-smallest"].series == "too easy (above 90 %)"
        assert all(0 <= mark.entry.low <= mark.entry.accuracy <= mark.entry.high <= 1 for mark in marks.values())


def test_no_question_that_selects_a_task_is_scored():
    """Context and question: no prompt is asked for both."""
    model = known_model(uniform)
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, SETTINGS.filler))
    setup = Setup(model, asker, SETTINGS, load_words(), load_text(), {}, [])
    prompts: dict[bool, set[tuple[int, ...]]] = {True: set(), False: set()}
    for unit in plan(setup, [probe for probe in PROBES if probe.name in SETTINGS.probes]):
        for item in unit.items(unit.points, set()):
            prompts[item.key[0] == "room"].add(tuple(token for token in item.prompt.ids if token != model.mask_id))
    assert all(prompts.values()) and not prompts[True] & prompts[False]


# --words


def test_the_few_shot_probes_ask_the_words_that_are_named(tmp_path):
    run = mw.diagnose(
        known_model(lambda *_: "A"), "mask-count", preset="quick", points=1, words="unfamiliar-2", out=tmp_path / "run"
    )
    assert run.manifest.settings.tasks[0] == "adverb among fuel or gas-smallest"
    record, tokenizer = run.records[0], run.sources.tokenizer
    by_hash = tokenizer.decode(asked_ids(mw.read_run(tmp_path / "run").manifest, record, tokenizer))
    assert "Options:" in by_hash and by_hash == run.prompt(record)


def test_unknown_words_are_refused_before_a_model_is_opened():
    with pytest.raises(UserError, match="unknown words 'unfamiliar-3'"):
        mw.diagnose("no-such-model", words="unfamiliar-3")
