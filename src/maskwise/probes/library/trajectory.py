"""trajectory (ours): what the last steps destroy.

Checkable questions (tasks/checkable.py) are decoded greedily under several strategies, one and several tokens per step.
The answer after a step is the parse of the canvas with every mask filled by its likeliest token; an answer that cannot
be parsed is a class of its own. Measured over the steps of each question:

    right then wrong   right after some step, wrong at the end; wrong then right: its mirror. The chance of both is what
                       the same answers give in random order (as many looks at the same distribution of answers): W/T of
                       questions with a right look, R/T of those with a wrong one, with R, W right and wrong of T looks
    first seen         the share of the steps after which the final answer is first given
    settled            the share of the steps after which the answer does not change any more
    voted              accuracy of the answer that the steps elect (temporal self-consistency, `--vote`; arXiv
                       2508.09138)
    changed            committed tokens that a later step masked or replaced, per question; 0 unless a strategy re-masks

Condition: {"rule": "low-confidence", "tokens_per_step": 1}; evidence {"answers", "right", "voted", "changed"}.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import UNSET

from maskwise.probes.checked import AskedSet, asked_sets
from maskwise.probes.probe import BY_BLOCKS, NO_MASK_TOKEN, Asker, Item, Probe, Setup, Unit, slices
from maskwise.probes.section import Entry, Point, Section, Shown, as_share, mark_place
from maskwise.records.record import Condition, Evidence, Key, ProbeFields, Record, still_to_ask
from maskwise.scoring.intervals import (
    bounded_mean,
    by_task,
    difference_interval,
    means_of,
    points_of,
    share_interval,
    variances_of,
)
from maskwise.scoring.numbers import between, percent, points_between
from maskwise.tasks.checkable import CHECKED, EMBEDDED
from maskwise.tasks.prompts import Prompt

NAME = "trajectory"
STRATEGIES = ("low-confidence", "random", "remdm")
PLACES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # shares of the steps at which the accuracy is drawn
KINDS = {"lost": "right then wrong", "lost_chance": "in random order", "gained": "wrong then right",
         "gained_chance": "in random order "}  # fmt: skip
LITTLE = 0.05  # of the questions
DECODING_COST = 4


# What is asked


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.looks import watch_looks

    own = setup.own
    for asked in asked_sets(setup):
        canvas = own["canvas"] if asked.name == EMBEDDED else own["data_canvas"]
        if asked.longest + canvas > setup.model.window:
            setup.note(f"{NAME} was not run on {asked.name}: a canvas of {canvas} masks exceeds the context length")
            continue
        for condition in conditions(own, canvas):
            steps = canvas // int(condition["tokens_per_step"])
            make = partial(looked_items, setup.asker, asked, canvas, condition)
            answer = partial(watch_looks, asked=asked, rule=str(condition["rule"]), steps=steps, canvas=canvas,
                             seed=setup.settings.seed)  # fmt: skip
            for points in slices(len(asked.questions)):
                yield Unit(points, 1, make, answer, DECODING_COST)


def conditions(own: Mapping[str, Any], canvas: int) -> list[Condition]:
    return [
        {"rule": rule, "tokens_per_step": count}
        for rule in own["rules"]
        for count in own["tokens_per_step"]
        if count <= canvas
    ]


def looked_items(
    asker: Asker, asked: AskedSet, canvas: int, condition: Condition, points: Sequence[int], done: Collection[Key]
) -> Iterator[Item]:
    assert asker.mask_id is not None
    for key, point, named in still_to_ask(NAME, asked.name, points, [condition], done):
        one = asked.questions[point]
        ids = (*one.ids, *[asker.mask_id] * canvas)
        yield Item(key, named, Prompt(ids, len(one.ids), one.answer_ids[0], canvas), one.answer.strip())


# What is measured


def looked(evidence: Evidence) -> dict[str, float]:
    """The measures of one question."""
    answers, right = np.array(evidence["answers"]), evidence["right"]
    looks, final = len(answers), answers[-1]
    is_right = (answers == right) & (right >= 0)
    is_wrong = ~is_right & (answers >= 0)
    same = answers == final
    changes = np.flatnonzero(~same)
    return {
        "lost": float(is_wrong[-1] and is_right.any()),
        "lost_chance": float(is_wrong.mean() if is_right.any() else 0.0),
        "gained": float(is_right[-1] and is_wrong.any()),
        "gained_chance": float(is_right.mean() if is_wrong.any() else 0.0),
        "ever": float(is_right.any()),
        "unparsable": float(answers[-1] < 0),
        "first_seen": float((same.argmax() + 1) / looks),
        "settled": float((changes[-1] + 2) / looks if len(changes) else 1 / looks),
        "voted": float(evidence["voted"]),
        "changed": float(evidence["changed"]),
    }


SHARES = ("lost", "gained", "ever", "unparsable", "voted")  # 0 or 1 of each question
MEANS = ("lost_chance", "gained_chance", "first_seen", "settled", "changed")


def measures(entry: Entry, group: Sequence[Record]) -> list[Entry]:
    found: Evidence = {}
    each = [(record.task, looked(record.evidence)) for record in group]
    for name in SHARES:
        found |= _ends(name, _share([(task, one[name]) for task, one in each]))
    for name in MEANS:
        values = by_task((task, one[name]) for task, one in each)
        found |= _ends(name, bounded_mean(values, None if name == "changed" else (0, 1)))
    for name in ("lost", "gained"):
        excess = by_task((task, one[name] - one[f"{name}_chance"]) for task, one in each)
        found |= _ends(f"{name}_excess", bounded_mean(excess, (-1, 1)))
    found |= _ends("vote_gain", _vote_gain(group))
    found["along"] = [{"share": share, **_ends("right", _share(_right_at(group, share)))} for share in PLACES]
    return [entry.changed(confidence=UNSET, entropy=UNSET, **found)]


def _share(values: Sequence[tuple[str, float]]) -> tuple[float, float, float]:
    strata = by_task(values)
    mean, low, high = share_interval(means_of(strata), points_of(strata), variances_of(strata))
    return float(mean), float(low), float(high)


def _right_at(group: Sequence[Record], share: float) -> list[tuple[str, float]]:
    """Whether the answer is right after this share of the steps."""
    found = []
    for record in group:
        answers, right = record.evidence["answers"], record.evidence["right"]
        look = max(0, int(np.ceil(share * len(answers) - 1e-9)) - 1)
        found.append((record.task, float(right >= 0 and answers[look] == right)))
    return found


def _vote_gain(group: Sequence[Record]) -> tuple[float, float, float]:
    """Accuracy of the elected answer less that of the last one, over the same questions."""
    change = [(record.task, record.evidence["voted"] - float(record.correct)) for record in group]
    gained, lost = (by_task((task, float(sign * value > 0)) for task, value in change) for sign in (1, -1))
    found = difference_interval(means_of(gained), means_of(lost), points_of(gained))
    return float(found[0]), float(found[1]), float(found[2])


def _ends(name: str, found: tuple[float, float | None, float | None]) -> dict[str, float | None]:
    return dict(zip((name, f"{name}_low", f"{name}_high"), found, strict=True))


# How it is shown


def _named(entry: Entry) -> str:
    return f"{entry.condition['rule']}, {entry.condition['tokens_per_step']} per step"


def _along(shown: Shown) -> list[Point]:
    return [
        Point(_named(entry), round(100 * one["share"]), entry.changed(**{k: v for k, v in one.items() if k != "share"}))
        for entry in shown.entries(NAME)
        for one in entry.measures["along"]
    ]


def _lost_and_gained(shown: Shown) -> list[Point]:
    entries = shown.entries(NAME)
    return [
        Point(
            _named(entry),
            mark_place(place, turn, len(entries)),
            entry.changed(**{f"share{end}": entry.measures[f"{kind}{end}"] for end in ("", "_low", "_high")}),
        )
        for turn, entry in enumerate(entries)
        for place, kind in enumerate(KINDS)
    ]


def stands(shown: Shown) -> list[str]:
    """When the final answer first stands, and what voting over the steps would change."""
    lines = []
    for entry in shown.entries(NAME):
        found = entry.measures
        lines.append(
            f"{_named(entry)}: {percent(entry.accuracy)} right at the end, {percent(found['ever'])} after some step; "
            f"the final answer is first given after {percent(found['first_seen'])} of the steps and stands after "
            f"{percent(found['settled'])}"
        )
    return [*lines, vote_advice(shown)]


def vote_advice(shown: Shown) -> str:
    found = {_named(entry): entry.measures for entry in shown.entries(NAME)}
    gains = [name for name, one in found.items() if (one["vote_gain_low"] or 0.0) > 0]
    told = "; ".join(
        f"{name} {points_between(one['vote_gain'], one['vote_gain_low'], one['vote_gain_high'])}"
        for name, one in found.items()
    )
    if gains:
        return f"voting over the steps changes the accuracy: {told}; use --vote PATTERN with {' and '.join(gains)}"
    return f"no evidence for voting over the steps (--vote); change of accuracy: {told}"


def destroyed(shown: Shown) -> list[str]:
    lines = []
    for entry in shown.entries(NAME):
        found = entry.measures
        lines.append(
            f"{_named(entry)}: {percent(found['lost'], 1)} right then wrong (random order: "
            f"{percent(found['lost_chance'], 1)}), {percent(found['gained'], 1)} wrong then right (random order: "
            f"{percent(found['gained_chance'], 1)}), {percent(found['unparsable'], 1)} unparsable at the end; "
            f"{found['changed']:.1f} committed tokens changed later"
        )
    return [*lines, _last_steps(shown)]


def _last_steps(shown: Shown) -> str:
    """Whether more is lost than random order would lose, and what to do."""
    worse = [e for e in shown.entries(NAME) if (e.measures["lost_excess_low"] or 0.0) > 0]
    if worse:
        return (
            f"the last steps destroy right answers with {' and '.join(map(_named, worse))}: commit fewer tokens per "
            "step, or vote over the steps (--vote)"
        )
    most = max(shown.entries(NAME), key=lambda entry: entry.measures["lost_excess_high"] or 0.0)
    ends = between(most.measures["lost_excess_low"], most.measures["lost_excess_high"], 1)
    if (most.measures["lost_excess_high"] or 1.0) < LITTLE:
        return (
            f"no strategy loses more right answers than random order would ({_named(most)}: {ends}): decode to the end"
        )
    return (
        f"not shown that the last steps destroy right answers ({_named(most)}, right then wrong less random order: "
        f"{ends}); ask more questions (--points) to exclude it"
    )


class TrajectoryCondition(ProbeFields, frozen=True, kw_only=True):
    rule: str
    tokens_per_step: int


class TrajectoryEvidence(ProbeFields, frozen=True, kw_only=True):
    answers: list[float]
    right: float
    voted: float
    changed: float


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="right answers that later steps overwrite, and voting over the steps (--data prompts=, gsm8k=)",
    condition=TrajectoryCondition,
    evidence=TrajectoryEvidence,
    units=units,
    takes=lambda data_set: data_set in CHECKED,
    parameters={"questions": 24, "canvas": 16, "data_canvas": 128, "rules": STRATEGIES, "tokens_per_step": (1, 4)},
    quick={"questions": 8, "rules": ("low-confidence", "random")},
    not_causal=NO_MASK_TOKEN,
    not_blocks=BY_BLOCKS,
    measures=measures,
    chance=None,
    columns={
        "accuracy": "accuracy",
        "ever": "ever right",
        "lost": "right then wrong",
        "gained": "wrong then right",
        "settled": "settled",
        "voted": "voted",
    },
    sections=(
        Section(
            title="When does the answer stand?",
            question="After each step the masks that are left are filled with their likeliest tokens, and the answer "
            "is read. How often is it right, and from when on does it not change any more?",
            paper="Not in the paper. Wang et al. (arXiv 2508.09138) report right answers in the middle that are "
            "overwritten later, and vote over the steps.",
            how_to_read="A curve that falls towards the end loses right answers: stop earlier or vote. A curve that is "
            "level early shows that the remaining steps buy nothing for the answer.",
            x_label="Steps done, %",
            at="{} % of the steps",
            points=_along,
            measures=(as_share("right", "Right answers"),),
            caption="Line: share of right answers; band: 95 % interval over questions.",
            says=stands,
            masks=lambda shown: "masks: as many as the canvas has",
        ),
        Section(
            name="overwritten",
            title="What do the last steps destroy?",
            question="Answers that were right after some step and end wrong, and their mirror, beside what the same "
            "answers give in random order.",
            paper="Not in the paper. Related: arXiv 2508.09138.",
            how_to_read="Only what lies above its random order is destroyed by the order of the steps. A decoding that "
            "converges loses less than random order and gains more.",
            x_label="What becomes of an answer",
            at="{}",
            x_names=tuple(KINDS.values()),
            points=_lost_and_gained,
            measures=(as_share("share", "Questions"),),
            caption="Mark: share of questions; whisker: 95 % interval over questions.",
            says=destroyed,
            masks=lambda shown: "masks: as many as the canvas has",
        ),
    ),
)
