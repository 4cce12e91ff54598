"""shots-masks: do tasks that need more examples suffer more from masks?

Paper probe 11: relevant examples alone, few and many of them, with few and many masks, format B. Condition:
{"shots": 25, "extra masks": 200}. The summary's "shots_against_masks" is a correlation over tasks.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from maskwise.probes.few_shot import episode_units
from maskwise.probes.probe import NO_MASK_TOKEN, Probe, Setup, Unit, Variant, first_of_same
from maskwise.probes.section import Measure, Point, Section, Shown
from maskwise.records.record import Record
from maskwise.scoring.intervals import correlation

NAME, CORRELATION = "shots-masks", "shots_against_masks"


def units(setup: Setup) -> Iterator[Unit]:
    for shots in setup.own["shots"]:
        variants = [
            Variant(NAME, {"shots": shots, "extra masks": extra}, open=True, masks=1 + extra)
            for extra in setup.own["masks"]
        ]
        yield from episode_units(setup, variants, shots, 0)


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


def _points(shown: Shown) -> list[Point]:
    """A point for each task. Its mask count is the larger one, at which the change was measured."""
    entries = shown.entries(NAME)
    most = max((entry["masks"] for entry in entries), default=0)
    answers = sum(entry["n"] for entry in entries)
    tasks = shown.summary.get(CORRELATION, {}).get("tasks", {})
    return [
        Point("", found["gain"], {"condition": {"task": task, "gain": round(found["gain"], 4)}, "masks": most,
                                  "n": answers // max(1, len(tasks)), "accuracy": None, "low": None, "high": None,
                                  "evidence": found["change"]})
        for task, found in tasks.items()
    ]  # fmt: skip


def _in_words(shown: Shown) -> list[str]:
    found = shown.summary.get(CORRELATION, {})

    def told(score: dict[str, float | None]) -> str:
        value, low, high = score["value"], score["low"], score["high"]
        if value is None or low is None or high is None:
            return "not defined (too few tasks, or no change)"
        return f"{value:.2f} (95 % interval {low:.2f} to {high:.2f})".replace("-", "−")

    if not found:
        return ["not run"]
    return [f"r = {told(found['together'])}; with the two from different test points, r = {told(found['apart'])}"]


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="gain from more examples against loss to more masks",
    presets=("full", "paper"),
    units=units,
    parameters={"shots": (5, 25), "masks": (1, 200)},
    quick={"masks": (1, 100)},
    not_causal=NO_MASK_TOKEN,
    baseline=first_of_same,
    extras={CORRELATION: shots_against_masks},
    sections=(
        Section(
            title="Do tasks that need more examples suffer more from masks?",
            question="For each task: what more examples gain, against what more masks take away.",
            paper="Hardly: Pearson's r is −.15 and −.16 for LLaDA, −.21 and −.02 for Dream.",
            how_to_read="A point is a task. Falling to the right would mean that tasks learnt from context suffer "
            "most. Both axes share one accuracy, whose noise alone makes r negative; the second r is free of that.",
            x_label="Gain from few to many shots",
            at="{}",
            points=_points,
            measures=(Measure("evidence", "Change from few to many masks", "", ""),),
            caption="A point for each task.",
            scatter=True,
            says=_in_words,
        ),
    ),
)
