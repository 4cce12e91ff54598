"""A task written outside the package (`outside_task.py`) is asked and scored by passing a longer tuple."""

import re
from dataclasses import replace

from outside_task import FRUIT_TASKS

from helpers.known import SMALL, known_model
from maskwise.report.readings import read_all
from maskwise.runs.diagnose import diagnose
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import load_words


def find_fruit(questions, asked, text):
    """The letter of the option that is a fruit."""
    fruit = {word.casefold() for word in load_words()["fruit"]}
    options = re.findall(r"\(([ABC])\) ([^,]+)", questions[asked][0])
    return next(letter for letter, word in options if word.strip().casefold() in fruit)


def test_it_is_asked_and_scored(tmp_path):
    names = tuple(task.name for task in FRUIT_TASKS)
    assert names == ("fruit-smallest", "fruit-largest") and not set(names) & {task.name for task in TASKS}
    settings = replace(SMALL, probes=("mask-count", "calibration"), tasks=(TASKS[0].name, *names))
    folder = diagnose(known_model(find_fruit), settings, tmp_path / "run", tasks=FRUIT_TASKS)
    (reading,) = read_all([folder])
    records = reading.run.records
    assert {record["task"] for record in records} == set(names)  # the other task cannot be named here
    assert all(record["correct"] for record in records) and len(records) > 2 * SMALL.points
