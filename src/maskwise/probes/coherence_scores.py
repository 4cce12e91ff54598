"""Summaries of the coherence probes: the mean of each measure, and the area under accuracy against speed."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from maskwise.probes.intervals import mean_over_tasks
from maskwise.probes.records import Record, condition_text
from maskwise.probes.settings import ITEMS

SPEED = "tokens_per_pass"


def measures(group: Sequence[Record]) -> dict[str, float | None]:
    """NAME, NAME_low and NAME_high of everything the records of one condition measured besides."""
    found: dict[str, float | None] = {}
    for name in dict.fromkeys(name for record in group for name in record["evidence"]):
        told = [(record["task"], record["evidence"][name]) for record in group if name in record["evidence"]]
        average = mean_speed if name == SPEED else mean_over_tasks
        found[name], found[f"{name}_low"], found[f"{name}_high"] = average(told)
    return found


def mean_speed(told: Sequence[tuple[str, float]]) -> tuple[float, float | None, float | None]:
    """Of tokens per pass, averaged as passes: twice as fast on half the puzzles is not twice as fast on average."""
    passes, low, high = mean_over_tasks((task, 1 / speed) for task, speed in told)
    return 1 / passes, None if high is None else 1 / high, None if low is None or low <= 0 else 1 / low


def areas(records: Sequence[Record]) -> dict[str, dict[str, dict[str, float]]]:
    """{puzzle: {rule: {"aup", "ideal"}}}: what the model reached, and what perfect marginals would under the rule."""
    groups: dict[tuple[str, str], dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        condition = record["condition"]
        groups[condition["puzzle"], condition["rule"]][condition_text(condition)].append(record)
    found: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for (puzzle, rule), by_speed in groups.items():
        reached, ideal = [], []
        for group in by_speed.values():
            speed, _, _ = mean_speed([(puzzle, record["evidence"][SPEED]) for record in group])
            reached.append((speed, float(np.mean([record["correct"] for record in group]))))
            ideal.append((group[0]["evidence"]["ideal_speed"], group[0]["evidence"]["ideal"]))
        found[puzzle][rule] = {"aup": aup(reached), "ideal": aup(ideal)}
    return dict(found)


def aup(points: Sequence[tuple[float, float]], fastest: float = ITEMS) -> float:
    """Area under accuracy against tokens per forward pass t, from t = 1 to `fastest`, divided by its width.

    points are (t, accuracy). Between them the line is straight; left of the slowest it is level; right of the fastest
    it is 0, for nothing that fast was measured. Of several points at one speed the best counts. 1 is: always right, at
    any speed.
    """
    best: dict[float, float] = {}
    for speed, accuracy in points:
        best[speed] = max(accuracy, best.get(speed, 0.0))
    curve = sorted(best.items())
    area = max(0.0, curve[0][0] - 1) * curve[0][1]
    for (t, a), (u, b) in pairwise(curve):
        area += (u - t) * (a + b) / 2
    return area / (fastest - 1)
