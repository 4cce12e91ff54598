"""What is said where a run cannot show a loss: the model was not shown to do the task, or the task is too easy.

Every page, table, card and advice takes its words from here; scoring/skill.py decides.
"""

from collections.abc import Sequence

from msgspec import UNSET

from maskwise.probes.examples import PAPER_RELEVANT, main_records, with_number
from maskwise.probes.probe import ScoreRule
from maskwise.probes.summary import probes_giving, score_rules
from maskwise.report.readings import Reading, differing_settings
from maskwise.scoring.changes import SAME_QUESTIONS
from maskwise.scoring.numbers import percent
from maskwise.scoring.scores import direction
from maskwise.scoring.skill import Skill

NOT_SHOWN = "not shown to be able to do the task"
TOO_EASY = "too easy to show a loss"
NOTHING_LOST = "so nothing can be lost"
ASK_MORE = "Too few questions to tell whether it can do the task: ask more (--points)."
TRY_NEXT = (
    "More questions will not help. What to try: --chat for an Instruct model, other words (--words), or the "
    "likelihoods (nats), which need no right answer."
)
TRY_HARDER = (
    "What to try: fewer relevant examples or more distractors (--relevant, --distractors), other words (--words), or "
    "the likelihoods (nats), which have no ceiling."
)


def limit(skill: Skill | None) -> Skill | None:
    """The skill where it keeps a loss from being shown; None where it does not, or is not known."""
    return None if skill is None or skill.skill == "skilled" else skill


def count_right(skill: Skill) -> str:
    """`0 of 35 right, guessing gives 33 %`"""
    guessing = f", guessing gives {percent(skill.guessing)}" if skill.guessing else ""
    return f"{skill.right:,} of {skill.n:,} right{guessing}"


def in_short(skill: Skill) -> str:
    """A limiting skill in a few words, for a heading or a table."""
    if skill.shown:
        return f"{TOO_EASY}: {skill.right:,} of {skill.n:,} right at the baseline"
    return f"{NOT_SHOWN}: {count_right(skill)}"


def conclusion(skill: Skill, label: str = "", place: str = "at the baseline") -> str:
    """The first sentence of a run that cannot show a loss. place: where these answers are right."""
    start = f"{label}: " if label else ""
    if skill.shown:
        return f"{start}{skill.right:,} of {skill.n:,} right {place} and no loss detected: {TOO_EASY}."
    return f"{start}{count_right(skill)}: {NOT_SHOWN}, {NOTHING_LOST}."


def next_steps(skill: Skill) -> str:
    if skill.skill == "undecided":
        return ASK_MORE
    if skill.skill == "saturated":
        return TRY_HARDER
    return TRY_NEXT


def about_skill(skill: Skill, label: str = "") -> str:
    return f"{conclusion(skill, label)} {next_steps(skill)}"


def limit_of_run(reading: Reading) -> Skill | None:
    """The skill that keeps the run from showing a loss at its main baseline."""
    return limit(reading.summary.skill or None)


def asked_alike(one: Reading, other: Reading) -> bool:
    return not {*SAME_QUESTIONS} & {*differing_settings([one, other])}


def limit_of_score(rule: ScoreRule, reading: Reading, others: Sequence[Reading] = ()) -> Skill | None:
    """What keeps a score of accuracy from being above zero; None where it is, or where nothing does.

    others: models of the same page. Questions on which one of them loses are not too easy; it must have been asked the
    same questions.
    """
    score = reading.score(rule.name)
    if rule.unit != "share" or score.value is None or direction(score):
        return None
    run = [probe.name for probe in probes_giving(rule.name, reading.probes) if reading.entries(probe.name)]
    entries = reading.entries(run[-1]) if run else []
    if rule.name in score_rules(reading.probes):
        entries = list(main_records(entries))
    else:
        number = int(rule.name.rsplit("_", 1)[1])
        entries = list(with_number(entries, None if number == PAPER_RELEVANT else number))
    found = limit(next((entry.skill for entry in entries if entry.skill is not UNSET), None))
    alike = [one for one in others if asked_alike(reading, one)]
    lost = any(direction(one.score(rule.name)) > 0 for one in alike)
    return None if found is not None and found.shown and lost else found
