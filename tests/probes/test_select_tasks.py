"""`--select-tasks`: separate questions decide on which tasks the scores of the paper's protocol rest."""

from dataclasses import replace
from zlib import crc32

import pytest
from maskwise.report.pages.page import write_page
from maskwise.report.readings import read_all
from maskwise.report.words.printed_summary import print_summary

import maskwise as mw
from helpers.known import SMALL, known_model, uniform
from helpers.page_reader import read
from maskwise.probes import PROBES
from maskwise.probes.probe import Asker, Setup
from maskwise.probes.select_tasks import NAME, SUMMARY
from maskwise.probes.text import load_text
from maskwise.runs.asked import asked_ids
from maskwise.runs.diagnose import diagnose, plan
from maskwise.runs.settings import chosen_settings
from maskwise.support.errors import UserError
from maskwise.tasks.episodes import LETTERS
from maskwise.tasks.prompts import filler_id
from maskwise.tasks.words import load_words

SETTINGS = replace(SMALL, preset="paper", probes=("mask-count", NAME), questions=20).changed(
    "mask-count", mask_counts=(2, 20)
)
TARGETS = {word.casefold() for kind in ("country", "verb") for word in load_words()[kind]}


def sure_of_countries(questions, asked, text):
    """Always right about countries, about verbs in some two of three questions; masks change nothing."""
    words = [option.split(") ")[1] for option in questions[asked][0].split(", ")]
    place = next(place for place, word in enumerate(words) if word.casefold() in TARGETS)
    wrong = words[place] not in load_words()["country"] and crc32(" ".join(words).encode()) % 3 == 0
    return LETTERS[(place + wrong) % 3]


def test_scores_in_shares_rest_on_the_tasks_with_room(tmp_path, capsys):
    readings = read_all([diagnose(known_model(sure_of_countries), SETTINGS, tmp_path / "run")])
    summary = readings[0].summary
    room, tax, nats = summary.extras[SUMMARY], summary.scores["mask_tax"], summary.scores["mask_nats"]
    assert (room.tasks, room.too_easy, room.questions) == (["verb-largest"], ["country-smallest"], 40)
    assert (tax.tasks, tax.left_out, tax.n) == (["verb-largest"], {"country-smallest": "too easy"}, 20)
    assert nats.n == summary.probes["mask-count"][0].n == 40 and NAME not in summary.probes
    print_summary(readings[0])
    assert "1 of 2 tasks leaves room" in " ".join(capsys.readouterr().out.split())
    assert "1 of 2 tasks leaves room" in read(write_page(readings, tmp_path / "page")).words.replace("\u00a0", " ")


def test_without_a_task_with_room_there_is_no_score(tmp_path):
    settings = replace(SETTINGS, questions=6)
    readings = read_all([diagnose(known_model(lambda *_: "A"), settings, tmp_path / "run")])
    tax = readings[0].summary.scores["mask_tax"]
    assert tax.value is None and len(tax.left_out) == 2 and "2 below 45 % right" in tax.why
    assert "2 below 45 % right" in read(write_page(readings, tmp_path / "page")).words.replace("\u00a0", " ")


def test_no_question_that_selects_a_task_is_scored():
    """Context and question: no prompt is asked for both."""
    model = known_model(uniform)
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, SETTINGS.filler))
    setup = Setup(model, asker, SETTINGS, load_words(), load_text(), {}, [])
    prompts: dict[bool, set[tuple[int, ...]]] = {True: set(), False: set()}
    for unit in plan(setup, [probe for probe in PROBES if probe.name in SETTINGS.probes]):
        for item in unit.items(unit.points, set()):
            prompts[item.key[0] == NAME].add(tuple(token for token in item.prompt.ids if token != model.mask_id))
    assert all(prompts.values()) and not prompts[True] & prompts[False]


def test_it_belongs_to_the_paper_and_is_no_probe():
    assert chosen_settings("paper", "mask-count", select_tasks=True).probes == ("mask-count", NAME)
    with pytest.raises(UserError, match="select_tasks belongs to"):
        chosen_settings("quick", select_tasks=True)
    with pytest.raises(UserError, match="unknown probe"):
        chosen_settings("default", NAME)


def test_its_questions_can_be_made_again(tmp_path):
    small = {"questions": 1, "tasks": ["country-smallest"], "out": tmp_path / "run"}
    run = mw.diagnose(known_model(sure_of_countries), "mask-count", preset="paper", select_tasks=True, **small)
    (record,) = (record for record in run.records if record.probe == NAME)
    assert record.condition == {"masks": 2} and "Options:" in run.prompt(record)


# --words


def test_the_few_shot_probes_ask_the_words_that_are_named(tmp_path):
    run = mw.diagnose(
        known_model(lambda *_: "A"),
        "mask-count",
        preset="quick",
        questions=1,
        words="unfamiliar-2",
        out=tmp_path / "run",
    )
    assert run.manifest.settings.tasks[0] == "adverb among fuel or gas-smallest"
    record, tokenizer = run.records[0], run.sources.tokenizer
    by_hash = tokenizer.decode(asked_ids(mw.read_run(tmp_path / "run").manifest, record, tokenizer))
    assert "Options:" in by_hash and by_hash == run.prompt(record)


def test_unknown_words_are_refused_before_a_model_is_opened():
    with pytest.raises(UserError, match="unknown words 'unfamiliar-3'"):
        mw.diagnose("no-such-model", words="unfamiliar-3")
