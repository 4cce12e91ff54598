"""Summaries of the probes that measure more than right and wrong.

Attribution, attribution to masks and attention: one entry for each thing looked at, with "evidence" (and its "_low",
"_high", over tasks) beside the accuracy of the same prompts. Shots against masks: a correlation over tasks.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from maskwise.probes.intervals import correlation, mean_over_tasks
from maskwise.probes.records import Condition, Record


def expand(entry: dict[str, Any], group: Sequence[Record]) -> list[dict[str, Any]]:
    """A condition's entry, once for each thing its records hold evidence on."""
    found = []
    for place, values in _evidence(group):
        middle, low, high = mean_over_tasks(values)
        condition = {**entry["condition"], **place}
        found.append({**entry, "condition": condition, "evidence": middle, "evidence_low": low, "evidence_high": high})
    return found


def _evidence(group: Sequence[Record]) -> Iterator[tuple[Condition, list[tuple[str, float]]]]:
    """(what is looked at, its value in each record): an example, a kind of token, or a kind of token in a layer."""
    for name, first in group[0]["evidence"].items():
        told = [(record["task"], record["evidence"][name]) for record in group]
        if not isinstance(first, list):
            yield {"tokens": name}, told
            continue
        key = "example" if name == "examples" else "layer"
        for number in range(len(first)):
            place: Condition = {key: number} if key == "example" else {"tokens": name, key: number}
            yield place, [(task, values[number]) for task, values in told]


def shots_against_masks(records: Sequence[Record]) -> dict[str, Any]:
    """Pearson's r, over tasks, of the gain from more shots and the change from more masks at the most shots.

    Both contain the accuracy at the most shots and fewest masks, whose sampling noise alone makes r negative. "apart"
    takes the gain from every second point and the change from the others, so that no answer is in both.
    """
    shots = sorted({record["condition"]["shots"] for record in records})
    masks = sorted({record["condition"]["extra masks"] for record in records})
    if len(shots) < 2 or len(masks) < 2:
        return {"together": correlation([], []), "apart": correlation([], []), "tasks": {}}
    corners = {"few": (shots[0], masks[0]), "many": (shots[-1], masks[0]), "masked": (shots[-1], masks[-1])}
    right: dict[str, dict[tuple[str, int], list[bool]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        at = (record["condition"]["shots"], record["condition"]["extra masks"])
        for name, corner in corners.items():
            if at == corner:
                right[record["task"]][name, record["point"] % 2].append(record["correct"])
    whole = {
        task: {name: float(np.mean(found[name, 0] + found[name, 1])) for name in corners}
        for task, found in right.items()
        if all(found[name, 0] and found[name, 1] for name in corners)
    }
    gains = {task: a["many"] - a["few"] for task, a in whole.items()}
    changes = {task: a["masked"] - a["many"] for task, a in whole.items()}
    gains_apart = [float(np.mean(right[t]["many", 0]) - np.mean(right[t]["few", 0])) for t in whole]
    changes_apart = [float(np.mean(right[t]["masked", 1]) - np.mean(right[t]["many", 1])) for t in whole]
    return {
        "together": correlation(list(gains.values()), list(changes.values())),
        "apart": correlation(gains_apart, changes_apart),
        "tasks": {task: {"gain": gains[task], "change": changes[task]} for task in whole},
    }
