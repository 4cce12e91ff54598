"""`--select-tasks`: separate questions decide on which tasks the scores of the paper's protocol rest."""

from dataclasses import replace
from zlib import crc32

import pytest

import maskwise as mw
from helpers.known import SMALL, diagnosed, known_model, measured, uniform
from maskwise.probes import PROBES
from maskwise.probes.library import mask_count
from maskwise.probes.select_tasks import NAME, tasks_with_room
from maskwise.probes.setup import Asker, Setup
from maskwise.probes.text import load_text
from maskwise.runs.asked import asked_ids
from maskwise.runs.diagnose import plan
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


def test_numbers_in_shares_rest_on_the_tasks_with_room(tmp_path):
    run = diagnosed(known_model(sure_of_countries), SETTINGS, tmp_path / "run")
    found, table = measured(run, "mask-count"), run.table("mask-count")
    assert tasks_with_room(run.table(NAME)) == ["verb-largest"] and len(run.table(NAME)) == 40
    assert found["tasks with room for a loss"].value == 1 and found["tasks with room for a loss"].n == 2
    verbs = table[(table.task == "verb-largest") & (table.masks == 2)].correct.mean()
    before, tax, nats = (found[name] for name in ("accuracy with 2 masks", "mask tax", "nats lost to masks"))
    assert (before.value, before.n, tax.n, nats.n) == (pytest.approx(verbs), 20, 20, 40)
    drawn = mask_count.by_masks(table, {})
    assert set(drawn.n) == {40} and NAME not in run.measured  # curves are of all tasks


def test_without_a_task_with_room_there_is_no_number_in_shares(tmp_path):
    run = diagnosed(known_model(lambda *_: "A"), replace(SETTINGS, questions=6), tmp_path / "run")
    found = measured(run, "mask-count")
    for name in ("change of accuracy with 20 masks instead of 2", "accuracy with 2 masks", "mask tax"):
        assert found[name].value is None and "no task leaves room" in found[name].why
    assert found["nats lost to masks"].value == 0 and found["tasks with room for a loss"].value == 0


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
    (row,) = run.table(NAME).to_dict("records")
    assert (row["masks"], row["relevant"]) == (2, 10) and "Options:" in run.prompt(row)


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
    row, tokenizer = run.table("mask-count").iloc[0], run.sources.tokenizer
    by_hash = tokenizer.decode(asked_ids(mw.read_run(tmp_path / "run").manifest, row, tokenizer))
    assert "Options:" in by_hash and by_hash == run.prompt(row)


def test_unknown_words_are_refused_before_a_model_is_opened():
    with pytest.raises(UserError, match="unknown words 'unfamiliar-3'"):
        mw.diagnose("no-such-model", words="unfamiliar-3")
