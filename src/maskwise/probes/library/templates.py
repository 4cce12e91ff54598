"""templates (ours): does the diagnosis survive rewording?

Questions of mask-count and of contrast, each asked under templates that mean the same (tasks/rewordings.py: other words
for "Options" and "Answer", separators, brackets, order of label and option), or those of `--templates FILE`. Templates
and questions are crossed: every question is asked under every template. Measured on each question under each template:

    accuracy   right with 2 masks (mask-count)
    masks      right with 2 masks less right with the most (mask-count)
    distance   right with the example near less far, 2 masks, over three rules (contrast)

and of each effect the standard deviation over templates, and the predictive interval under a new template
(scoring/variance_components.py). A model that cannot answer under a template has nothing to lose there: as many other
questions decide under which it can (exact binomial test), and what is said is about these. Templates that change the
task, a word instead of a letter, are reported apart.
Condition: {"questions": "mask-count", "template": "choices", "examples": "mixed", "masks": 2}.
Related: arXiv 2606.29228.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial

from maskwise.probes.blocks import visible_counts
from maskwise.probes.few_shot import context_of, episodes
from maskwise.probes.probe import Asker, Probe, PromptMaker, Setup, Unit, units_for
from maskwise.probes.section import Entry, Point, Section, Shown, Summary, TextTable, drawn_entry, in_unit
from maskwise.records.record import Condition
from maskwise.scoring import template_effects as effects
from maskwise.scoring.intervals import Estimate
from maskwise.scoring.numbers import percent, tenths
from maskwise.scoring.template_effects import ACCURACY, DISTANCE, EFFECTS, MASKS, TemplateEffect, TemplatesSummary
from maskwise.scoring.variance_components import TemplateSpread
from maskwise.support.randomness import seed_of
from maskwise.support.typed import Count
from maskwise.tasks.contrast_questions import CONTRAST_TASKS, RULES, Contrast, draw_contrast
from maskwise.tasks.episodes import CHANCE, Episode, Question, mixed
from maskwise.tasks.prompts import Encoded, Prompt, opened
from maskwise.tasks.rewordings import BUILT_IN, Rewording, encode_reworded
from maskwise.tasks.words import split_words

NAME = "templates"
IN_WORDS = {ACCURACY: "accuracy with 2 masks", MASKS: "loss to appended masks", DISTANCE: "loss to distance"}
RELEVANT = 1
MORE = "mask-count and contrast"
CAN, CANNOT = "templates it can answer", "templates it cannot answer"


def units(setup: Setup) -> Iterator[Unit]:
    own, settings = setup.own, setup.settings
    templates = [Rewording(name=name, text=text) for name, text in own["templates"]]
    counts = (0,) if setup.model.causal else visible_counts(setup, NAME, own["mask_counts"])
    points = min(settings.points, own["points"])
    tasks = [task.name for task in setup.tasks if task.name in settings.tasks][: own["tasks"]]
    other = replace(setup, settings=replace(settings, seed=seed_of(effects.OF_SKILL, settings.seed)))
    for drawn, kind, masks in ((setup, effects.OF_MASKS, counts), (other, effects.OF_SKILL, counts[:1])):
        for episode in episodes(drawn, RELEVANT, own["among"], points):
            if episode.task.name in tasks:
                asked = [_condition(kind, template, effects.MIXED, k) for template in templates for k in masks]
                made = _reworded(setup.asker, templates, partial(_mixed, context_of(drawn, episode, afresh=True)))
                yield from units_for(NAME, episode.task.name, points, asked, made)
    words = split_words(setup.words, settings.held_out) if settings.held_out else (setup.words, setup.words)
    questions = min(settings.points, own["contrast_questions"])
    sides = [(template, where) for template in templates for where in (effects.NEAR, effects.FAR)]
    asked = [_condition(effects.OF_CONTRAST, *side, counts[0]) for side in sides]
    for task in CONTRAST_TASKS[: own["contrast_tasks"]]:
        question = partial(draw_contrast, task, *words, RELEVANT, own["among"], seed=settings.seed)
        made = _reworded(setup.asker, templates, partial(_near_or_far, question))
        yield from units_for(NAME, task.name, RULES * questions, asked, made)


WithExamples = tuple[Sequence[Question], Question]


def _mixed(context: Callable[[int], Episode], point: int, _: str) -> WithExamples:
    episode = context(point)
    return mixed(episode), episode.tests[point]


def _near_or_far(question: Callable[[int], Contrast], point: int, where: str) -> WithExamples:
    number, rule = divmod(point, RULES)
    drawn = question(number)
    return drawn.context(rule, where), drawn.test(rule)


def _reworded(asker: Asker, templates: Sequence[Rewording], draw: Callable[[int, str], WithExamples]) -> PromptMaker:
    known = {template.name: template for template in templates}

    @lru_cache(1)  # numbers of masks of one template share a text
    def text(point: int, name: str, where: str) -> tuple[Encoded, str]:
        examples, test = draw(point, where)
        answer = test.options[test.answer] if known[name].changes_task else test.letter
        return encode_reworded(asker.tokenizer, known[name], examples, test, asker.chat), answer

    def made(point: int, condition: Condition) -> tuple[Prompt, str]:
        encoded, answer = text(point, str(condition["template"]), str(condition["examples"]))
        return opened(encoded, asker.mask_id, int(condition["masks"])), answer

    return made


def _condition(questions: str, template: Rewording, examples: str, masks: int) -> Condition:
    answer = "word" if template.changes_task else "letter"
    return {"questions": questions, "template": template.name, "answer": answer, "examples": examples, "masks": masks}


def _found(summary: Summary) -> TemplatesSummary | None:
    return summary.extras.get(NAME)


def _points(shown: Shown) -> list[Point]:
    """Single templates left, the interval of a new one in the middle, other tasks right of each name."""
    found = _found(shown.summary)
    if found is None:
        return []
    shift = {CAN: 0.0, "a new template": 0.125, CANNOT: -0.125, "another task": 0.25}
    drawn = [
        ("a new template", effect, _entry(effect, "a new one", one.questions, one.mean, one.new_low, one.new_high))
        for effect, one in found.able.items()
    ]
    for one in found.effects:
        can = effects.can_answer(found.skills, one.template)
        if one.effect != ACCURACY and not can:
            continue  # nothing to lose there
        series = "another task" if one.changes_task else CAN if can else CANNOT
        drawn.append((series, one.effect, _entry(one.effect, one.template, one.questions, one.value)))
    drawn.sort(key=lambda point: list(shift).index(point[0]))
    return [Point(series, EFFECTS.index(effect) + shift[series], entry) for series, effect, entry in drawn]


def _entry(
    effect: str, template: str, n: int, value: float, low: float | None = None, high: float | None = None
) -> Entry:
    """In points: an effect, and the ends of its interval, may be below zero."""
    ends = Estimate.of((value, low, high)).named("points")
    measured = {name: None if end is None else 100 * end for name, end in ends.items()}
    return drawn_entry({"effect": effect, "template": template}, n, measured)


def in_words(shown: Shown) -> list[str]:
    """Which templates the model can answer, whether each effect stays under a new one of these, and what to do."""
    found = _found(shown.summary)
    if found is None or not found.spread:
        return ["whether the diagnosis survives rewording is not known: it takes two templates and two questions"]
    able, every = found.answerable, found.same_task
    lines = [_effect_line(effect, found.able[effect]) for effect in (MASKS, DISTANCE, ACCURACY) if effect in found.able]
    if len(able) == 1:
        lines = [f"under {able[0]!r}, in points: {_effects_of(found, able[0])} (the probes {MORE} ask more questions)"]
    elif found.able:
        lines.append("the point with a whisker is the mean; the whisker is where a new template lies in 95 % of cases")
    return [_able_line(found, able, every), *lines, *_extremes(found), *_other_task(found), _advice(found, able, every)]


def _able_line(found: TemplatesSummary, able: Sequence[str], every: Sequence[str]) -> str:
    total, others = len(every), [name for name in every if name not in able]
    if not found.skills:
        return f"under which of {total} templates the model can answer was not asked; the figures are over all"
    if not able:
        return f"the model is not shown to answer any of {total} templates, so nothing can be said about rewording"
    if not others:
        return f"the model can answer all {total} templates"
    skills = [found.skills[name] for name in others if name in found.skills]
    right = f"{sum(one.right for one in skills)} of {sum(one.n for one in skills)} right; guessing {percent(CHANCE)}"
    nothing = f"it is not shown to do better than guessing ({right}), so no loss can show there"
    if len(able) > 1:
        return (
            f"the model can answer {len(able)} of {total} templates; under the others, {', '.join(others)}, {nothing}"
        )
    own = found.skills[able[0]]
    masks = [one for one in found.effects if (one.effect, one.template) == (MASKS, able[0])]
    lost = "".join(f" and there appended masks cost {_with_ends(one, ' points')}" for one in masks)
    only = f"it can answer only 1 of {total} wordings ({able[0]!r}){lost}; {own.right} of {own.n} other questions are"
    return f"{only} right under it; under the other {len(others)} {nothing}; no variance over templates is known"


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
    kept = "so it survives rewording" if survives(one) else "which includes 0: rewording alone may remove it"
    verdict = "" if effect == ACCURACY else f", {kept}"
    return (
        f"{what}: {mean} over {one.templates} templates, {new} under a new one (95 % predictive interval){verdict}; "
        f"standard deviation over templates {tenths(100 * one.sd)} points "
        f"({tenths(100 * (one.sd_low or 0.0))} to {tenths(100 * one.sd_high)}), {one.questions} questions"
    )


def _extremes(found: TemplatesSummary) -> list[str]:
    """The templates with the lowest and the highest accuracy, of those that the model can answer."""
    able = found.answerable
    own = [one for one in found.effects if one.effect == ACCURACY and one.template in able]
    own.sort(key=lambda one: one.value)
    if not own or own[0].value == own[-1].value:
        return []
    low, high = (f"{tenths(100 * one.value)} % ({one.template})" for one in (own[0], own[-1]))
    return [f"{IN_WORDS[ACCURACY]} lies between {low} and {high}"]


def _other_task(found: TemplatesSummary) -> list[str]:
    return [
        f"another task, {name!r} (the answer is a word, judged by its first token; a letter does not count as a word), "
        f"in points: {_effects_of(found, name)}"
        for name in dict.fromkeys(one.template for one in found.effects if one.changes_task)
    ]


def _effects_of(found: TemplatesSummary, template: str) -> str:
    own = (one for one in found.effects if one.template == template)
    return ", ".join(f"{IN_WORDS[one.effect]} {_with_ends(one)}" for one in own)


def _with_ends(one: TemplateEffect, unit: str = "") -> str:
    ends = "" if one.low is None or one.high is None else f" ({_ends(one.low, one.high)})"
    return f"{tenths(100 * one.value)}{unit}{ends}"


def _advice(found: TemplatesSummary, able: Sequence[str], every: Sequence[str]) -> str:
    if not able:
        return "what to do: diagnose under wordings that the model was trained on: --templates FILE"
    if len(able) == 1 < len(every):
        return (
            f"what to do: word your prompts as {able[0]!r} does, and take this report for that wording alone; for "
            "another one, fine-tune the model on it (maskwise tune), or name wordings that it knows (--templates FILE)"
        )
    spread = {IN_WORDS[effect]: one for effect, one in found.able.items() if effect != ACCURACY}
    lost = [what for what, one in spread.items() if one.new_low is not None and not survives(one)]
    do = "what to do: report the mean over templates with its predictive interval, not one template's number"
    if lost:
        do += f"; do not conclude a {' or a '.join(lost)} from one template"
    return do + "; to ask with your own templates: --templates FILE"


def _tables(summary: Summary) -> list[TextTable]:
    found = _found(summary)
    if found is None:
        return []
    head = ("effect, in points", "mean", "95 % interval", "sd over templates", "95 % interval", "new template")
    rows = []
    for effect, one in (found.able or found.spread).items():
        ends = ((one.mean_low, one.mean_high), (one.sd_low, one.sd_high), (one.new_low, one.new_high))
        mean, sd, new = (_ends(low, high) for low, high in ends)
        rows.append((IN_WORDS[effect], tenths(100 * one.mean), mean, tenths(100 * one.sd), sd, new))
    whose = "that the model can answer" if found.able else "that mean the same"
    return [TextTable(f"{NAME}: each effect over templates {whose}", head, rows)]


def _ends(low: float | None, high: float | None) -> str:
    return "none" if low is None or high is None else f"{tenths(100 * low)} to {tenths(100 * high)}"


PROBE = Probe(
    name=NAME,
    group="context",
    about="mask-count and contrast under reworded questions (--templates FILE)",
    condition={"questions": str, "template": str, "answer": str, "examples": str, "masks": Count},
    units=units,
    parameters={
        "templates": tuple((one.name, one.text) for one in BUILT_IN),
        "tasks": 8,
        "points": 2,
        "mask_counts": (2, 200),
        "among": 3,
        "contrast_tasks": 4,
        "contrast_questions": 2,
    },
    quick={"tasks": 3, "contrast_tasks": 1},
    scored=lambda records: [record for record in records if record.condition["questions"] != effects.OF_SKILL],
    chance=None,
    extras={NAME: effects.templates_summary},
    tables=_tables,
    sections=(
        Section(
            title="Does the diagnosis survive rewording?",
            question="The same questions are asked under templates that mean the same: other words for Options and "
            "Answer, other separators and brackets, the label after the option. Does the effect stay?",
            paper="Not in the paper. Related: arXiv 2606.29228.",
            how_to_read="Each point is one template. A model that cannot answer under a template has nothing to lose "
            "there, so only its accuracy is drawn. A loss below 0 means more right answers with 200 masks, or with "
            "the example far. Templates whose answer is a word ask for another task. plain is the wording of all "
            "other probes, Options: (A) cat, (B) lamp, (C) blue, then Answer:[ ].",
            x_label="Effect",
            x_names=("accuracy with 2 masks", "loss to masks", "loss to distance"),
            points=_points,
            measures=(in_unit("points", "points", "Points"),),
            caption="Point: a template, on the same questions.",
            says=in_words,
            masks=lambda shown: "masks: 2, and 200 where their effect is measured",
        ),
    ),
)
