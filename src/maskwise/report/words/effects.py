"""Effects: the changes of accuracy from a baseline that a page's sections draw, with their paired intervals.

A run draws many of them, and a heading states the largest of a section. So a change counts as detected only where it is
significant by Holm's procedure over all changes of the run, as claims are judged (scoring/claims.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import UNSET

from maskwise.probes.examples import with_number
from maskwise.probes.section import Point, Section, at_place
from maskwise.report.readings import Reading
from maskwise.report.sections import sections_for
from maskwise.report.words.task_skill import in_short, limit
from maskwise.scoring.claims import LEVEL, holm_adjusted
from maskwise.scoring.numbers import NBSP, percent, tenths
from maskwise.scoring.skill import LARGE_LOSS, Skill

# Points. An interval that includes zero and as much as this says nothing, and "at most" would sound as if it did.
LARGE = 100 * LARGE_LOSS
TOO_FEW = "inconclusive: too few questions"
ROUNDED = 0.0005  # accuracies of other points than the paired difference are left out


@dataclass(frozen=True)
class Change:
    """A change of accuracy, in points, with the ends of its interval."""

    points: float
    low: float
    high: float

    @property
    def excludes_zero(self) -> bool:
        return not self.low <= 0 <= self.high

    @property
    def detected(self) -> bool:
        return self.excludes_zero

    @property
    def at_most(self) -> float:
        """The largest size by its interval."""
        return max(abs(self.low), abs(self.high))

    @property
    def undecided(self) -> bool:
        """Neither no change nor a large one is excluded: there were too few questions."""
        return not self.detected and self.at_most >= LARGE

    @property
    def amount(self) -> str:
        return f"{tenths(abs(self.points))}{NBSP}points"

    @property
    def interval(self) -> str:
        """The interval of the amount: without signs if both ends have the same."""
        ends = sorted((abs(self.low), abs(self.high))) if self.excludes_zero else [self.low, self.high]
        return f"95{NBSP}% interval {tenths(ends[0])} to {tenths(ends[1])}"


@dataclass(frozen=True)
class Effect(Change):
    """`words` say under what accuracy changed: `with 200 masks instead of 2`.

    before, after: the two accuracies; None where they are of other questions, as in an unfinished run. p: two-sided,
    of no change; `adjusted` by Holm's procedure over the changes of the run. skill: what the answers
    at the baseline show.
    """

    probe: str
    section: Section
    words: str
    before: float | None
    after: float | None
    p: float
    adjusted: float = 1.0
    skill: Skill | None = None

    @property
    def limit(self) -> Skill | None:
        """The skill that kept a change from being detected: none to lose, or questions that are too easy."""
        return None if self.detected else limit(self.skill)

    @property
    def test(self) -> tuple[str, int | None, str]:
        """The comparison by probe, number of relevant examples and conditions."""
        return self.probe, self.section.relevant, self.words

    @property
    def detected(self) -> bool:
        return self.excludes_zero and self.adjusted < LEVEL

    @property
    def certain(self) -> float:
        """The smallest size by its interval; 0 if not detected."""
        return max(self.low, -self.high) if self.detected else 0.0

    @property
    def ends(self) -> str:
        """`, from 94 % to 69 %`"""
        if self.before is None or self.after is None:
            return ""
        return f", from {percent(self.before)} to {percent(self.after)}"

    @property
    def heading(self) -> str:
        if self.detected:
            return f"Accuracy {'falls' if self.points < 0 else 'rises'} by {self.amount} {self.words}"
        if self.limit is not None:
            words = in_short(self.limit)
            return f"{words[0].upper()}{words[1:]}"
        if self.undecided:
            unknown = f"whether accuracy changes {self.words}"
            return f"Inconclusive {unknown}: too few questions ({self.interval}{NBSP}points)"
        return f"No significant change of accuracy {self.words}: at most {tenths(self.at_most)}{NBSP}points"


def effects_of(reading: Reading) -> list[Effect]:
    """The largest of each section that draws accuracies with a baseline, in the page's order."""
    return [by_size(found)[0] for found in judged_effects(sections_for([reading]), reading) if found]


