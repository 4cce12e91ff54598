"""The scores of a run as tiles: a number, its interval in words, and the same for a little drawing."""

from collections.abc import Sequence
from dataclasses import dataclass

from maskwise.probes.probe import ScoreRule
from maskwise.probes.summary import scores_shown
from maskwise.report.effects import TOO_FEW
from maskwise.report.readings import Reading
from maskwise.report.sentences import meaning_of, nothing_differed
from maskwise.scoring.numbers import NBSP, digits_of, number, parts_in_words, percent, score_interval, score_value
from maskwise.scoring.scores import NOT_MEASURED, Score, direction, null_score

LARGE_SHARE = 0.5  # an interval that includes zero and half of the skill says nothing (see effects.LARGE)


@dataclass(frozen=True)
class Tile:
    """A score: its number, its interval in words, and the same for the little drawing, which nats have not: on a scale
    of -100 % .. 100 %. One whose interval includes zero was not `detected`: it is grey and says how much it is at most,
    or that there are too few questions to tell.
    """

    name: str
    value: str
    interval: str
    meaning: str
    marks: tuple[float, float, float] | None
    detected: bool = True


def tiles(reading: Reading) -> list[Tile]:
    return tiles_of([reading])[0]


def tiles_of(readings: Sequence[Reading]) -> list[list[Tile]]:
    """The tiles of each reading, the same scores in the same order for all.

    Titles tell numbers of relevant examples apart; a score's name does not: it depends on which numbers a run asked.
    """
    shown = [{rule.title: rule for rule in scores_shown(one.summary, one.probes)} for one in readings]
    rules: dict[str, ScoreRule] = {}
    for own in shown:
        rules = {**own, **rules}
    return [
        [score_tile(own[title], reading) if title in own else _not_measured(rule) for title, rule in rules.items()]
        for own, reading in zip(shown, readings, strict=True)
    ]


def _not_measured(rule: ScoreRule) -> Tile:
    return Tile(rule.title, "–", NOT_MEASURED, rule.meaning, None)


def score_tile(rule: ScoreRule, reading: Reading) -> Tile:
    score = reading.summary["scores"].get(rule.name, null_score())
    if score["value"] is None:
        return Tile(rule.title, "–", score["why"], rule.meaning, None)
    value, meaning = score_value(score, rule.unit), meaning_of(rule, score)
    if score["low"] is None or score["high"] is None:
        return Tile(rule.title, value, "no interval", meaning, None)
    marks = (score["low"], score["value"], score["high"]) if rule.unit == "share" else None
    detected = direction(score) != 0
    told = ["" if detected else _nothing_detected(score, rule.unit),
            f"95{NBSP}% interval {score_interval(score, rule.unit)}", nothing_differed(score),
            parts_in_words(score)]  # fmt: skip
    return Tile(rule.title, value, "; ".join(filter(None, told)), meaning, marks, detected)


def _nothing_detected(score: Score, unit: str) -> str:
    """With the end of the interval farther from zero, without its sign."""
    most = max(abs(score["low"]), abs(score["high"]))
    if unit == "share" and most >= LARGE_SHARE:
        return TOO_FEW
    shown = percent(most, digits_of(score)) if unit == "share" else f"{number(most)}{NBSP}nats"
    return f"nothing detected: at most {shown}"
