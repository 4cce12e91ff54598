"""The scores of a run as tiles: a number, its interval in words, and the same for a little drawing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from maskwise.probes.examples import RELEVANT
from maskwise.probes.probe import ScoreRule
from maskwise.probes.summary import probes_giving
from maskwise.report.readings import Reading, rules_by_title
from maskwise.report.words.effects import TOO_FEW
from maskwise.report.words.sentences import nothing_differed
from maskwise.report.words.task_skill import in_short, limit_of_score
from maskwise.scoring.numbers import NBSP, digits_of, number, parts_in_words, percent, score_interval, score_value
from maskwise.scoring.scores import NOT_MEASURED, Score, direction

LARGE_SHARE = 0.5  # an interval that includes zero and half of the skill says nothing (see effects.LARGE)


@dataclass(frozen=True)
class Tile:
    """A score: its number, its interval in words, and the same for the little drawing, which nats have not: on a scale
    of -100 % .. 100 %. One whose interval includes zero was not `detected`: it is grey and says how much it is at most,
    or that there are too few questions. `score` is its name in the summary.
    """

    score: str
    name: str
    value: str
    interval: str
    meaning: str
    marks: tuple[float, float, float] | None
    detected: bool = True
    over: str = ""  # the conditions it goes over, where the score says so


def tiles(reading: Reading) -> list[Tile]:
    return tiles_of([reading])[0]


def tiles_of(readings: Sequence[Reading]) -> list[list[Tile]]:
    """The tiles of each reading, the same scores in the same order for all."""
    found: list[list[Tile]] = [[] for _ in readings]
    for title, rules in rules_by_title(readings).items():
        first = next(rule for rule in rules if rule is not None)
        missing = Tile(first.name, title, "–", NOT_MEASURED, first.meaning, None)
        for own, rule, reading in zip(found, rules, readings, strict=True):
            own.append(missing if rule is None else score_tile(rule, reading, readings))
    return found


def asked_differently(scores: Sequence[str], readings: Sequence[Reading]) -> str:
    """What is not the same among the conditions that a score of several models was computed from; empty if nothing is.

    `scores`: its name in each summary. Numbers of relevant examples are left out: each has a score of its own.
    """
    behind = {one.label: _conditions_behind(score, one) for score, one in zip(scores, readings, strict=True)}
    asked = {label: found for label, found in behind.items() if found}
    different = []
    for name in dict.fromkeys(name for found in asked.values() for name in found):
        own = {label: found.get(name, ["none"]) for label, found in asked.items()}
        if len({frozenset(values) for values in own.values()}) > 1:
            different.append(f"{name} " + "; ".join(f"{', '.join(values)} ({label})" for label, values in own.items()))
    return f"Not asked alike: {'. '.join(different)}" if different else ""


def _conditions_behind(score: str, reading: Reading) -> dict[str, list[str]]:
    """The values of each part of the conditions in words: {"masks": ["2", "20"]}; of the last probe that was run."""
    if reading.score(score).value is None:
        return {}
    run = [probe.name for probe in probes_giving(score, reading.probes) if reading.entries(probe.name)]
    if not run:  # its probe is of the new kind
        return {}
    conditions = [entry.condition for entry in reading.entries(run[-1])]
    names = [name for name in dict.fromkeys(name for one in conditions for name in one) if name != RELEVANT]
    words: dict[Any, str] = {None: "none", **reading.probe(run[-1]).condition_words}
    return {"probe": run[-1:]} | {
        name: [str(words.get(value, value)) for value in dict.fromkeys(one.get(name) for one in conditions)]
        for name in names
    }


def score_tile(rule: ScoreRule, reading: Reading, others: Sequence[Reading]) -> Tile:
    score = reading.score(rule.name)
    if score.value is None:
        return Tile(rule.name, rule.title, "–", score.why or "", rule.meaning, None)
    limit = limit_of_score(rule, reading, others)
    if limit is not None:
        return Tile(rule.name, rule.title, "–", in_short(limit), rule.meaning, None, detected=False)
    value, over = score_value(score, rule.unit), score.over or ""
    if score.low is None or score.high is None:
        return Tile(rule.name, rule.title, value, "no interval", rule.meaning, None, over=over)
    marks = (score.low, score.value, score.high) if rule.unit == "share" else None
    detected = direction(score) != 0
    notes = [
        "" if detected else _nothing_detected(score, rule.unit),
        f"95{NBSP}% interval {score_interval(score, rule.unit)}",
        nothing_differed(score),
        parts_in_words(score),
    ]
    return Tile(rule.name, rule.title, value, "; ".join(filter(None, notes)), rule.meaning, marks, detected, over)


def _nothing_detected(score: Score, unit: str) -> str:
    """With the end of the interval farther from zero, without its sign."""
    most = max(abs(score.low or 0.0), abs(score.high or 0.0))
    if unit == "share" and most >= LARGE_SHARE:
        return TOO_FEW
    shown = percent(most, digits_of(score)) if unit == "share" else f"{number(most)}{NBSP}nats"
    return f"nothing detected: at most {shown}"
