"""shots-masks: do tasks that need more examples suffer more from masks?

Paper probe 11: relevant examples alone, few and many of them, with few and many masks, format B. The tasks are the 16,
the four shapes of points in space (tasks/points.py), and the labelled data sets that the user gives. Condition:
{"shots": 25, "extra masks": 200}: masks beyond those of the answer itself. The summary's "shots_against_masks" is a
correlation over tasks.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from maskwise.probes.few_shot import episode_units
from maskwise.probes.labelled import Labels, data_examples, given_data, label_prompt, labels_of, tests_that_fit
from maskwise.probes.probe import NO_MASK_TOKEN, Probe, Setup, Unit, Variant, first_of_same, units_for
from maskwise.probes.section import Measure, Point, Section, Shown, drawn_entry
from maskwise.records.groups import values_of
from maskwise.records.record import Condition, Record
from maskwise.scoring.intervals import Estimate, correlation
from maskwise.support.typed import Count
from maskwise.tasks.datasets import READERS, has_labels
from maskwise.tasks.labelled_exercises import Labelled
from maskwise.tasks.point_clouds import LABELS, SHAPES, Cloud, arranged, draw_cloud, exercise
from maskwise.tasks.prompts import Prompt

NAME, CORRELATION = "shots-masks", "shots_against_masks"


def units(setup: Setup) -> Iterator[Unit]:
    yield from rule_units(setup)
    yield from cloud_units(setup)
    yield from data_units(setup)


def rule_units(setup: Setup) -> Iterator[Unit]:
    for shots in setup.own["shots"]:
        conditions = [(extra, {"shots": shots, "extra masks": extra}) for extra in setup.own["masks"]]
        variants = [Variant(NAME, condition, open=True, masks=1 + extra) for extra, condition in conditions]
        yield from episode_units(setup, variants, shots, 0)


def cloud_units(setup: Setup) -> Iterator[Unit]:
    """The four shapes; a shape's questions are shared out among its clouds, whose examples stand as they were drawn."""
    own, seed, count = setup.own, setup.settings.seed, setup.settings.points
    labels, several = labels_of(setup.asker.tokenizer, LABELS), own["clouds"]
    for shape in SHAPES:
        numbers = range(seed * several, (seed + 1) * several)
        clouds = [draw_cloud(shape, max(own["shots"]), -(-count // several), number) for number in numbers]
        each = [[exercise(*one) for one in zip(cloud.tests, cloud.test_labels, strict=True)] for cloud in clouds]
        tests = [test for turn in zip(*each, strict=True) for test in turn]
        yield from label_units(setup, shape, partial(cloud_examples, clouds), tests[:count], labels)


def cloud_examples(clouds: Sequence[Cloud], shots: int, point: int) -> list[Labelled]:
    return arranged(clouds[point % len(clouds)], point // len(clouds), "random", shots)


def data_units(setup: Setup) -> Iterator[Unit]:
    asker, settings, most = setup.asker, setup.settings, max(setup.own["shots"])
    missing = [name for name in READERS if name not in setup.data]
    if missing:
        setup.note(f"{NAME}: without the paper's {', '.join(missing)}: give them with --data NAME=PATH")
    for data, labels in given_data(setup, PROBE):
        by_shots = {shots: data_examples(asker, data, shots, settings.seed) for shots in setup.own["shots"]}
        longest = setup.model.window - labels.masks - max(setup.own["masks"])
        tests = tests_that_fit(asker, data, by_shots[most], settings.points, longest, settings.seed)
        if len(tests) < settings.points:
            setup.note(f"{NAME}: {len(tests)} questions of {data.name} fit the context length after {most} examples")
        yield from label_units(setup, data.name, partial(same_examples, by_shots), tests, labels)


def same_examples(by_shots: Mapping[int, list[Labelled]], shots: int, point: int) -> list[Labelled]:
    return by_shots[shots]


def label_units(
    setup: Setup, task: str, examples: Callable[[int, int], list[Labelled]], tests: Sequence[Labelled], labels: Labels
) -> Iterator[Unit]:
    """`examples` gives those of so many shots that a test point sees."""
    asked: list[Condition] = [
        {"shots": shots, "extra masks": extra} for shots in setup.own["shots"] for extra in setup.own["masks"]
    ]

    def made(point: int, condition: Condition) -> tuple[Prompt, str]:
        """The answer's own masks hide its closing bracket too, which is the first of the extra ones."""
        shown, more = examples(int(condition["shots"]), point), int(condition["extra masks"]) - 1
        return label_prompt(setup.asker, shown, tests[point], labels, more=more)

    yield from units_for(NAME, task, len(tests), asked, made)


def shots_against_masks(records: Sequence[Record]) -> dict[str, Any]:
    """Pearson's r, over tasks, of the gain from more shots and the change from more masks at the most shots.

    Both contain the accuracy at the most shots and fewest masks, whose sampling noise alone makes r negative. "apart"
    takes the gain from every second point and the change from the others, so that no answer is in both.
    """
    shots, masks = values_of(records, "shots"), values_of(records, "extra masks")
    if len(shots) < 2 or len(masks) < 2:
        return {"together": correlation([], []), "apart": correlation([], []), "tasks": {}}
    corners = {"few": (shots[0], masks[0]), "many": (shots[-1], masks[0]), "masked": (shots[-1], masks[-1])}
    right: dict[str, dict[tuple[str, int], list[bool]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        at = (record.condition["shots"], record.condition["extra masks"])
        for name, corner in corners.items():
            if at == corner:
                right[record.task][name, record.point % 2].append(record.correct)
    whole = {
        task: {name: float(np.mean(found[name, 0] + found[name, 1])) for name in corners}
        for task, found in right.items()
        if all(found[name, 0] and found[name, 1] for name in corners)
    }
    tasks = {task: {"gain": a["many"] - a["few"], "change": a["masked"] - a["many"]} for task, a in whole.items()}
    gains_apart = [float(np.mean(right[t]["many", 0]) - np.mean(right[t]["few", 0])) for t in whole]
    changes_apart = [float(np.mean(right[t]["masked", 1]) - np.mean(right[t]["many", 1])) for t in whole]
    together = correlation([one["gain"] for one in tasks.values()], [one["change"] for one in tasks.values()])
    return {"together": together, "apart": correlation(gains_apart, changes_apart), "tasks": tasks}


def _points(shown: Shown) -> list[Point]:
    """A point for each task. Its mask count is the larger one, at which the change was measured."""
    entries = shown.entries(NAME)
    most = max((entry.masks for entry in entries), default=0)
    answers = sum(entry.n for entry in entries)
    tasks = shown.summary.extras.get(CORRELATION, {}).get("tasks", {})
    points = []
    for task, found in tasks.items():
        condition, change = {"task": task, "gain": round(found["gain"], 4)}, {"evidence": found["change"]}
        points.append(Point("", found["gain"], drawn_entry(condition, answers // len(tasks), change, most)))
    return points


def _in_words(shown: Shown) -> list[str]:
    found = shown.summary.extras.get(CORRELATION, {})

    def said(score: Estimate) -> str:
        value, low, high = score.value, score.low, score.high
        if value is None or low is None or high is None:
            return "not defined (too few tasks, or no change)"
        return f"{value:.2f} (95 % interval {low:.2f} to {high:.2f})".replace("-", "−")

    if not found:
        return ["not run"]
    return [f"r = {said(found['together'])}; with the two from different test points, r = {said(found['apart'])}"]


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="few or many relevant examples, with few and with many masks",
    condition={"shots": Count, "extra masks": Count},
    presets=("full", "paper"),
    units=units,
    one_pass=True,
    parameters={"shots": (5, 25), "masks": (1, 200), "clouds": 5},
    quick={"masks": (1, 100), "clouds": 2},
    not_causal=NO_MASK_TOKEN,
    not_blocks="it asks what hundreds of masks cost, and a block diffusion model sees those of its block",
    takes=has_labels,
    baseline=first_of_same,
    chance=None,
    extras={CORRELATION: shots_against_masks},
    sections=(
        Section(
            title="Do tasks that need more examples suffer more from masks?",
            question="For each task: what more examples gain, against what more masks take away.",
            paper="Hardly: Pearson's r is −.15 and −.16 for LLaDA, −.21 and −.02 for Dream.",
            how_to_read="A point is a task. Falling to the right would mean that tasks learnt from context suffer "
            "most. Both axes share one accuracy, whose noise alone makes r negative; the second r is free of that.",
            x_label="Gain from few to many shots",
            points=_points,
            measures=(Measure("evidence", "Change from few to many masks", "", ""),),
            caption="A point for each task.",
            scatter=True,
            says=_in_words,
        ),
    ),
)
