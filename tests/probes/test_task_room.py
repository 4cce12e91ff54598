"""Tasks are selected by their room for a loss on questions that no number uses, so the selection biases none."""

import numpy as np
import pandas as pd
import pytest

from maskwise.probes.select_tasks import LEAST_ROOM, MOST_ROOM, NAME, tasks_with_room, with_room


def answered(task, right, asked=20, masks=2):
    return pd.DataFrame({"task": task, "masks_seen": masks, "correct": [float(n < right) for n in range(asked)]})


@pytest.mark.parametrize(("right", "room"), [(8, False), (9, True), (18, True), (19, False)])
def test_room_is_45_to_90_per_cent(right, room):
    assert tasks_with_room(answered("a", right)) == ["a"] * room


def test_only_answers_with_the_fewest_masks_decide():
    asked = [answered("hard", 8), answered("fit", 12), answered("easy", 20), answered("hard", 12, masks=200)]
    assert tasks_with_room(pd.concat(asked)) == ["fit"]


def test_the_main_number_of_relevant_examples_decides_on_the_first_screen():
    room = [answered("a", 12).assign(relevant=10), answered("a", 20).assign(relevant=1)]  # 60 and 100 %: 80 in all
    room += [answered("b", 20).assign(relevant=10), answered("b", 12).assign(relevant=1)]
    asked = pd.concat(room)
    assert {*with_room({NAME: asked, "mask-count": asked})["mask-count"].task} == {"a"}


def mean_loss(selected_by: str, runs: int = 4000, questions: int = 12) -> tuple[float, float]:
    """(mean, standard error) over simulated runs of accuracy with 2 masks minus with 200, over the selected tasks.

    In truth masks change nothing: each of twelve tasks has one accuracy, and all answers are drawn with it.
    """
    draws = np.random.default_rng(0)
    truth = np.linspace(0.25, 0.98, 12)
    separate, few, many = (draws.binomial(questions, truth, size=(runs, 12)) / questions for _ in range(3))
    selecting = {"separate": separate, "scored": few}[selected_by]
    chosen = (selecting >= LEAST_ROOM) & (selecting <= MOST_ROOM)
    kept = chosen.any(1)
    loss = ((few - many) * chosen).sum(1)[kept] / chosen.sum(1)[kept]
    return float(loss.mean()), float(loss.std() / np.sqrt(len(loss)))


def test_where_masks_change_nothing_selection_on_separate_questions_shows_no_loss():
    mean, error = mean_loss("separate")
    assert abs(mean) < 3 * error


def test_selection_by_the_answers_that_are_scored_would_show_one():
    mean, error = mean_loss("scored")
    assert abs(mean) > 6 * error
