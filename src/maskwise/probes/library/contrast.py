"""contrast (ours): the same question under examples of three rules, so that nothing but the context says the answer.

The options are one word of each of three categories; which category is asked for, only the relevant example shows
(tasks/contrast.py). An answerer blind to the context is right exactly one time in three. The example stands next to the
question (near), before all distractors (far), or is left out (none), with k masks at the end, format B. What is asked
without an example is a check: it is a third where the model answers with a letter, less where it does not.

Condition: {"examples": "far", "masks": 20}; autoregressive models are asked with 0 masks. A question is asked under its
three rules as the points 3 q, 3 q + 1 and 3 q + 2, and its context is drawn for it alone: one example and the run's
distractors, or `among` many. With near_k and far_k the
accuracies under k masks, their means a_k, and c = 1/3:

    contrast locality  (near_2 - far_2) / (near_2 - c)
    contrast mask tax  mean over k > 2 of (a_2 - a_k) / (a_2 - c)

Both are ratios of means. All intervals are over questions, the three rules of a question together.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np

from maskwise.probes.blocks import visible_counts
from maskwise.probes.library.mask_count import MASK_TAX
from maskwise.probes.probe import POINTS_PER_UNIT, Asker, ItemMaker, Probe, ScoreRule, Sentences, Setup, Unit, items_of
from maskwise.probes.section import Point, Shown, named_curves, over_masks
from maskwise.records.groups import GroupedRecords, groups_of, values_of
from maskwise.records.record import Condition, Record
from maskwise.scoring.numbers import percent
from maskwise.scoring.repeated_questions import by_question
from maskwise.scoring.scores import Score, Tables, bootstrapped, null_score, share_of_skill, skill_lost, tables
from maskwise.support.typed import Count
from maskwise.tasks.contrast_questions import CONTRAST_TASKS, RULES, Contrast, draw_contrast
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import Encoded, Prompt, encode_question, opened
from maskwise.tasks.words import split_words

NAME = "contrast"
PLACES = {
    "near": "example next to the question",
    "far": "example before the distractors",
    "none": "no relevant example (a check)",
}


def units(setup: Setup) -> Iterator[Unit]:
    settings, own = setup.settings, setup.own
    counts = (0,) if setup.model.causal else visible_counts(setup, NAME, own["mask_counts"])
    conditions: list[Condition] = [{"examples": where, "masks": k} for k in counts for where in PLACES]
    words = split_words(setup.words, settings.held_out) if settings.held_out else (setup.words, setup.words)
    count = RULES * min(settings.points, own["questions"])
    among = settings.distractors if own["among"] is None else own["among"]
    step = POINTS_PER_UNIT // RULES * RULES  # the rules of a question stay together, so that equal prompts meet
    for task in CONTRAST_TASKS[: own["tasks"]]:
        question = partial(draw_contrast, task, *words, own["relevant"], among, seed=settings.seed)
        for first in range(0, count, step):
            points = range(first, min(first + step, count))
            yield Unit(points, len(conditions), contrast_items(setup.asker, task.name, question, conditions))


def contrast_items(
    asker: Asker, task: str, question: "partial[Contrast]", conditions: Sequence[Condition]
) -> ItemMaker:
    """A point is a question under one rule."""

    @lru_cache(len(PLACES))  # conditions of a point that differ in their masks share a text
    def encoded(point: int, where: str) -> tuple[Encoded, str]:
        number, rule = divmod(point, RULES)
        drawn = question(number)
        test = drawn.test(rule)
        return encode_question(asker.tokenizer, drawn.context(rule, where), test, "right", asker.chat), test.letter

    def made(point: int, condition: Condition) -> tuple[Prompt, str]:
        text, letter = encoded(point, str(condition["examples"]))
        return opened(text, asker.mask_id, int(condition["masks"])), letter

    return items_of(NAME, task, conditions, made)


def baseline(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    """Far is compared with near under the same masks, anything else with itself under the fewest masks."""
    if condition["examples"] == "far":
        return next((c for c in conditions if c == {**condition, "examples": "near"}), None)
    return min((c for c in conditions if c["examples"] == condition["examples"]), key=lambda c: int(c["masks"]))


def question_tables(records: Sequence[Record], conditions: Sequence[Condition]) -> Tables:
    """By task, the share of its three rules that each question got right under each condition: [questions, C]."""
    questions = (by_question(group, RULES, in_full=True) for group in groups_of(records))
    return tables(GroupedRecords(questions), conditions)


def contrast_locality(records: Sequence[Record]) -> Score:
    counts = values_of(records, "masks")
    if not counts:
        return null_score()
    ends: list[Condition] = [{"examples": where, "masks": _few(counts)} for where in ("near", "far")]
    return skill_lost(question_tables(records, ends))


def contrast_mask_tax(records: Sequence[Record]) -> Score:
    counts = values_of(records, "masks")
    more = [k for k in counts if k > 2]
    if 2 not in counts or not more:
        return null_score()
    asked: list[Condition] = [{"examples": where, "masks": k} for k in (2, *more) for where in ("near", "far")]

    def lost(accuracy: np.ndarray) -> np.ndarray:
        few = accuracy[:, :2].mean(1)
        return share_of_skill(few - accuracy[:, 2:].mean(1), few - CHANCE)

    return bootstrapped(question_tables(records, asked), lost)


def _few(counts: Sequence[int]) -> int:
    return 2 if 2 in counts else counts[0]


def _accuracies(shown: Shown, masks: int) -> dict[str, float]:
    own = [entry for entry in shown.entries(NAME) if entry.condition["masks"] == masks]
    return {entry.condition["examples"]: entry.accuracy for entry in own if entry.accuracy is not None}


def _near_and_far(shown: Shown) -> str:
    found = _accuracies(shown, _few(sorted({entry.condition["masks"] for entry in shown.entries(NAME)})))
    without = f", {percent(found['none'])} without it" if "none" in found else ""  # of an unfinished run
    return (
        f"{percent(found['near'])} of its answers are right with the one example next to the question, "
        f"{percent(found['far'])} with it before all distractors{without}"
    )


def _few_and_many(shown: Shown) -> str:
    most = max(entry.condition["masks"] for entry in shown.entries(NAME))
    few, many = ((found["near"] + found["far"]) / 2 for found in (_accuracies(shown, 2), _accuracies(shown, most)))
    return f"{percent(few)} of its answers are right with 2 masks, {percent(many)} with {most}"


assert MASK_TAX.sentences is not None
LOCALITY = ScoreRule(
    name="contrast_locality",
    title="Locality, contrast questions",
    meaning="share of its use of one example lost when the example stands far from the question",
    formula=contrast_locality,
    sentences=Sentences(
        topic="Context locality, contrast questions",
        claims={
            1: "It uses a near example more than a distant one.",
            0: "No difference between a near and a distant example was detected.",
            -1: "It uses a distant example more than a near one.",
        },
        change=("moving the example away", "costs", "raises"),
        seen=_near_and_far,
        takes="It takes questions asked with the example near and far.",
    ),
)
CONTRAST_TAX = ScoreRule(
    name="contrast_mask_tax",
    title="Mask tax, contrast questions",
    meaning="share of its use of one example lost to masks beyond the second, near and far, on average",
    formula=contrast_mask_tax,
    sentences=replace(
        MASK_TAX.sentences, topic="Appended masks, contrast questions", seen=_few_and_many, addition=None
    ),
)


def _effect(point: Point, base: Point) -> str:
    if point.series == base.series:
        return f"with {point.x:g} masks instead of {base.x:g} ({point.series})"
    return f"with the one {point.series}, not {base.series.removeprefix('example ')}"


PROBE = Probe(
    name=NAME,
    group="context",
    about="questions whose answer only one example shows, near or far, with more and more masks",
    condition={"examples": str, "masks": Count},
    presets=("default", "full"),
    units=units,
    one_pass=True,
    parameters={"tasks": 8, "questions": 50, "relevant": 1, "mask_counts": (2, 20, 200), "among": None},
    # Fewer distractors are too near to tell; few tasks and more questions of each make the shortest interval.
    quick={"tasks": 4, "questions": 4, "mask_counts": (2,), "among": 32},
    baseline=baseline,
    points_per_question=RULES,
    questions=lambda settings: (
        settings.parameters[NAME]["tasks"] * min(settings.points, settings.parameters[NAME]["questions"])
    ),
    scores=(LOCALITY, CONTRAST_TAX),
    sections=(
        over_masks(
            title="Does it use an example that alone decides?",
            question="The options are words of three categories, and one example shows which category is asked for. "
            "The same question is asked under examples of each of the three rules, so whoever does not use the example "
            "is right exactly one time in three. The example stands next to the question, or before all distractors.",
            paper="Not in the paper: ten examples of a rule that can often be guessed hide what distance does.",
            how_to_read="The gap between the upper lines is what distance costs; a falling line is what masks cost. "
            "The line without an example is a check: it lies on a third, or below it where the model does not answer "
            "with a letter.",
            points=named_curves(NAME, "masks", "examples", PLACES),
            caption="Line: mean over triples of categories; band: 95 % interval. The context is drawn afresh for each "
            "question.",
            effect=_effect,
        ),
    ),
)
