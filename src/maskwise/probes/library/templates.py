"""Templates (ours): does the diagnosis survive rewording?

    plain       Options: (A) cat, (B) lamp, (C) blue      Answer:[?].
    choices     Choices: (A) cat, (B) lamp, (C) blue      Reply:[?].
    label last  Options: cat (A), lamp (B), blue (C)      Answer:[?].

Questions of mask-count and of contrast, each asked under templates that mean the same, or under those of `--templates
FILE`: the accuracy with the fewest masks, its change with the most (mask-count), and its change where the example is
far instead of near, over three rules (contrast). Templates and questions are crossed. `plain` is the wording of all
other probes.

Each point is one template. An effect survives where the 95 % predictive interval under a new template lies on one side
of 0: of the effects under T templates, mean +- t(T - 1) s sqrt(1 + 1/T), exact if these are normal. A model that cannot
answer under a template has nothing to lose there: as many other questions decide under which it can (exact binomial
test), and what is said is about these. Templates whose answer is a word ask for another task and are apart.

Related: arXiv 2606.29228.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import sqrt
from typing import Any

from maskwise.probes.blocks import visible_counts
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions, context_of, episodes
from maskwise.probes.setup import Asker, Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import LEVEL, POINTS, SHARE, Estimate, change, of_questions, share, wide
from maskwise.scoring.intervals import p_by_guessing, students_half
from maskwise.support.randomness import seed_of
from maskwise.support.typed import Count
from maskwise.tasks.contrast_questions import CONTRAST_TASKS, RULES, Contrast, draw_contrast
from maskwise.tasks.episodes import CHANCE, LETTERS, Episode, Question, mixed
from maskwise.tasks.prompts import Encoded, Prompt, opened
from maskwise.tasks.rewordings import BUILT_IN, Rewording, encode_reworded
from maskwise.tasks.words import split_words

NAME = "templates"
RELEVANT = 1
OF_MASKS, OF_CONTRAST = "mask-count", "contrast"  # the probes whose questions are reworded
OF_SKILL = "skill"  # other questions of mask-count, which decide under which templates the model can answer
MIXED, NEAR, FAR = "mixed", "near", "far"
LETTER, WORD = "letter", "word"
ACCURACY, MASKS = "accuracy with the fewest masks", "change with the most masks"
DISTANCE = "change with the example far"
BY = ["examples", "masks", "template"]
SIDES = {  # of each effect the questions, and the examples and the masks on its sides, after and before
    MASKS: (OF_MASKS, [(MIXED, max), (MIXED, min)]),
    DISTANCE: (OF_CONTRAST, [(FAR, min), (NEAR, min)]),
    ACCURACY: (OF_MASKS, [(MIXED, min)]),
}
SHIPPED = tuple((one.name, one.text) for one in BUILT_IN)
ABLE, SAME_UNDER_ALL = "templates that it can answer", "the same under every template"

Drawn = Callable[[int, str], tuple[Sequence[Question], Question]]  # of a point and "near" or "far": examples and test


# What is asked


def ask(
    setup: Setup,
    templates: tuple[tuple[str, str], ...] = SHIPPED,
    tasks: int = 8,
    points: int = 2,
    mask_counts: tuple[int, ...] = (2, 200),
    among: int = 3,
    contrast_tasks: int = 4,
    contrast_questions: int = 2,
) -> Iterator[Questions]:
    settings = setup.settings
    reworded = partial(questions_under, setup.asker, [Rewording(name=name, text=text) for name, text in templates])
    counts = (0,) if setup.model.causal else visible_counts(setup, NAME, mask_counts)
    of_mask_count = range(min(settings.questions, points))
    chosen = [task.name for task in setup.tasks if task.name in settings.tasks][:tasks]
    other = replace(setup, settings=replace(settings, seed=seed_of(OF_SKILL, settings.seed)))
    for setup_of, kind, masks in ((setup, OF_MASKS, counts), (other, OF_SKILL, counts[:1])):
        for episode in episodes(setup_of, RELEVANT, among, len(of_mask_count)):
            if episode.task.name in chosen:
                draw: Drawn = partial(in_any_order, context_of(setup_of, episode, afresh=True))
                yield from reworded(
                    Points(episode.task.name, of_mask_count), kind, [(MIXED, count) for count in masks], draw
                )
    words = split_words(setup.words, settings.held_out) if settings.held_out else (setup.words, setup.words)
    of_contrast = range(RULES * min(settings.questions, contrast_questions))
    for task in CONTRAST_TASKS[:contrast_tasks]:
        question = partial(draw_contrast, task, *words, RELEVANT, among, seed=settings.seed)
        sides = [(where, counts[0]) for where in (NEAR, FAR)]
        yield from reworded(Points(task.name, of_contrast), OF_CONTRAST, sides, partial(near_or_far, question))


def questions_under(
    asker: Asker,
    templates: Sequence[Rewording],
    source: Points,
    kind: str,
    sides: Sequence[tuple[str, int]],
    draw: Drawn,
) -> Iterator[Questions]:
    """The questions of one task under each template and (examples, masks): answered by a letter, then by a word."""
    known = {template.name: template for template in templates}

    @lru_cache(1)  # numbers of masks of one template share a text
    def text(point: int, template: str, where: str) -> Encoded:
        return encode_reworded(asker.tokenizer, known[template], *draw(point, where), asker.chat)

    def prompt(point: int, condition: Mapping[str, Any]) -> Prompt:
        return opened(text(point, condition["template"], condition["examples"]), asker.mask_id, condition["masks"])

    def letter(point: int) -> str:
        return draw(point, NEAR)[1].letter

    def word(point: int) -> str:
        test = draw(point, NEAR)[1]
        return test.options[test.answer]

    for answer, right in ((LETTER, letter), (WORD, word)):
        named = [name for name, template in known.items() if template.changes_task == (answer == WORD)]
        asked = [
            {"questions": kind, "template": name, "answer": answer, "examples": where, "masks": masks}
            for name in named
            for where, masks in sides
        ]
        if asked:
            yield Questions(source, asked, prompt, right)


def in_any_order(context: Callable[[int], Episode], point: int, _: str) -> tuple[Sequence[Question], Question]:
    episode = context(point)
    return mixed(episode), episode.tests[point]


def near_or_far(question: Callable[[int], Contrast], point: int, where: str) -> tuple[Sequence[Question], Question]:
    number, rule = divmod(point, RULES)
    drawn = question(number)
    return drawn.context(rule, where), drawn.test(rule)


# What is measured


def effects(table: Table, answer: str = LETTER) -> dict[str, Table]:
    """The effects that were asked, of each question [task, point] under each template; over the questions that were
    asked under all of them."""
    # A letter is no word, though the first token of a word in capitals may be one.
    no_word = (table.answer_found == WORD) & table.predicted.str.strip().isin([*LETTERS])
    right, found = table.assign(correct=table.correct * ~no_word)[table.answer_found == answer], {}
    for effect, (kind, sides) in SIDES.items():
        own = right[right.questions == kind]
        if own.empty:
            continue
        each = wide(of_questions(own, BY, RULES if kind == OF_CONTRAST else 1, in_full=True), BY).sort_index(axis=1)
        named = [(examples, which(own.masks)) for examples, which in sides]
        if len(each) and len({*named}) == len(named) and {*named} <= {*each.columns.droplevel("template")}:
            after, *before = (each[one] for one in named)
            found[effect] = (after - before[0]).dropna(axis=1) if before else after
    return found


def under(effect: str, template: str, values: Table) -> Estimate:
    """An effect under one template."""
    name, column = f"{effect}: {template}", values[template]
    return share(name, column) if effect == ACCURACY else change(name, column, 0 * column)


def over(effect: str, values: Table) -> Estimate:
    """An effect with its predictive interval under a new template; none where it is the same under all."""
    means, name = values.mean().to_numpy(), f"{effect}, under a new template"
    value, half = float(means.mean()), students_half(means)
    n, unit, least = len(values), *((SHARE, 0.0) if effect == ACCURACY else (POINTS, -1.0))
    if half is None:
        return Estimate(name, value, n=n, unit=unit, why=SAME_UNDER_ALL)
    half *= sqrt(len(means) + 1)
    return Estimate(name, value, max(value - half, least), min(value + half, 1.0), n, unit)


def answerable(table: Table) -> list[str]:
    """The templates of the same task that the model can answer; all of them in runs without the check."""
    same = sorted(table[table.answer_found == LETTER].template.unique())
    check = table[table.questions == OF_SKILL].groupby("template").correct
    if not len(check):
        return same
    level = LEVEL / len(check)  # Bonferroni: a guesser passes under any template in 5 % of the runs
    shown = {name: p_by_guessing(int(own.sum()), len(own), CHANCE) < level for name, own in check}
    return [name for name in same if shown.get(name)]


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """Each effect over the templates that the model can answer; where that is one, the effects under it."""
    able, same = answerable(table), table[table.answer_found == LETTER].template.nunique()
    count = Estimate(ABLE, len(able), n=same, unit="templates")
    if not able:
        why = "the model is not shown to answer under any template"
        return [Estimate(f"{MASKS}, under a new template", None, unit=POINTS, why=why), count]
    found = {effect: values for effect, values in effects(table).items() if {*able} <= {*values}}.items()
    if len(able) == 1:
        return [*(under(effect, able[0], values) for effect, values in found), count]
    return [*(over(effect, values[able]) for effect, values in found), count]


def by_template(table: Table, others: Tables) -> Table:
    """Each effect under each template, and under a new one."""
    import pandas as pd

    able, rows = answerable(table), []
    for answer in (LETTER, WORD):
        for effect, values in effects(table, answer).items():
            for template in values:
                can = "templates it can answer" if template in able else "templates it cannot answer"
                series = can if answer == LETTER else "another task"
                one = under(effect, template, values)
                rows.append({"effect": effect, "template": template, "series": series, **one.row})
            if answer == LETTER and len(able) > 1 and {*able} <= {*values}:
                one = over(effect, values[able])
                rows.append({"effect": effect, "template": "a new one", "series": "a new template", **one.row})
    return pd.DataFrame(rows).drop(columns="name", errors="ignore")


def advice(found: Sequence[Estimate]) -> str | None:
    able = next(one for one in found if one.name == ABLE)
    if not able.value:
        return "diagnose under wordings that the model was trained on: --templates FILE"
    if able.value == 1 < able.n:
        return (
            "word your prompts as the one template that it can answer, and take this report for that wording alone; "
            "for another one, tune the model on it (maskwise tune), or name wordings that it knows (--templates FILE)"
        )
    return (
        "report the mean over templates with its predictive interval, not one template's number; conclude no loss from "
        "one template where that interval includes 0; to ask with your own templates: --templates FILE"
    )


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_template, "template", "Template", "", series="series", panel="effect", kind="points")],
    condition={"questions": str, "template": str, "answer": str, "examples": str, "masks": Count},
    sizes={"quick": {"tasks": 3, "contrast_tasks": 1}},
    advice=advice,
)
