"""From the records of reworded questions to effects under each template, and their spread over templates."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from maskwise.records.record import Record
from maskwise.scoring.claims import LEVEL
from maskwise.scoring.intervals import Estimate, bounded_mean, paired_share, stratified_share
from maskwise.scoring.skill import Skill, task_skill
from maskwise.scoring.variance_components import TemplateSpread, template_spread
from maskwise.support.typed import Typed
from maskwise.tasks.contrast_questions import RULES
from maskwise.tasks.episodes import CHANCE, LETTERS

OF_MASKS, OF_CONTRAST = "mask-count", "contrast"  # the probes whose questions are reworded
OF_SKILL = "skill"  # other questions of mask-count, which decide under which templates the model can answer
MIXED, NEAR, FAR = "mixed", "near", "far"
ACCURACY, MASKS, DISTANCE = "accuracy", "masks", "distance"
EFFECTS = (ACCURACY, MASKS, DISTANCE)


class TemplateEffect(Typed, frozen=True, kw_only=True):
    """An effect under one template."""

    effect: str
    template: str
    changes_task: Annotated[bool, Meta(description="is the answer a word instead of a letter?")]
    value: Annotated[float, Meta(description="mean over questions, a share of the accuracy")]
    low: Annotated[float | None, Meta(description="lower end of the 95 % interval over questions")] = None
    high: Annotated[float | None, Meta(description="upper end")] = None
    questions: int


class TemplatesSummary(Typed, frozen=True, kw_only=True):
    """Each effect over the templates that mean the same, and under every single one."""

    spread: Annotated[dict[str, TemplateSpread], Meta(description="of each effect, over templates of the same task")]
    able: Annotated[
        dict[str, TemplateSpread], Meta(description="the same over those that the model can answer, of two or more")
    ]
    skills: Annotated[
        dict[str, Skill], Meta(description="of each template, right answers to other questions compared with guessing")
    ]
    effects: list[TemplateEffect]

    @property
    def same_task(self) -> list[str]:
        return list(dict.fromkeys(one.template for one in self.effects if not one.changes_task))

    @property
    def answerable(self) -> list[str]:
        """The templates of the same task that the model can answer; all of them in runs without the check."""
        return [name for name in self.same_task if can_answer(self.skills, name)]


def can_answer(skills: Mapping[str, Skill], template: str) -> bool:
    return not skills or (template in skills and skills[template].shown)


def _over_questions(effect: str, strata: dict[str, np.ndarray]) -> Estimate:
    """The interval of an effect under one template: of answers as a share or a paired difference, else of a mean."""
    if effect == ACCURACY:
        return stratified_share(strata)
    if effect == DISTANCE:  # a mean over three rules
        return Estimate.of(bounded_mean(strata, (-1.0, 1.0)))
    return paired_share(strata)


RightByQuestion = dict[tuple[str, int, int], bool]  # task, question and rule


def templates_summary(records: Sequence[Record]) -> TemplatesSummary | None:
    """None before two templates have answered the same questions."""
    table: dict[tuple[str, str, str, str, int], RightByQuestion] = {}
    for record in records:
        found = record.condition
        rules = RULES if found["questions"] == OF_CONTRAST else 1
        place = found["questions"], found["template"], found["answer"], found["examples"], found["masks"]
        # A letter is no word, though the first token of a word in capitals may be one.
        right = record.correct and not (found["answer"] == "word" and record.predicted.strip() in LETTERS)
        table.setdefault(place, {})[record.task, *divmod(record.point, rules)] = right
    checks = {place[1]: list(right.values()) for place, right in table.items() if place[0] == OF_SKILL}
    level = LEVEL / max(1, len(checks))  # Bonferroni: a guesser passes under any template in 5 % of the runs
    skills = {name: task_skill(sum(right), len(right), CHANCE, level=level) for name, right in checks.items()}
    spread, able, effects = {}, {}, []
    for effect in EFFECTS:
        for answer in ("letter", "word"):
            values = _effect_values(table, effect, answer)
            if values is None:
                continue
            names, by_task = values
            whole = np.concatenate(list(by_task.values()), axis=1)
            bounds = (0.0, 1.0) if effect == ACCURACY else (-1.0, 1.0)
            for number, (name, row) in enumerate(zip(names, whole, strict=True)):
                over = _over_questions(effect, {task: rows[number] for task, rows in by_task.items()})
                effects.append(
                    TemplateEffect(
                        effect=effect,
                        template=name,
                        changes_task=answer == "word",
                        value=float(row.mean()),
                        low=over.low,
                        high=over.high,
                        questions=len(row),
                    )
                )
            if answer == "letter" and len(names) > 1 and whole.shape[1] > 1:
                spread[effect] = template_spread(by_task, bounds)
                kept = [place for place, name in enumerate(names) if can_answer(skills, name)]
                if len(kept) > 1:
                    able[effect] = template_spread({task: rows[kept] for task, rows in by_task.items()}, bounds)
    return TemplatesSummary(spread=spread, able=able, skills=skills, effects=effects) if effects else None


def _effect_values(
    table: Mapping[tuple[str, str, str, str, int], RightByQuestion], effect: str, answer: str
) -> tuple[list[str], dict[str, np.ndarray]] | None:
    """The templates, and by task the effect under each on each question asked under all of them, [T, questions]."""
    questions = OF_CONTRAST if effect == DISTANCE else OF_MASKS
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
