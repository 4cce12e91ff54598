"""The scores of a run as tiles: a number, its interval in words, and the same for a little drawing."""

from collections.abc import Sequence
from dataclasses import dataclass

from maskwise.probes.probe import ScoreRule
from maskwise.probes.summary import scores_shown
from maskwise.report.readings import Reading
from maskwise.report.sentences import nothing_differed
from maskwise.scoring.numbers import NBSP, between, digits_of, percent
from maskwise.scoring.scores import null_score


@dataclass(frozen=True)
class Tile:
    """A score: its number, its interval in words, the same on a scale of -100 % .. 100 % for the little drawing."""

    name: str
    value: str
    interval: str
    meaning: str
    marks: tuple[float, float, float] | None


def tiles(reading: Reading) -> list[Tile]:
    return tiles_of([reading])[0]


def tiles_of(readings: Sequence[Reading]) -> list[list[Tile]]:
    """The tiles of each reading, the same scores in the same order for all."""
    rules: dict[str, ScoreRule] = {}
    for reading in readings:
        rules = {rule.name: rule for rule in scores_shown(reading.summary, reading.probes)} | rules
    return [[score_tile(rule, reading) for rule in rules.values()] for reading in readings]


def score_tile(rule: ScoreRule, reading: Reading) -> Tile:
    score = reading.summary["scores"].get(rule.name, null_score())
    if score["value"] is None:
        return Tile(rule.title, "–", score["why"], rule.meaning, None)
    digits = digits_of(score)
    value = percent(score["value"], digits)
    if score["low"] is None or score["high"] is None:
        return Tile(rule.title, value, "no interval", rule.meaning, None)
    ends = f"95{NBSP}% interval {between(score['low'], score['high'], digits)}"
    interval = nothing_differed(rule.name, reading) or ends
    return Tile(rule.title, value, interval, rule.meaning, (score["low"], score["value"], score["high"]))
