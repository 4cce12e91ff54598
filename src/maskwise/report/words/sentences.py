"""Plain sentences from numbers. Each says only what its interval allows: nothing about a score that covers zero."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import UNSET, UnsetType

from maskwise.probes.probe import ScoreRule
from maskwise.probes.section import Measure, Point, Section, Summary, at_place
from maskwise.probes.select_tasks import SUMMARY, in_sentence
from maskwise.probes.summary import probes_giving
from maskwise.report.figures.panels import along, having, measures_of
from maskwise.report.readings import Reading
from maskwise.report.sections import sections_for
from maskwise.report.words.task_skill import TOO_EASY, in_short, limit_of_score
from maskwise.scoring.claims import Claim
from maskwise.scoring.intervals import none_seen
from maskwise.scoring.numbers import (
    NBSP,
    between,
    digits_of,
    number,
    percent,
    points,
    points_between,
    signed,
    task_count,
)
from maskwise.scoring.scores import NO_SKILL, Score, direction
from maskwise.support.grouping import grouped
from maskwise.tasks.episodes import CHANCE

FEW_TASKS = 8
LONGEST_HEADING = 120  # characters
WHAT_TO_DO = "what to do: "  # the beginning of the advice of a section
GUESSING = f"guessing gives 33{NBSP}%, so there is no skill to lose"


@dataclass(frozen=True)
class Sentence:
    topic: str
    claim: str
    evidence: str


# The opening: a sentence for each score that has words, and how sure we are


def opening(reading: Reading, others: Sequence[Reading] = ()) -> list[Sentence]:
    """The sentences of the scores that were measured, then their precision."""
    run, found = {rule.name for rule in scores_run(reading)}, []
    for rule in reading.rules:
        words = rule.sentences
        if words is not None and (rule.name in run or (reading.is_autoregressive and words.autoregressive is not None)):
            found.append(score_sentence(rule, reading, others))
    return [*found, how_sure(reading)]


def scores_run(reading: Reading) -> list[ScoreRule]:
    """The scores whose probes were run; those of other probes are left out, on the page and the terminal."""
    return [
        rule
        for rule in reading.rules
        if any(reading.entries(probe.name) for probe in probes_giving(rule.name, reading.probes))
    ]


def score_sentence(rule: ScoreRule, reading: Reading, others: Sequence[Reading] = ()) -> Sentence:
    """The sentence of a score: what was measured, and the claim that its interval allows."""
    words, score = rule.sentences, reading.summary.scores[rule.name]
    assert words is not None
    if reading.is_autoregressive and words.autoregressive is not None:
        return Sentence(words.topic, *words.autoregressive)
    if score.value is None and score.tasks == []:
        return Sentence(words.topic, "Inconclusive.", f"{score.why}.")
    if score.value is None and score.why != NO_SKILL:
        return Sentence(words.topic, "Not measured.", words.takes)
    seen = words.seen(reading)
    if score.value is None:
        why = words.no_skill(reading) if words.no_skill is not None else NO_SKILL
        return Sentence(words.topic, "Inconclusive.", f"{seen}; {GUESSING if why == NO_SKILL else why}.")
    addition = words.addition(reading) if words.addition is not None else ""
    limit = limit_of_score(rule, reading, others)
    if limit is not None and not limit.shown:
        return Sentence(words.topic, "Inconclusive.", f"{seen}; {in_short(limit)}.{addition}")
    if limit is not None:
        return Sentence(words.topic, f"{TOO_EASY.capitalize()}.", f"{seen}: {cost_or_gain(rule, reading)}.{addition}")
    return Sentence(words.topic, words.claims[direction(score)], f"{seen}: {cost_or_gain(rule, reading)}.{addition}")


def cost_or_gain(rule: ScoreRule, reading: Reading) -> str:
    """`more masks cost 20 % of its skill above guessing, 95 % interval 12 to 27 %`; a loss below zero is a gain."""
    assert rule.sentences is not None
    what, costs, raises = rule.sentences.change
    score = reading.summary.scores[rule.name]
    value, low, high = score.value, score.low, score.high
    assert value is not None  # `claimed` has handled a score without one
    unseen, digits = nothing_differed(score), digits_of(score)
    if unseen:
        return f"{what} {costs} nothing here, 95{NBSP}% interval {between(low, high, 1)}; {unseen}"
    if value >= 0:
        change = f"{what} {costs} {percent(value, digits)} of its skill above guessing"
    else:
        change = f"{what} {raises} its skill above guessing by {percent(-value, digits)}"
        low, high = (None, None) if low is None or high is None else (-high, -low)
    if low is None or high is None:
        return f"{change}, with no interval"
    crosses = "" if direction(score) else ", which includes zero"
    return f"{change}, 95{NBSP}% interval {between(low, high, digits)}{crosses}"


def nothing_differed(score: Score) -> str:
    """Empty, except for a score whose answers are as right or wrong under all its conditions: then how many others may
    not be. A wrong answer that became another wrong one is not counted."""
    if score.value is None or score.differed != 0:
        return ""
    bound = percent(float(none_seen(score.n or 0)), 1)
    return f"0 of {score.n} answers became right or wrong; 95{NBSP}% upper bound {bound}"


def with_conditions(meaning: str, over: str | UnsetType | None) -> str:
    """The definition of a score, with the conditions that it goes over if they are known."""
    return f"{meaning} ({over})" if over else meaning


def how_sure(reading: Reading) -> Sentence:
    topic = "Precision"
    few_shot = [one for probe, one in reading.asked.items() if reading.probe(probe).chance == CHANCE]
    counts = few_shot or list(reading.asked.values())
    tasks, most = max(len(one.tasks) for one in counts), max(one.most for one in counts)
    answers = sum(one.answers for one in reading.asked.values())
    drawn = [(point.entry, one.measures) for _, one in sections_for([reading]) for point in one.points(reading)]
    ends = [(entry.get(of.low), entry.get(of.high)) for entry, measures in drawn for of in measures if of.percent]
    widest = max((one for one in ends if None not in one), key=lambda one: one[1] - one[0], default=None)
    stages = selected_tasks(reading.summary)
    reach = f"; the widest interval on this page is {between(*widest, 1)}" if widest else ""
    ruled = any(entry.rules_low is not None for entry, _ in drawn)
    rules = "; the tables under the figures of word rules have those for new ones" if ruled else ""
    evidence = (
        f"{answers:,} answers, up to {most:,} test points in each of {task_count(tasks)}{reach}. {stages}"
        f"The 95{NBSP}% intervals speak for these tasks with questions drawn afresh{rules}."
    )
    if not reading.manifest.complete:
        return Sentence(topic, "Not yet: the run is unfinished.", evidence)
    if not any_skill(reading):
        nowhere = f"No condition lies clearly above {percent(CHANCE)}."
        return Sentence(topic, "It does no better than guessing.", f"{nowhere} {evidence}")
    if tasks < FEW_TASKS:
        return Sentence(topic, f"Roughly: only {task_count(tasks)} could be averaged.", evidence)
    return Sentence(topic, f"Measured on {task_count(tasks)}.", evidence)


def selected_tasks(summary: Summary) -> str:
    """The tasks that the scores of a run with --select-tasks rest on; empty for any other run."""
    room = summary.extras.get(SUMMARY)
    if room is None:
        return ""
    named = f": {', '.join(room.tasks)}" if room.tasks else ""
    return f"On separate questions {in_sentence(room)}. The scores in percent rest on those with room{named}. "


def any_skill(reading: Reading) -> bool:
    """Whether some few-shot condition lies clearly above guessing (or none was asked, so nothing can be said)."""
    lows = [
        entry.low if entry.low is not None else entry.accuracy or 0.0
        for probe, entries in reading.summary.probes.items()
        if reading.probe(probe).chance == CHANCE
        for entry in entries
    ]
    return not lows or max(lows) > CHANCE


# What a section's figure shows


def verdict_number(claim: Claim) -> str:
    """66.6 %, 57.1 to 76.0; or 1.86 nats, 1.60 to 2.12; of a loss also what there was to lose."""
    share = claim.unit in ("share", "points")
    known = [one for one in (claim.value, claim.low, claim.high) if one is not None]
    value, *ends = [f"{100 * one:.1f}" if share else f"{one:.2f}" for one in known]
    unit = {"share": "\u00a0%", "points": "\u00a0points", "nats": "\u00a0nats", "": ""}[claim.unit]
    skill = "" if claim.skill is UNSET else f", of {100 * claim.skill:.0f}\u00a0%"
    nats = "" if claim.nats is UNSET else f"; {signed(claim.nats.value or 0.0, 2)}{NBSP}nats"
    return f"{value}{unit}{f', {ends[0]} to {ends[1]}' if ends else ''}{skill}{nats}".replace("-", "\u2212")


def what_this_run_shows(section: Section, readings: Sequence[Reading]) -> list[str]:
    """The section's own words or a line per curve, then the verdicts on the paper's claims."""
    if section.says is None:
        own = _line_per_curve(section, readings)
    else:
        said = grouped((line, reading.label) for reading in readings for line in section.says(reading))
        own = [f"{' and '.join(labels)}, {line}" if len(readings) > 1 else line for line, labels in said.items()]
    return own + verdict_lines(section, readings)


def advice_apart(shows: Sequence[str]) -> tuple[list[str], list[str]]:
    """The lines that say what was found, and those that say what to do.

    `tiny-llada, what to do: decode ...` becomes `tiny-llada: decode ...`, and without a name `Decode ...`.
    """
    parts = [line.partition(WHAT_TO_DO) for line in shows if WHAT_TO_DO in line]
    advice = [f"{who.removesuffix(', ')}: {do}" if who else do[:1].upper() + do[1:] for who, _, do in parts]
    return [line for line in shows if WHAT_TO_DO not in line], advice


def verdict_lines(section: Section, readings: Sequence[Reading]) -> list[str]:
    return [line for name in section.claims for line in _verdict(name, section.relevant, readings)]


def finding_of_models(section: Section, by_model: Mapping[str, str], shows: Sequence[str]) -> str:
    """`first_finding`; empty where each model has its own (`findings_by_model`)."""
    return "" if by_model else first_finding(section, shows)


def findings_by_model(section: Section, readings: Sequence[Reading]) -> dict[str, str]:
    """The first finding of each of several models, by label, of a section with words of its own; labels of models with
    the same finding are joined."""
    if section.says is None or len(readings) == 1:
        return {}
    lines = [section.says(reading) if section.points(reading) else [] for reading in readings]
    first = [first_finding(section, own, LONGEST_HEADING * 3 // 4) for own in lines]
    found = grouped((line, one.label) for line, one in zip(first, readings, strict=True) if line)
    return {" and ".join(labels): line for line, labels in found.items()}


def first_finding(section: Section, shows: Sequence[str], longest: int = LONGEST_HEADING) -> str:
    """The heading of a section without a change of accuracy: the first line of what it shows, with the measure's name;
    of a long one the clauses that a heading has room for. Empty where nothing was measured."""
    if not shows or shows[0].endswith("not run"):
        return ""
    named = section.says is not None or shows[0].startswith(tuple(measure.label for measure in section.measures))
    line = shows[0] if named else f"{section.measures[0].label}: {shows[0]}"
    first, *more = re.split(r"(?=[,;] )", line)
    for clause in more:
        if len(first + clause) > longest:
            break
        first += clause
    return f"{first[0].upper()}{first[1:]}"


def _verdict(name: str, relevant: int | None, readings: Sequence[Reading]) -> list[str]:
    """The verdict on a claim for one number of relevant examples: one line, with all models that can judge it.

    Each model has its own measure where these differ: a block diffusion model sees fewer masks.
    """
    found = [
        (reading.label, claim)
        for reading in readings
        for claim in reading.summary.claims or ()
        if (claim.finding, claim.relevant) == (name, relevant)
    ]
    if not found:
        return []
    first = found[0][1]
    if len(readings) == 1:
        return [f"{first.verdict}: {first.claim} ({first.measure}: {verdict_number(first)})"]
    measures = {claim.measure for _, claim in found}
    if len(measures) == 1:
        each = "; ".join(f"{label} {verdict_number(claim)}: {claim.verdict}" for label, claim in found)
        return [f"{first.claim} ({first.measure}): {each}"]
    own = (f"{label} ({claim.measure}) {verdict_number(claim)}: {claim.verdict}" for label, claim in found)
    return [f"{first.claim}: {'; '.join(own)}"]


def _line_per_curve(section: Section, readings: Sequence[Reading]) -> list[str]:
    """The first and last value of each curve, and the change between them; with the measure's name where several
    measures are shares."""
    lines, measures = [], measures_of(section, readings)
    shares = sum(measure.percent for measure in measures)
    for measure in measures:
        named = measure.label if measure.percent and shares > 1 else ""
        for reading in readings:
            found = having(section.points(reading), measure)
            for series in dict.fromkeys(point.series for point in found):
                who = ", ".join(filter(None, [named, reading.label if len(readings) > 1 else "", series]))
                lines.append(_first_to_last(who, along(found, series), measure, section))
    return lines


def _first_to_last(who: str, curve: list[Point], measure: Measure, section: Section) -> str:
    def shown(point: Point) -> str:
        value = point.entry[measure.key]
        return percent(value, 1) if measure.percent else f"{number(value)}{unit}"

    def place(point: Point) -> str:
        return at_place(section, point.x)

    unit = f"{NBSP}{measure.unit}" if measure.unit else ""
    start = f"{who}: " if who else ""
    first, last = ends(curve)
    line = f"{start}{shown(first)} at {place(first)}"
    before, after = first.entry[measure.key], last.entry[measure.key]
    if first is last or before is None or after is None:
        return line
    line += f", {shown(last)} at {place(last)}"
    if not measure.percent:
        return f"{line} ({signed(after - before, 2)}{unit})"
    paired = paired_change(first, last) if measure.key == "accuracy" else ""
    return f"{line} ({paired or points(after - before)})"


def ends(curve: list[Point]) -> tuple[Point, Point]:
    """The first and last point of a curve, or the baseline and the last point where the last has one on the curve."""
    paired = curve[-1].entry.paired
    baseline = None if paired is UNSET else paired.baseline
    return next((point for point in curve if point.entry.condition == baseline), curve[0]), curve[-1]


def paired_change(first: Point, last: Point) -> str:
    """The paired difference between two points with its interval, if one is the other's baseline."""
    for one, other, sign in ((last, first, 1), (first, last, -1)):
        paired = one.entry.paired
        if paired is UNSET or paired.baseline != other.entry.condition:
            continue
        if paired.low is not None and paired.high is not None:
            low, high = sorted((sign * paired.low, sign * paired.high))
            change = points_between(sign * paired.difference, low, high).replace(" (", ", ").removesuffix(")")
            if paired.nll is UNSET or paired.nll_choice is UNSET:
                return change
            return f"{change}; {signed(sign * paired.nll.difference, 2)}{NBSP}nats"
    return ""
