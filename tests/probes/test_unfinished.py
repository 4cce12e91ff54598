"""A run that was stopped lacks whole conditions: its probes say what they can, and nothing is an error."""

from itertools import product

import pandas as pd
import pytest

from maskwise.probes import PROBES
from maskwise.probes.library import filler, points
from maskwise.probes.probe import FIRST

NAMED = {probe.name: probe for probe in PROBES}
TEMPLATES = {"questions": "mask-count", "answer_found": "letter", "examples": "mixed"}
ASKED = {  # conditions in the order in which they are answered
    "block-offset": [{"after": after, "offset": at} for after in ("to the end", "2 masks") for at in (0, 15)],
    "coherence": [{"puzzle": "a", "rule": rule, "speed": "1 a step"} for rule in ("margin", "random")],
    "context-length": [{"distractors": n, "masks": k} for n in (0, 30) for k in ("2 masks", "20% masks")],
    "mitigations": [{"way": way, "masks": k} for way, k in (("one step", 2), ("one step", 9), ("40 steps", 9))],
    "templates": [TEMPLATES | {"template": one, "masks": k} for k in (2, 9) for one in ("plain", "choices")],
}


def answered(conditions, tasks="ab", points=4):
    plain = {"correct": 1.0, "nll": 1.0, "nll_allowed": None, "nll_choice": None, "predicted": "A", "masks_seen": 2}
    asked = product(conditions, tasks, range(points))
    return pd.DataFrame({"task": task, "point": point} | plain | one for one, task, point in asked)


@pytest.mark.parametrize("name", ASKED)
def test_answers_under_some_conditions_can_be_shown(name):
    probe, whole = NAMED[name], answered(ASKED[name])
    for first in range(0, len(whole), 4):
        for end in range(first + 4, len(whole) + 1, 4):  # 4 answers are those of a task under a condition
            some = whole[first:end].astype({"task": "category"})
            found = probe.metrics(some, {FIRST: whole[-4:]})
            assert len({one.name for one in found}) == len(found)
            for figure in probe.figures:
                figure.data(some, {})


def test_full_stops_are_drawn_where_masks_were_asked_with_few_and_many_shots_alone():
    stops = answered([{"filler": ".", "fillers": n, "format": "A"} for n in (0, 200)])
    shots = answered([{"shots": 5, "extra": 1, "masks": None}])
    assert [*filler.by_fillers(stops, {"mask-count": shots}).tokens] == [0, 200]


def test_orders_are_compared_with_the_same_numbers_of_examples():
    """More examples were asked in random order alone, and are all wrong."""
    asked = [*product(points.ORDERS, (10,)), ("random", 30)]
    plain = {"question": "right", "share": 0.0}
    found = points.metrics(answered([plain | {"order": o, "examples": n, "correct": n < 30} for o, n in asked]), {})
    assert [one.value for one in found] == [0, 0]
