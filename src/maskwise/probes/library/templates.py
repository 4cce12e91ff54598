"""Templates (ours): does the diagnosis survive rewording?

    plain       Options: (A) cat, (B) lamp, (C) blue      Answer:[?].
    choices     Choices: (A) cat, (B) lamp, (C) blue      Reply:[?].
    label last  Options: cat (A), lamp (B), blue (C)      Answer:[?].

Questions of mask-count and of contrast, each asked under templates that mean the same, or under those of `--templates
FILE`: the accuracy with the fewest masks, its change with the most (mask-count), and its change where the example is
far instead of near, over three rules (contrast). Templates and questions are crossed. `plain` is the wording of all
other probes.

Each point is one template. An effect survives where the 95 % predictive interval under a new template lies on one side
of 0 (scoring/variance_components.py). A model that cannot answer under a template has nothing to lose there: as many
other questions decide under which it can (exact binomial test), and what is said is about these. Templates whose
answer is a word ask for another task and are apart.

Related: arXiv 2606.29228.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from maskwise.probes.blocks import visible_counts
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions, context_of, episodes
from maskwise.probes.setup import Asker, Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import LEVEL, POINTS, SHARE, Estimate, change, mean, share, wide
from maskwise.scoring.intervals import p_by_guessing
from maskwise.scoring.variance_components import template_spread
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


def sides_of(table: Table, effect: str, answer: str = LETTER) -> list[Table]:
    """The sides of an effect, after and before: accuracies of questions [task, point] x templates, over those that were
    asked under all templates on both sides; none where these are not two."""
    import pandas as pd

    kind = OF_CONTRAST if effect == DISTANCE else OF_MASKS
    own = table[(table.questions == kind) & (table.answer_found == answer)]
    counts = sorted(own.masks.unique())
    if not counts or (effect == MASKS and len(counts) < 2):
        return []
    least, most = counts[0], counts[-1]
    sides = {
        ACCURACY: [(MIXED, least)],
        MASKS: [(MIXED, most), (MIXED, least)],
        DISTANCE: [(FAR, least), (NEAR, least)],
    }[effect]
    own = own[pd.MultiIndex.from_frame(own[["examples", "masks"]]).isin(sides)]
    # A letter is no word, though the first token of a word in capitals may be one.
    no_word = (own.answer_found == WORD) & own.predicted.str.strip().isin([*LETTERS])
    right = wide(own.assign(correct=own.correct * ~no_word), ["examples", "masks", "template"]).sort_index(axis=1)
    if right.empty or not set(sides) <= set(right.columns.droplevel("template")):
        return []
    found = [right[side] for side in sides]
    if effect != DISTANCE:
        return found
    tasks, points = (right.index.get_level_values(name) for name in ("task", "point"))
    keys = pd.MultiIndex.from_arrays([tasks, points // RULES], names=["task", "point"])
    return [one.set_axis(keys).groupby(level=["task", "point"], observed=True).mean() for one in found]


def difference(sides: Sequence[Table]) -> Table:
    return sides[0] - sides[1] if len(sides) > 1 else sides[0]


def under(effect: str, sides: Sequence[Table], template: str) -> Estimate:
    """An effect under one template."""
    name = f"{effect}: {template}"
    if effect == ACCURACY:
        return share(name, sides[0][template])
    if effect == MASKS:
        return change(name, sides[0][template], sides[1][template])
    return mean(name, difference(sides)[template], POINTS, (-1.0, 1.0))


def over(effect: str, values: Table) -> list[Estimate]:
    """An effect over templates: under a new one, its mean, and its standard deviation."""
    bounds = (0.0, 1.0) if effect == ACCURACY else (-1.0, 1.0)
    by_task = {task: own.to_numpy(dtype=float).T for task, own in values.groupby(level="task", observed=True)}
    of_new, of_mean, deviation = template_spread(by_task, bounds)
    n, unit, why = len(values), SHARE if effect == ACCURACY else POINTS, "" if deviation[2] else SAME_UNDER_ALL
    return [
        Estimate(f"{effect}, under a new template", *of_new, n, unit, why=why),
        Estimate(f"{effect}, mean over templates", *of_mean, n, unit),
        Estimate(f"{effect}, deviation over templates", *deviation, n, SHARE),
    ]


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
    found = []
    for effect in (MASKS, DISTANCE, ACCURACY):
        sides = sides_of(table, effect)
        if sides and len(able) == 1:
            found.append(under(effect, sides, able[0]))
        elif sides and len(sides[0]) > 1:
            found += over(effect, difference(sides)[able])
    return [*found, count]


def by_template(table: Table, others: Tables) -> Table:
    """Each effect under each template, and under a new one."""
    import pandas as pd

    able, rows = answerable(table), []
    for effect in (ACCURACY, MASKS, DISTANCE):
        for answer in (LETTER, WORD):
            sides = sides_of(table, effect, answer)
            for template in sides[0] if sides else []:
                one = under(effect, sides, template)
                can = "templates it can answer" if template in able else "templates it cannot answer"
                series = can if answer == LETTER else "another task"
                rows.append({"effect": effect, "template": template, "series": series, **one.row})
        rows += [
            {"effect": effect, "template": "a new one", "series": "a new template", **one.row}
            for one in metrics(table, others)
            if one.name == f"{effect}, under a new template" and one.value is not None
        ]
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
