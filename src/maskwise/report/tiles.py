"""The scores of a run as tiles: a number, its interval in words, and the same for a little drawing."""

from dataclasses import dataclass

from maskwise.probes.probe import ScoreRule
from maskwise.probes.summary import score_rules
from maskwise.report.readings import Reading
from maskwise.report.sentences import meaning_of, nothing_differed
from maskwise.scoring.numbers import NBSP, parts_in_words, score_interval, score_value


@dataclass(frozen=True)
class Tile:
    """A score: its number, its interval in words, and the same for the little drawing, which nats have not: on a scale
    of -100 % .. 100 %."""

    name: str
    value: str
    interval: str
    meaning: str
    marks: tuple[float, float, float] | None


def tiles(reading: Reading) -> list[Tile]:
    return [score_tile(rule, reading) for rule, _ in score_rules(reading.probes).values()]


def score_tile(rule: ScoreRule, reading: Reading) -> Tile:
    score = reading.summary["scores"][rule.name]
    if score["value"] is None:
        return Tile(rule.title, "–", score["why"], rule.meaning, None)
    value, meaning = score_value(score, rule.unit), meaning_of(rule, score)
    if score["low"] is None or score["high"] is None:
        return Tile(rule.title, value, "no interval", meaning, None)
    marks = (score["low"], score["value"], score["high"]) if rule.unit == "share" else None
    told = [f"95{NBSP}% interval {score_interval(score, rule.unit)}", nothing_differed(score), parts_in_words(score)]
    return Tile(rule.title, value, "; ".join(filter(None, told)), meaning, marks)
