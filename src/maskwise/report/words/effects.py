"""Effects: the change of accuracy from its baseline that each section of a page ends in, with its paired interval."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import UNSET

from maskwise.probes.examples import with_number
from maskwise.probes.section import Point, Section
from maskwise.report.readings import Reading
from maskwise.report.sections import sections_for
from maskwise.report.words.task_skill import in_short, limit
from maskwise.scoring.numbers import NBSP, percent, tenths
from maskwise.scoring.skill import LARGE_LOSS, Skill

# Points. An interval that includes zero and as much as this says nothing, and "at most" would sound as if it did.
LARGE = 100 * LARGE_LOSS
TOO_FEW = "too few questions to tell"
ROUNDED = 0.0005  # accuracies that belong to other points than the paired difference does are not told with it


@dataclass(frozen=True)
class Effect:
    """A change of accuracy, in points. `words` say under what: `with 200 masks in place of 2`.

    before, after: the two accuracies; None where they are of other questions, as in an unfinished run.
    skill: what the answers at the baseline show.
    """

    probe: str
    section: Section
    words: str
    points: float
    low: float
    high: float
    before: float | None
    after: float | None
    skill: Skill | None = None

    @property
    def limit(self) -> Skill | None:
        """What kept a change from being detected: no skill to lose, or questions that are too easy."""
        return None if self.detected else limit(self.skill)

    @property
    def detected(self) -> bool:
        return self.low > 0 or self.high < 0

    @property
    def certain(self) -> float:
        """The least it can be by its interval, whatever its sign; 0 where that includes zero."""
        return max(self.low, -self.high, 0.0)

    @property
    def at_most(self) -> float:
        """The most it can be, whatever its sign."""
        return max(abs(self.low), abs(self.high))

    @property
    def undecided(self) -> bool:
        return undecided(self.low, self.high)

    @property
    def verb(self) -> str:
        return "falls" if self.points < 0 else "rises"

    @property
    def amount(self) -> str:
        return f"{tenths(abs(self.points))}{NBSP}points"

    @property
    def interval(self) -> str:
        """Of the amount: both ends without a sign where both have the same."""
        ends = sorted((abs(self.low), abs(self.high))) if self.detected else [self.low, self.high]
        return f"95{NBSP}% interval {tenths(ends[0])} to {tenths(ends[1])}"

    @property
    def ends(self) -> str:
        """`, from 94 % to 69 %`"""
        if self.before is None or self.after is None:
            return ""
        return f", from {percent(self.before)} to {percent(self.after)}"

    @property
    def heading(self) -> str:
        if self.detected:
            return f"Accuracy {self.verb} by {self.amount} {self.words}"
        if self.limit is not None:
            words = in_short(self.limit)
            return f"{words[0].upper()}{words[1:]}"
        if self.undecided:
            return f"{TOO_FEW.capitalize()} whether accuracy changes {self.words} ({self.interval}{NBSP}points)"
        return f"No change of accuracy detected {self.words}: at most {tenths(self.at_most)}{NBSP}points"


def undecided(low: float, high: float) -> bool:
    """Whether an interval, in points, includes no change and a large one: the run is too small to tell them apart."""
    return low <= 0 <= high and max(-low, high) >= LARGE


def effects_of(reading: Reading) -> list[Effect]:
    """One for each section that draws accuracies with a baseline, in the page's order."""
    found = (effect_of(probe, section, reading) for probe, section in sections_for([reading]))
    return [effect for effect in found if effect is not None]


def heading_of(probe: str, section: Section, readings: Sequence[Reading]) -> str:
    """The finding of a section: its effect, of several models the largest one; empty where it has none."""
    found = [(reading.label, effect_of(probe, section, reading)) for reading in readings]
    told = [(label, effect) for label, effect in found if effect is not None]
    if not told:
        return ""
    largest = by_size([effect for _, effect in told])[0]
    label = next(label for label, effect in told if effect is largest)
    if len(readings) == 1 or not largest.detected:
        return largest.heading
    return f"{label}: {largest.heading[0].lower()}{largest.heading[1:]}"


def by_size(effects: Sequence[Effect]) -> list[Effect]:
    """The largest first: by what is certain of each, then by the estimate. Equal ones stay in their order."""
    return sorted(effects, key=lambda effect: (-effect.certain, -abs(effect.points)))


def effect_of(probe: str, section: Section, reading: Reading) -> Effect | None:
    """Of each curve of the probe its point farthest from its baseline; of these the largest."""
    if "accuracy" not in [measure.key for measure in section.measures]:
        return None
    own = [entry.condition for entry in with_number(reading.entries(probe), section.relevant)]
    points = [point for point in section.points(reading) if point.entry.condition in own]
    curves = list(dict.fromkeys(point.series for point in points))
    found = []
    for series in curves:
        pairs = [(point, base) for point in points if point.series == series and (base := _base(point, points))]
        if pairs:
            found.append(_effect(probe, section, *max(pairs, key=lambda pair: abs(pair[0].x - pair[1].x))))
    return by_size(found)[0] if found else None


def _base(point: Point, points: Sequence[Point]) -> Point | None:
    """The point that this one is compared with, where its difference has an interval."""
    paired = point.entry.paired
    if paired is UNSET or paired.low is None:
        return None
    same = [other for other in points if other.entry.condition == paired.baseline]
    return min(same, key=lambda other: other.series != point.series) if same else None


def _effect(probe: str, section: Section, point: Point, base: Point) -> Effect:
    paired = point.entry.paired
    assert paired is not UNSET and paired.low is not None and paired.high is not None  # `_base` found its baseline
    words = section.effect(point, base) if section.effect is not None else _in_words(section, point, base)
    before, after = base.entry.accuracy, point.entry.accuracy
    same = before is not None and after is not None and abs(after - before - paired.difference) < ROUNDED
    changes = (100 * paired.difference, 100 * paired.low, 100 * paired.high)
    ends = (before, after) if same else (None, None)
    return Effect(probe, section, words, *changes, *ends, base.entry.skill or None)


def _in_words(section: Section, point: Point, base: Point) -> str:
    """What is different between the two: the curve, the place on the x axis, or both."""
    here, there = (section.at.format(_place(section, one)) for one in (point, base))
    if point.series == base.series:
        return f"at {here} in place of {there}" + (f" ({point.series})" if point.series else "")
    if here == there:
        return f"with {point.series} in place of {base.series} (at {here})"
    return f"with {point.series} at {here} in place of {base.series} at {there}"


def _place(section: Section, point: Point) -> str:
    return section.x_names[int(point.x)] if section.x_names else f"{point.x:g}"