def headings(sections: Sequence[tuple[str, Section]], readings: Sequence[Reading]) -> list[str]:
    """The heading of each section: its largest significant change; empty where accuracies have no baseline."""
    of_models = [judged_effects(sections, reading) for reading in readings]
    labels = [reading.label for reading in readings]
    return [_heading(list(zip(labels, of_section, strict=True))) for of_section in zip(*of_models, strict=True)]


def _heading(found: Sequence[tuple[str, Sequence[Effect]]]) -> str:
    """`found`: the effects of each model."""
    of_all = [(label, effect) for label, effects in found for effect in effects]
    if not of_all:
        return ""
    largest = by_size([effect for _, effect in of_all])[0]
    if len(of_all) == 1 or (largest.detected and len(found) == 1):
        return largest.heading
    able = [(label, effect) for label, effect in of_all if effect.limit is None]
    stated = [(label, effect) for label, effect in of_all if effect is largest] if largest.detected else able
    if not able and not largest.detected:
        return largest.heading
    if len(stated) == 1:
        ((label, effect),) = stated
        return f"{label}: {effect.heading[0].lower()}{effect.heading[1:]}" if len(found) > 1 else effect.heading
    most = f"{tenths(max(effect.at_most for _, effect in able))}{NBSP}points"
    if any(effect.undecided for _, effect in able):
        return f"Inconclusive whether accuracy changes: too few questions (95{NBSP}% intervals reach {most})"
    return f"No significant change of accuracy in {len(able)} comparisons: at most {most}"


def judged_effects(sections: Sequence[tuple[str, Section]], reading: Reading) -> list[list[Effect]]:
    """The effects of each section (`_of_curves`), with their adjusted p-values.

    A change that several sections draw is one test.
    """
    found = [_of_curves(probe, section, reading) for probe, section in sections]
    tests = {one.test: one.p for effects in found for one in effects}
    adjusted = dict(zip(tests, holm_adjusted(list(tests.values())), strict=True))
    return [[replace(one, adjusted=adjusted[one.test]) for one in effects] for effects in found]


def by_size(effects: Sequence[Effect]) -> list[Effect]:
    """The largest first: by what is certain of each, then by the estimate. Equal ones stay in their order."""
    return sorted(effects, key=lambda effect: (-effect.certain, -abs(effect.points)))


def _of_curves(probe: str, section: Section, reading: Reading) -> list[Effect]:
    """The effect of each curve of the probe, at the point farthest from its baseline. Where baselines are another
    curve's points at the same places, the effect at every place, unless the section has words for the first alone."""
    if "accuracy" not in [measure.key for measure in section.measures]:
        return []
    own = [entry.condition for entry in with_number(reading.entries(probe), section.relevant)]
    points = [point for point in section.points(reading) if point.entry.condition in own]
    found = []
    for series in dict.fromkeys(point.series for point in points):
        pairs = [(point, base) for point in points if point.series == series and (base := _base(point, points))]
        farthest = max((abs(point.x - base.x) for point, base in pairs), default=0)
        chosen = [(point, base) for point, base in pairs if abs(point.x - base.x) == farthest]
        found += [_effect(probe, section, *pair) for pair in (chosen[:1] if farthest or section.effect else chosen)]
    return found


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
    p = 1.0 if paired.p is None else paired.p
    return Effect(*changes, probe, section, words, *ends, p, skill=base.entry.skill or None)


def _in_words(section: Section, point: Point, base: Point) -> str:
    """The difference between two points in words: the curve, the x value, or both."""
    here, there = (at_place(section, one.x) for one in (point, base))
    if point.series == base.series:
        return f"at {here} instead of {there}" + (f" ({point.series})" if point.series else "")
    if here == there:
        return f"with {point.series} instead of {base.series} (at {here})"
    return f"with {point.series} at {here} instead of {base.series} at {there}"
