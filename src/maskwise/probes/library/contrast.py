"""Distance: does it use an example that alone decides, next to the question and far from it?

    near  d d d d R Q ? _        far  R d d d d Q ? _

The options are words of three categories, and one example shows which category is asked for. The same question is asked
under examples of each of the three rules, so whoever does not use the example is right exactly one time in three. The
example stands next to the question (near), before all distractors (far), or is left out (none: a check), with k masks
at the end. The gap between near and far is what distance costs; a falling line is what masks cost. All intervals are
over questions, the three rules of a question together; its context is drawn for it alone.

With near and far the accuracies under 2 masks, locality is (near - far) / (near - 1/3).

Differs from the paper: ten examples of a rule that can often be guessed hide what distance does.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

from maskwise.probes.blocks import visible_counts
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import SHARE, Estimate, change, curve, locality, of_questions, share, wide
from maskwise.support.typed import Count
from maskwise.tasks.contrast_questions import CONTRAST_TASKS, RULES, draw_contrast
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import Encoded, Prompt, encode_question, opened
from maskwise.tasks.words import split_words

NAME = "contrast"
BY = ["examples", "masks"]


def ask(
    setup: Setup,
    tasks: int = 8,
    questions: int = 50,
    relevant: int = 1,
    mask_counts: tuple[int, ...] = (2, 20, 200),
    among: int | None = None,
    places: tuple[str, ...] = ("near", "far", "none"),
) -> Iterator[Questions]:
    """A point is a question under one rule: 3 q, 3 q + 1 and 3 q + 2."""
    settings, asker = setup.settings, setup.asker
    counts = (0,) if setup.model.causal else visible_counts(setup, NAME, mask_counts)
    conditions = [{"examples": where, "masks": k} for k in counts for where in places]
    words = split_words(setup.words, settings.held_out) if settings.held_out else (setup.words, setup.words)
    distractors = settings.distractors if among is None else among
    points = range(RULES * min(settings.questions, questions))
    for task in CONTRAST_TASKS[:tasks]:
        drawn = lru_cache(1)(partial(draw_contrast, task, *words, relevant, distractors, seed=settings.seed))

        @lru_cache(len(places))  # conditions of a point that differ in their masks share a text
        def encoded(point: int, where: str, drawn=drawn) -> Encoded:
            number, rule = divmod(point, RULES)
            context, test = drawn(number).context(rule, where), drawn(number).test(rule)
            return encode_question(asker.tokenizer, context, test, "right", asker.chat)

        def prompt(point: int, condition: Mapping[str, Any], encoded=encoded) -> Prompt:
            return opened(encoded(point, condition["examples"]), asker.mask_id, condition["masks"])

        yield Questions(Points(task.name, points), conditions, prompt)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """Of questions whose three rules were all asked."""
    right = wide(of_questions(table, BY, RULES, in_full=True), BY)
    few = 2 if 2 in set(table.masks) else table.masks.min()
    if right.empty or not {("near", few), ("far", few)} <= set(right):
        return []
    near, far = right["near", few], right["far", few]
    return [
        change("change of accuracy with the example far instead of near", far, near, claim="below"),
        share("accuracy with the example near", near),
        share("accuracy with the example far", far),
        locality("locality, contrast questions", near, far, CHANCE),
    ]


def by_masks(table: Table, others: Tables) -> Table:
    """Far is compared with near under the same masks, anything else with itself under the fewest masks."""
    fewest = table.masks.min()

    def baseline(condition: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"examples": "near"} if condition["examples"] == "far" else {"masks": fewest}

    return curve(table, BY, {"correct": SHARE}, baseline, times=RULES)


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_masks, "masks", "Masks at the end", series="examples", log=True, guessing=CHANCE)],
    condition={"examples": str, "masks": Count},
    presets=("default", "full"),
    # Fewer distractors are too near to tell; few tasks and more questions of each make the shortest interval.
    sizes={
        "quick": {"tasks": 4, "questions": 4, "mask_counts": (2,), "among": 32},
        "default": {"questions": 10, "mask_counts": (2,), "places": ("near", "far")},
    },
)
