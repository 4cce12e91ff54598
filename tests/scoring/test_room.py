"""Tasks are selected by their room for a loss on questions that no score uses, so the selection biases no score."""

import numpy as np
import pytest

from helpers.records import record
from maskwise.scoring.room import resting_on, room_of, verdict_of, with_room
from maskwise.scoring.scores import score


def answered(task, right, asked=20, masks=2):
    return [record(task=task, point=n, masks=masks, correct=n < right) for n in range(asked)]


@pytest.mark.parametrize(
    ("accuracy", "verdict"), [(0.449, "too hard"), (0.45, "room"), (0.9, "room"), (0.901, "too easy")]
)
def test_room_is_45_to_90_per_cent(accuracy, verdict):
    assert verdict_of(accuracy) == verdict


def test_only_answers_with_the_fewest_masks_decide():
    selection = [*answered("hard", 8), *answered("fit", 12), *answered("easy", 20), *answered("hard", 12, masks=200)]
    room = room_of(selection)
    assert (room.tasks, room.too_hard, room.too_easy) == (["fit"], ["hard"], ["easy"])
    assert room.accuracy == {"easy": 1.0, "fit": 0.6, "hard": 0.4} and room.questions == 60
    assert {one.task for one in with_room(selection, room)} == {"fit"}


def test_a_score_says_which_tasks_it_rests_on_and_which_were_left_out():
    found = resting_on(score(0.2, 0.1, 0.3), room_of([*answered("a", 12), *answered("b", 3)]))
    assert (found.value, found.tasks, found.left_out) == (0.2, ["a"], {"b": "too hard"})
    none = resting_on(score(0.2, 0.1, 0.3), room_of([*answered("a", 3), *answered("b", 20)]))
    assert none.value is None and none.left_out == {"a": "too hard", "b": "too easy"}
    assert none.why == "no task leaves room for a loss (1 below 45 % right, 1 above 90 % right)"


def mean_loss(selected_by: str, runs: int = 4000, questions: int = 12) -> tuple[float, float]:
    """(mean, standard error) over simulated runs of accuracy with 2 masks minus with 200, over the selected tasks.

    In truth masks change nothing: each of twelve tasks has one accuracy, and all answers are drawn with it.
    """
    draws = np.random.default_rng(0)
    truth = np.linspace(0.25, 0.98, 12)
    separate, few, many = (draws.binomial(questions, truth, size=(runs, 12)) / questions for _ in range(3))
    chosen = np.vectorize(lambda share: verdict_of(share) == "room")({"separate": separate, "scored": few}[selected_by])
    kept = chosen.any(1)
    loss = ((few - many) * chosen).sum(1)[kept] / chosen.sum(1)[kept]
    return float(loss.mean()), float(loss.std() / np.sqrt(len(loss)))


def test_where_masks_change_nothing_selection_on_separate_questions_shows_no_loss():
    mean, error = mean_loss("separate")
    assert abs(mean) < 3 * error


def test_selection_by_the_answers_that_are_scored_would_show_one():
    mean, error = mean_loss("scored")
    assert abs(mean) > 6 * error
