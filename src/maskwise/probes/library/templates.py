"""templates (ours): does the diagnosis survive rewording?

Questions of mask-count and of contrast, each asked under templates that mean the same (tasks/rewordings.py: other words
for "Options" and "Answer", separators, brackets, order of label and option), or those of `--templates FILE`. Templates
and questions are crossed: every question is asked under every template. Measured on each question under each template:

    accuracy   right with 2 masks (mask-count)
    masks      right with 2 masks less right with the most (mask-count)
    distance   right with the example near less far, 2 masks, over three rules (contrast)

and of each effect the standard deviation over templates, and the predictive interval under a new template
(scoring/variance_components.py). Templates that change the task, a word instead of a letter, are reported apart.
Condition: {"questions": "mask-count", "template": "choices", "examples": "mixed", "masks": 2}.
Related: arXiv 2606.29228.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated

import numpy as np
from msgspec import Meta

from maskwise.probes.blocks import visible_counts
from maskwise.probes.few_shot import context_of, episodes
from maskwise.probes.library.contrast import NAME as CONTRAST
from maskwise.probes.library.contrast import draw_question
from maskwise.probes.library.mask_count import NAME as MASK_COUNT
from maskwise.probes.probe import Asker, Item, Probe, Setup, Unit
from maskwise.probes.section import Entry, Measure, Point, Section, Shown, Summary, TextTable
from maskwise.records.record import Condition, Key, ProbeFields, Record, make_key
from maskwise.scoring.numbers import tenths
from maskwise.scoring.variance_components import TemplateSpread, template_spread
from maskwise.support.typed import Count, Typed
from maskwise.tasks.contrast_questions import CONTRAST_TASKS, RULES, Contrast
from maskwise.tasks.episodes import CHANCE, Episode, mixed
from maskwise.tasks.prompts import opened
from maskwise.tasks.rewordings import BUILT_IN, Rewording, encode_reworded
from maskwise.tasks.words import split_words

NAME = "templates"
MIXED, NEAR, FAR = "mixed", "near", "far"
ACCURACY, MASKS, DISTANCE = "accuracy", "masks", "distance"
EFFECTS = (ACCURACY, MASKS, DISTANCE)
IN_WORDS = {ACCURACY: "accuracy with 2 masks", MASKS: "loss to appended masks", DISTANCE: "loss to distance"}
RELEVANT = 1


class TemplateEffect(Typed, frozen=True, kw_only=True):
    """An effect under one template."""

    effect: str
    template: str
    changes_task: Annotated[bool, Meta(description="is the answer a word instead of a letter?")]
    value: Annotated[float, Meta(description="mean over questions, a share of the accuracy")]
    questions: int


class TemplatesSummary(Typed, frozen=True, kw_only=True):
    """Each effect over the templates that mean the same, and under every single one."""

    spread: Annotated[dict[str, TemplateSpread], Meta(description="of each effect, over templates of the same task")]
    effects: list[TemplateEffect]


# What is asked


def units(setup: Setup) -> Iterator[Unit]:
    own, settings = setup.own, setup.settings
    templates = [Rewording(name=name, text=text) for name, text in own["templates"]]
    counts = (0,) if setup.model.causal else visible_counts(setup, NAME, own["mask_counts"])
    points = min(settings.points, own["points"])
    tasks = [task.name for task in setup.tasks if task.name in settings.tasks][: own["tasks"]]
    for episode in episodes(setup, RELEVANT, own["among"], points):
        if episode.task.name in tasks:
            context = context_of(setup, episode, afresh=True)
            make = partial(_mask_count_items, setup.asker, templates, context, counts)
            yield Unit(range(points), len(templates) * len(counts), make)
    words = split_words(setup.words, settings.held_out) if settings.held_out else (setup.words, setup.words)
    questions = min(settings.points, own["contrast_questions"])
    for task in CONTRAST_TASKS[: own["contrast_tasks"]]:
        question = partial(draw_question, task, words, RELEVANT, own["among"], settings.seed)
        make = partial(_contrast_items, setup.asker, templates, task.name, question, counts[0])
        yield Unit(range(RULES * questions), 2 * len(templates), make)


def _mask_count_items(
    asker: Asker,
    templates: Sequence[Rewording],
    context: Callable[[int], Episode],
    counts: Sequence[int],
    points: Sequence[int],
    done: Collection[Key],
) -> Iterator[Item]:
    for point in points:
        episode = context(point)
        test = episode.tests[point]
        for template in templates:
            asked = [(k, _condition(MASK_COUNT, template, MIXED, k)) for k in counts]
            keys = [make_key(NAME, episode.task.name, point, condition) for _, condition in asked]
            if all(key in done for key in keys):
                continue
            encoded = encode_reworded(asker.tokenizer, template, mixed(episode), test, asker.chat)
            for key, (k, condition) in zip(keys, asked, strict=True):
                if key not in done:
                    answer = test.options[test.answer] if template.changes_task else test.letter
                    yield Item(key, condition, opened(encoded, asker.mask_id, k), answer)


def _contrast_items(
    asker: Asker,
    templates: Sequence[Rewording],
    task: str,
    question: "partial[Contrast]",
    masks: int,
    points: Sequence[int],
    done: Collection[Key],
) -> Iterator[Item]:
    for point in points:
        number, rule = divmod(point, RULES)
        drawn = question(number)
        test = drawn.test(rule)
        for template in templates:
            for where in (NEAR, FAR):
                condition = _condition(CONTRAST, template, where, masks)
                key = make_key(NAME, task, point, condition)
                if key not in done:
                    examples = drawn.context(rule, where)
                    encoded = encode_reworded(asker.tokenizer, template, examples, test, asker.chat)
                    answer = test.options[test.answer] if template.changes_task else test.letter
                    yield Item(key, condition, opened(encoded, asker.mask_id, masks), answer)


def _condition(questions: str, template: Rewording, examples: str, masks: int) -> Condition:
    answer = "word" if template.changes_task else "letter"
    return {"questions": questions, "template": template.name, "answer": answer, "examples": examples, "masks": masks}


# What is measured

RightByQuestion = dict[tuple[str, int, int], bool]  # task, question and rule


def templates_summary(records: Sequence[Record]) -> TemplatesSummary | None:
    """None before two templates have answered the same questions."""
    table: dict[tuple[str, str, str, str, int], RightByQuestion] = {}
    for record in records:
        found = record.condition
        rules = RULES if found["questions"] == CONTRAST else 1
        place = found["questions"], found["template"], found["answer"], found["examples"], found["masks"]
        table.setdefault(place, {})[record.task, *divmod(record.point, rules)] = record.correct
    spread, effects = {}, []
    for effect in EFFECTS:
        for answer in ("letter", "word"):
            values = _effect_values(table, effect, answer)
            if values is None:
                continue
            names, by_task = values
            whole = np.concatenate(list(by_task.values()), axis=1)
            effects += [
                TemplateEffect(
                    effect=effect, template=name, changes_task=answer == "word", value=float(row.mean()),
                    questions=len(row),
                )
                for name, row in zip(names, whole, strict=True)
            ]  # fmt: skip
            if answer == "letter" and len(names) > 1 and whole.shape[1] > 1:
                spread[effect] = template_spread(by_task, (0.0, 1.0) if effect == ACCURACY else (-1.0, 1.0))
    return TemplatesSummary(spread=spread, effects=effects) if effects else None


def _effect_values(
    table: Mapping[tuple[str, str, str, str, int], RightByQuestion], effect: str, answer: str
) -> tuple[list[str], dict[str, np.ndarray]] | None:
    """The templates, and by task the effect under each on each question asked under all of them, [T, questions]."""
    questions = CONTRAST if effect == DISTANCE else MASK_COUNT
    own = {place: answers for place, answers in table.items() if place[0] == questions and place[2] == answer}
    names = list(dict.fromkeys(place[1] for place in own))
    counts = sorted({place[4] for place in own})
    if not names or (effect == MASKS and len(counts) < 2):
        return None
    plus = (NEAR if effect == DISTANCE else MIXED), counts[0]
    minus = {DISTANCE: (FAR, counts[0]), MASKS: (MIXED, counts[-1])}.get(effect)
    sides = [side for side in (plus, minus) if side is not None]
    asked = [own.get((questions, name, answer, *side), {}) for name in names for side in sides]
    shared = sorted(set.intersection(*(set(one) for one in asked)))
    if not shared:
        return None

    def value(name: str, key: tuple[str, int, int]) -> float:
        right, *other = (own[questions, name, answer, *side][key] for side in sides)
        return float(right) - (float(other[0]) if other else 0.0)

    by_task: dict[str, np.ndarray] = {}
    for task in dict.fromkeys(key[0] for key in shared):
        numbers = list(dict.fromkeys(key[1] for key in shared if key[0] == task))
        rules = {number: [key for key in shared if key[:2] == (task, number)] for number in numbers}
        by_task[task] = np.array([[np.mean([value(n, key) for key in rules[q]]) for q in numbers] for n in names])
    return names, by_task


# How it is shown


def _found(summary: Summary) -> TemplatesSummary | None:
    return summary.extras.get(NAME)


def _points(shown: Shown) -> list[Point]:
    """Single templates left, the interval of a new one in the middle, other tasks right of each name."""
    found = _found(shown.summary)
    if found is None:
        return []
    single = [
        Point(
            "another task" if one.changes_task else "each template",
            EFFECTS.index(one.effect) + (0.25 if one.changes_task else 0.0),
            _entry(one.value, None, None),
        )
        for one in found.effects
    ]
    new = [
        Point("a new template", EFFECTS.index(effect) + 0.125, _entry(one.mean, one.new_low, one.new_high))
        for effect, one in found.spread.items()
    ]
    return [*new, *single]


def _entry(value: float, low: float | None, high: float | None) -> Entry:
    measured = {"effect": value, "effect_low": low, "effect_high": high}
    return Entry(condition={}, masks=0, n=0, accuracy=None, low=None, high=None, measures=measured)


def in_words(shown: Shown) -> list[str]:
    """Whether each effect stays under a new template, how much templates move it, and what to do."""
    found = _found(shown.summary)
    if found is None or not found.spread:
        return ["whether the diagnosis survives rewording is not known: it takes two templates and two questions"]
    order = [effect for effect in (MASKS, DISTANCE, ACCURACY) if effect in found.spread]
    lines = [_effect_line(effect, found.spread[effect]) for effect in order]
    return [*lines, *_without_skill(found), *_extremes(found), *_other_task(found), _advice(found)]


def _without_skill(found: TemplatesSummary) -> list[str]:
    """Under a template that the model cannot answer there is nothing to lose."""
    own = [one for one in found.effects if one.effect == ACCURACY and not one.changes_task]
    unable = [one.template for one in own if one.value <= CHANCE]
    if not unable:
        return []
    return [
        f"under {len(unable)} of {len(own)} templates ({', '.join(unable)}) the accuracy is no better than guessing, "
        "so no loss can show there"
    ]


def survives(one: TemplateSpread) -> bool:
    """Whether the predictive interval lies on one side of zero; where no template changed the effect, its value."""
    if one.new_low is None or one.new_high is None:
        return one.mean != 0
    return one.new_low > 0 or one.new_high < 0


def _effect_line(effect: str, one: TemplateSpread) -> str:
    what, mean = IN_WORDS[effect], f"{tenths(100 * one.mean)} points"
    if one.new_low is None or one.new_high is None or one.sd_high is None:
        return f"{what}: {mean} under each of {one.templates} templates; no template changed it"
    new = f"{tenths(100 * one.new_low)} to {tenths(100 * one.new_high)}"
    kept = "so it survives rewording" if survives(one) else "so rewording alone can make it vanish"
    verdict = "" if effect == ACCURACY else f", {kept}"
    return (
        f"{what}: {mean} over {one.templates} templates, {new} under a new one (95 % predictive interval){verdict}; "
        f"standard deviation over templates {tenths(100 * one.sd)} points "
        f"({tenths(100 * (one.sd_low or 0.0))} to {tenths(100 * one.sd_high)}), {one.questions} questions"
    )


def _extremes(found: TemplatesSummary) -> list[str]:
    lines = []
    for effect in found.spread:
        own = [one for one in found.effects if one.effect == effect and not one.changes_task]
        low, high = min(own, key=lambda one: one.value), max(own, key=lambda one: one.value)
        if high.value > low.value:
            lines.append(
                f"{IN_WORDS[effect]}: from {tenths(100 * low.value)} points ({low.template}) to "
                f"{tenths(100 * high.value)} ({high.template})"
            )
    return lines


def _other_task(found: TemplatesSummary) -> list[str]:
    return [
        f"another task, {one.template!r} (answer: a word): {IN_WORDS[one.effect]} {tenths(100 * one.value)} points"
        for one in found.effects
        if one.changes_task
    ]


def _advice(found: TemplatesSummary) -> str:
    spread = {IN_WORDS[effect]: one for effect, one in found.spread.items() if effect != ACCURACY}
    lost = [what for what, one in spread.items() if one.new_low is not None and not survives(one)]
    do = "what to do: report the mean over templates with its predictive interval, not one template's number"
    if lost:
        do += f"; do not conclude a {' or a '.join(lost)} from one template"
    return do + "; ask with your own templates (--templates FILE)"


def _tables(summary: Summary) -> list[TextTable]:
    found = _found(summary)
    if found is None:
        return []
    head = ("effect, in points", "mean", "95 % interval", "sd over templates", "95 % interval", "new template")
    rows = [
        (
            IN_WORDS[effect],
            tenths(100 * one.mean),
            _ends(one.mean_low, one.mean_high),
            tenths(100 * one.sd),
            _ends(one.sd_low, one.sd_high),
            _ends(one.new_low, one.new_high),
        )
        for effect, one in found.spread.items()
    ]
    return [TextTable(f"{NAME}: each effect over templates that mean the same", head, rows)]


def _ends(low: float | None, high: float | None) -> str:
    return "none" if low is None or high is None else f"{tenths(100 * low)} to {tenths(100 * high)}"


class ConditionFields(ProbeFields, frozen=True, kw_only=True):
    questions: str
    template: str
    answer: str
    examples: str
    masks: Count


PROBE = Probe(
    name=NAME,
    group="context",
    about="mask-count and contrast under reworded questions (--templates FILE)",
    condition=ConditionFields,
    units=units,
    parameters={
        "templates": tuple((one.name, one.text) for one in BUILT_IN),
        "tasks": 8,
        "points": 3,
        "mask_counts": (2, 200),
        "among": 3,
        "contrast_tasks": 4,
        "contrast_questions": 3,
    },
    quick={"tasks": 2, "points": 2, "contrast_tasks": 1, "contrast_questions": 2},
    chance=None,
    extras={NAME: templates_summary},
    tables=_tables,
    sections=(
        Section(
            title="Does the diagnosis survive rewording?",
            question="The same questions are asked under templates that mean the same: other words for Options and "
            "Answer, other separators and brackets, the label after the option. Does the effect stay?",
            paper="Not in the paper. Related: arXiv 2606.29228.",
            how_to_read="Each small point is one template; the point with a whisker is the mean over them, and its "
            "whisker is where the effect under a new template lies in 95 % of cases. A whisker that crosses 0 means "
            "that rewording alone can make the effect vanish. Templates whose answer is a word ask for another task "
            "and do not count in the mean.",
            x_label="Effect",
            at="{}",
            x_names=("accuracy with 2 masks", "loss to masks", "loss to distance"),
            points=_points,
            measures=(Measure("effect", "Share of answers", "effect_low", "effect_high"),),
            caption="Whisker: 95 % predictive interval over templates, on the same questions.",
            says=in_words,
        ),
    ),
)
