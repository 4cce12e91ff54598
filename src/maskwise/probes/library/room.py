"""room (ours): which tasks leave room for a loss, judged on questions that no score uses.

Each task is asked with 2 masks on a seed and contexts of its own; the rule is that of scoring/task_room.py. The
summary's "room" says which tasks have room, for each number of relevant examples, and the scores over those alone.
The scores over all tasks keep their names. Format B. Condition: {"masks": 2} (0 for autoregressive models).
"""

from collections.abc import Iterator, Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from maskwise.probes.blocks import visible_counts
from maskwise.probes.examples import FEW_SHOT, PAPER_RELEVANT, WithNumber, in_words, labelled
from maskwise.probes.few_shot import afresh_units
from maskwise.probes.probe import Probe, Settings, Setup, Unit, Variant
from maskwise.probes.section import Entry, Point, Section, Shown, Summary, TextTable
from maskwise.scoring.intervals import jeffreys_bounds
from maskwise.scoring.numbers import between, percent
from maskwise.scoring.scores import Score
from maskwise.scoring.task_room import LEAST_ROOM, MOST_ROOM, Fitness, Room, verdict_of
from maskwise.support.randomness import seed_of
from maskwise.support.typed import Count, Typed

NAME = "room"
BASELINE_MASKS = 2
BOUNDS = f"{100 * LEAST_ROOM:.0f} to {100 * MOST_ROOM:.0f} % right"
SERIES: dict[Fitness, str] = {
    "too hard": f"too hard (below {100 * LEAST_ROOM:.0f} %)",
    "room": "room for a loss",
    "too easy": f"too easy (above {100 * MOST_ROOM:.0f} %)",
}
RULE = f"a task has room for a loss where separate questions are {BOUNDS}"


class RoomReport(Typed, frozen=True, kw_only=True):
    """The summary's "room", for one number of relevant examples."""

    relevant: Annotated[int, Meta(description="relevant examples in the context")]
    room: Annotated[Room, Meta(description="which tasks leave room for a loss")]
    scores: Annotated[dict[str, Score], Meta(description="over the tasks with room; those in nats are over all tasks")]


def selection_seed(settings: Settings) -> int:
    """The seed of the questions by which tasks are selected: another than that of the scored ones."""
    return seed_of(NAME, settings.seed)


def units(setup: Setup) -> Iterator[Unit]:
    settings = setup.settings
    masks = 0 if setup.model.causal else visible_counts(setup, NAME, (BASELINE_MASKS,))[0]
    tasks = [task for task in setup.tasks if task.name in settings.tasks]
    count = min(settings.points, setup.own["questions"])
    for number in settings.relevant:
        variant = Variant(NAME, labelled({"masks": masks}, number), open=True, masks=masks)
        drawn = (number, settings.distractors, count, selection_seed(settings))
        yield from afresh_units(setup, [variant], tasks, setup.words, drawn)


def _rows(reports: Sequence[RoomReport]) -> list[tuple[str, ...]]:
    return [
        (f"{name}, {in_words(found.relevant)}", percent(score.value), between(score.low, score.high))
        for found in reports
        for name, score in found.scores.items()
        if score.tasks  # those in nats are over all tasks
    ]


def in_sentence(room: Room) -> str:
    """`3 of 16 tasks leave room for a loss (45 to 90 % right); 1 is too hard, 12 are too easy`"""
    counts = {"hard": len(room.too_hard), "easy": len(room.too_easy)}
    left_out = [f"{n} {'is' if n == 1 else 'are'} too {why}" for why, n in counts.items() if n]
    asked, kept = len(room.accuracy), len(room.tasks)
    have = f"{kept or 'none'} of {asked} task{'s' * (asked != 1)} {'leaves' if kept < 2 else 'leave'} room for a loss"
    return f"{have} ({BOUNDS})" + (f"; {', '.join(left_out)}" if left_out else "")


def _reports(shown: Shown) -> list[RoomReport]:
    """Those of the numbers of relevant examples that this section shows."""
    found: list[RoomReport] = shown.summary.extras.get(NAME, [])
    if not isinstance(shown, WithNumber):
        return found
    number = PAPER_RELEVANT if shown.number is None else shown.number
    return [one for one in found if one.relevant == number]


def _in_words(shown: Shown) -> list[str]:
    reports = _reports(shown)
    lines = [f"With {in_words(found.relevant)}, {in_sentence(found.room)}" for found in reports]
    lines += [f"Room with {in_words(f.relevant)}: {', '.join(f.room.tasks)}" for f in reports if f.room.tasks]
    return [*lines, *(f"{name}: {value} ({ends})" for name, value, ends in _rows(reports))] or ["not run"]


def _points(shown: Shown) -> list[Point]:
    """Each task, from the hardest to the easiest, named in the condition of its entry."""
    return [
        Point(SERIES[verdict_of(right)], place, _of_task(entry, task, right, found.room.questions // len(ranked)))
        for found, entry in zip(_reports(shown), shown.entries(NAME), strict=False)
        for ranked in [sorted(found.room.accuracy.items(), key=lambda item: item[1])]
        for place, (task, right) in enumerate(ranked, 1)
    ]


def _of_task(entry: Entry, task: str, right: float, questions: int) -> Entry:
    low, high = (float(end) for end in jeffreys_bounds(np.array(right), questions))
    shown = entry.changed(accuracy=right, low=low, high=high, n=questions, rules_low=None, rules_high=None)
    return shown.changed(condition={"task": task, **entry.condition})


def _tables(summary: Summary) -> list[TextTable]:
    reports = summary.extras.get(NAME, [])
    lines = "; ".join(in_sentence(found.room) for found in reports)
    return [TextTable(lines, ("score, tasks with room", "value", "95 % interval"), _rows(reports))] if lines else []


PROBE = Probe(
    name=NAME,
    group="context",
    about="which tasks are neither too easy nor too hard to show a loss",
    condition=FEW_SHOT | {"masks": Count},
    presets=("default", "full"),
    units=units,
    one_pass=True,
    parameters={"questions": 100},
    quick={"questions": 20},
    tables=_tables,
    sections=(
        Section(
            title="Which tasks leave room for a loss?",
            question="The questions of each task with 2 masks, on a seed of their own: a task can show a loss of "
            "accuracy only where the model is right more often than by guessing, and not always.",
            paper="Not in the paper, whose scores are means over all 16 tasks.",
            how_to_read=f"The rule was fixed beforehand: {RULE}. No answer that is scored selects a task.",
            x_label="Tasks, from the hardest to the easiest",
            at="task {}",
            points=_points,
            says=_in_words,
            scatter=True,
            caption="A mark for each task; bar: 95 % interval for new questions.",
        ),
    ),
)
