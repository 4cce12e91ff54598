"""A task written outside the package (`outside_task.py`) is asked and scored by passing a longer tuple."""

import re
from dataclasses import replace

import pytest
from outside_task import FRUIT, FRUIT_TASKS

import maskwise as mw
from helpers.known import SMALL, known_model
from maskwise.runs.diagnose import diagnose
from maskwise.tasks.rules import TASKS, WordRule, tasks_of
from maskwise.tasks.words import load_words


def find_fruit(questions, asked, text):
    """The letter of the option that is a fruit; A where none is."""
    fruit = {word.casefold() for word in load_words()["fruit"]}
    options = re.findall(r"\(([ABC])\) ([^,]+)", questions[asked][0])
    return next((letter for letter, word in options if word.strip().casefold() in fruit), "A")


def test_it_is_asked_and_scored(tmp_path):
    names = tuple(task.name for task in FRUIT_TASKS)
    assert names == ("fruit-smallest", "fruit-largest") and not set(names) & {task.name for task in TASKS}
    settings = replace(SMALL, probes=("mask-count", "location"), tasks=(TASKS[0].name, *names))
    folder = diagnose(known_model(find_fruit), settings, tmp_path / "run", tasks=FRUIT_TASKS)
    for table in mw.read_run(folder).tables.values():
        assert set(table.task) == set(names)  # the other task cannot be named here
        assert table.correct.all() and len(table) > 2 * SMALL.questions


def test_mw_diagnose_asks_the_tasks_it_is_given(tmp_path):
    given = {"preset": "quick", "questions": 1, "out": tmp_path / "run"}
    run = mw.diagnose(known_model(find_fruit), "mask-count", tasks=["animal-smallest", *FRUIT_TASKS], **given)
    table = run.table("mask-count")
    assert set(table.task) == {"animal-smallest", "fruit-smallest", "fruit-largest"}
    assert table[table.task.str.startswith("fruit")].correct.all()
    assert "Answer:[" in run.prompt(table[table.task == "fruit-largest"].iloc[0])


@pytest.mark.parametrize(
    ("tasks", "problem"),
    [
        (["fruit-smalest"], "unknown task 'fruit-smalest'"),
        ([], "no task named"),
        (tasks_of(FRUIT, WordRule("animal", ("fruit",), ("sport",))), "two tasks animal-smallest"),
    ],
)
def test_tasks_that_cannot_be_asked_are_refused_before_a_model_is_opened(tasks, problem):
    with pytest.raises(mw.UserError, match=problem):
        mw.diagnose("no-such-model", "mask-count", preset="quick", tasks=tasks)
