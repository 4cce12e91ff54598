"""How a probe's measurements are shown: the figure, its words, and tables for the terminal. All of it is data.

The report draws from these values and knows no probe by name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Protocol

from msgspec import UNSET, Meta, UnsetType, field

from maskwise.records.manifest import RunSettings
from maskwise.records.record import Condition, Evidence, Record
from maskwise.scoring.changes import Difference, NatsDifference
from maskwise.scoring.claims import Claim
from maskwise.scoring.power import DetectableDifference
from maskwise.scoring.scores import Score
from maskwise.scoring.skill import Skill
from maskwise.support.typed import Count, Typed
from maskwise.tasks.episodes import CHANCE


class PublishedValue(Typed, frozen=True, kw_only=True):
    """A value that the paper states, with the one measured."""

    probe: str
    measure: str
    unit: str
    model: str
    published: float
    value: float
    low: float | None
    high: float | None


class Paired(Difference, frozen=True, kw_only=True):
    """The difference of a condition from its baseline over the same questions."""

    baseline: Annotated[dict[str, Any], Meta(description="the condition compared with")]
    nll: Annotated[NatsDifference | UnsetType, Meta(description="the same in nats")] = UNSET
    nll_allowed: Annotated[NatsDifference | UnsetType, Meta(description="of the format")] = UNSET
    nll_choice: Annotated[NatsDifference | UnsetType, Meta(description="of the content")] = UNSET


class Entry(Typed, frozen=True, kw_only=True):
    """A condition of a probe in a run's summary, with what was measured under it.

    measures: what the probe alone measures, by name; in JSON they are fields like the others.
    """

    OPEN = "measures"

    condition: Annotated[dict[str, Any], Meta(description="what the probe varies")]
    masks: Annotated[Count, Meta(description="masks that the model saw, mean of the records")]
    n: Annotated[Count, Meta(description="records")]
    accuracy: Annotated[float | None, Meta(description="share of right answers, all tasks weighing the same")]
    low: Annotated[float | None, Meta(description="lower end of the 95 % interval")]
    high: Annotated[float | None, Meta(description="upper end")]
    rules_low: Annotated[float | None, Meta(description="lower end of the interval over new word rules")] = None
    rules_high: Annotated[float | None, Meta(description="upper end")] = None
    confidence: Annotated[float | UnsetType, Meta(description="mean probability of what was predicted")] = UNSET
    entropy: Annotated[float | UnsetType, Meta(description="mean, in nats")] = UNSET
    visible: Annotated[Count | UnsetType, Meta(description="block diffusion: masks that the answers see, mean")] = UNSET
    nll: Annotated[float | UnsetType | None, Meta(description="mean -log P(right answer), nats")] = UNSET
    nll_low: Annotated[float | UnsetType | None, Meta(description="lower end")] = UNSET
    nll_high: Annotated[float | UnsetType | None, Meta(description="upper end")] = UNSET
    nll_allowed: Annotated[float | UnsetType | None, Meta(description="of the format")] = UNSET
    nll_allowed_low: Annotated[float | UnsetType | None, Meta(description="lower end")] = UNSET
    nll_allowed_high: Annotated[float | UnsetType | None, Meta(description="upper end")] = UNSET
    nll_choice: Annotated[float | UnsetType | None, Meta(description="of the content")] = UNSET
    nll_choice_low: Annotated[float | UnsetType | None, Meta(description="lower end")] = UNSET
    nll_choice_high: Annotated[float | UnsetType | None, Meta(description="upper end")] = UNSET
    paired: Annotated[Paired | UnsetType, Meta(description="the difference from the baseline condition")] = UNSET
    skill: Annotated[Skill | UnsetType, Meta(description="of a baseline: whether it can show a loss")] = UNSET
    measures: Annotated[dict[str, Any], Meta(description="further measures of the probe, each a field")] = field(
        default_factory=dict
    )


class Summary(Typed, frozen=True, kw_only=True):
    """The numbers of a run: what `maskwise diagnose --json` prints.

    extras: what single probes add, by the names in their `Probe.extras`; in JSON they are fields like the others.
    """

    OPEN = "extras"

    model: Annotated[str, Meta(description="the model's name")]
    out: Annotated[str, Meta(description="the run folder")]
    settings: Annotated[RunSettings, Meta(description="as in manifest.json")]
    not_visible: Annotated[dict[str, list[Count]] | UnsetType, Meta(description="as in manifest.json")] = UNSET
    finding: Annotated[str | UnsetType, Meta(description="the first sentence of the report")] = UNSET
    skill: Annotated[
        Skill | UnsetType, Meta(description="whether the run can show a loss: right answers at its main baseline")
    ] = UNSET
    scores: Annotated[
        dict[str, Score], Meta(description="each score by its name; locality_1 is that of one relevant example")
    ]
    probes: Annotated[dict[str, list[Entry]], Meta(description="each probe's conditions")]
    extras: Annotated[dict[str, Any], Meta(description="further results of single probes, each a field")] = field(
        default_factory=dict
    )
    claims: Annotated[list[Claim] | UnsetType, Meta(description="the papers' claims, judged")] = UNSET
    power: Annotated[
        list[DetectableDifference] | UnsetType,
        Meta(description="of each probe: the smallest difference that so many questions detect"),
    ] = UNSET
    published: Annotated[
        list[PublishedValue] | UnsetType, Meta(description="with --paper: published and measured values")
    ] = UNSET
    other_format: Annotated[
        str | UnsetType, Meta(description="with --paper: how the prompt format differs from the paper's")
    ] = UNSET


OVER_TASKS = "Line: mean over tasks; band: 95 % interval for these tasks, with questions drawn afresh."
MARKS_APART, MARKS_SPAN = 0.3, 0.8  # at most, of the way from one named place to the next: two marks, and all of them
MASKS_AT_THE_END = "Masks at the end (k)"
WITH_MASKS, WITH_ONE_MASK = "{} masks", "{} mask"


class Shown(Protocol):
    """A run as a section sees it."""

    @property
    def summary(self) -> Summary: ...

    @property
    def is_autoregressive(self) -> bool: ...

    def entries(self, probe: str) -> list[Entry]: ...


@dataclass(frozen=True)
class Measure:
    """A column of the summary that can be drawn; `low` and `high` name the ends of its interval."""

    key: str
    label: str
    low: str = "low"
    high: str = "high"
    percent: bool = True
    chance: float | None = None
    unit: str = "nats"


ACCURACY = Measure("accuracy", "Accuracy", chance=CHANCE)


def in_unit(unit: str, key: str, label: str) -> Measure:
    return Measure(key, label, f"{key}_low", f"{key}_high", percent=False, unit=unit)


in_nats = partial(in_unit, "nats")


def as_share(key: str, label: str) -> Measure:
    return Measure(key, label, f"{key}_low", f"{key}_high")


@dataclass(frozen=True)
class Point:
    """One measured condition: which curve it belongs to, where on the x axis it stands, and the summary's entry."""

    series: str
    x: float
    entry: Entry


@dataclass(frozen=True, kw_only=True)
class Section:
    """All the page says about a probe. `points` gives the figure's points; curves and sentences follow from them.

    at: words for a place on the x axis in a sentence. spread: small counts are widened on the axis. x_names: names of
    places that are no numbers. name: tells two sections of one probe apart. says: sentences for a figure that is no
    curve. side_by_side: shown only where models are compared. claims: which claims of the summary are shown, of the
    number of relevant examples `relevant` (probes/examples.py). masks: says how many masks there were where entries'
    counts do not. effect: words for the change from a baseline to a point, such as `with 200 masks in place of 2`.
    published: values of the paper at places of the x axis, in the figure's own unit, each with the name next to it;
    published_measure: the key of the measure they are values of, where there are several.
    diagonal: both axes are shares from 0 to 1, and the line on which they are equal is drawn.
    """

    title: str
    question: str
    paper: str = "Not in the paper."
    how_to_read: str
    x_label: str
    at: str = "{}"
    points: Callable[[Shown], list[Point]]
    measures: tuple[Measure, ...] = (ACCURACY,)
    caption: str = OVER_TASKS
    spread: bool = False
    x_names: tuple[str, ...] = ()
    scatter: bool = False
    name: str = ""
    side_by_side: bool = False
    says: Callable[[Shown], list[str]] | None = None
    claims: tuple[str, ...] = ()
    relevant: int | None = None
    masks: Callable[[Shown], str] | None = None
    effect: Callable[[Point, Point], str] | None = None
    published: tuple[tuple[str, float, tuple[float, ...]], ...] = ()
    published_measure: str | None = None
    diagonal: bool = False


over_masks = partial(Section, x_label=MASKS_AT_THE_END, at=WITH_MASKS, spread=True)


@dataclass(frozen=True)
class Lead:
    """A probe's part of the first screen of the page: a curve of the change of accuracy.

    entries: those of the curve, of one number of relevant examples, with `masks` as the place on the x axis.
    name: of the curve, if it is drawn next to the main one. main: the screen is about this probe; the first other one
    is drawn next to it. published: added to the names of the paper's values. advice: what to do, from a run's records.
    """

    entries: Callable[[Sequence[Entry]], Sequence[Entry]]
    name: Callable[[Sequence[Entry]], str]
    main: bool = False
    published: str = ""
    advice: Callable[[Sequence[Record]], str | None] | None = None


@dataclass(frozen=True)
class TextTable:
    """A table for the terminal; the first column is text, the others are numbers."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def mark_place(place: float, series: int, of: int) -> float:
    """The x position of the mark of one of several series or models at a named place, next to the others'."""
    return place + min(MARKS_APART, MARKS_SPAN / of) * (series - (of - 1) / 2)


def place_in_words(section: Section, x: float) -> str:
    """A place of the x axis: its name, wherever around it the mark stands, or its number."""
    return section.x_names[round(x)] if section.x_names else f"{x:.3g}" if section.diagonal else f"{x:g}"


def at_place(section: Section, x: float) -> str:
    """`200 masks`, `location 20`: a place of the x axis as the section words it."""
    words = WITH_ONE_MASK if section.at == WITH_MASKS and x == 1 else section.at
    return words.format(place_in_words(section, x))


def drawn_entry(condition: Condition, n: int, measures: Evidence, masks: int = 0) -> Entry:
    """An entry made for a figure alone, of `n` records."""
    return Entry(condition=condition, masks=masks, n=n, accuracy=None, low=None, high=None, measures=measures)


def without_accuracy(entry: Entry) -> Entry:
    """For figures and tables of other measures: what a record counts as right is none of them."""
    return entry.changed(accuracy=None, low=None, high=None, rules_low=None, rules_high=None)


def curve(probe: str, x: str, series: str = "", name: str = "{}") -> Callable[[Shown], list[Point]]:
    """Points along one entry of the condition, a curve for each value of another (`series`), worded by `name`."""

    def points(shown: Shown) -> list[Point]:
        return [
            Point(name.format(entry.condition[series]) if series else "", entry.condition[x], entry)
            for entry in shown.entries(probe)
        ]

    return points


def named_curves(
    probe: str, x: str, series: str, names: dict[str, str], first: int = 0
) -> Callable[[Shown], list[Point]]:
    """Points along one entry of the condition, counted from `first`; curves in the order and by the names given."""

    def points(shown: Shown) -> list[Point]:
        return [
            Point(name, first + entry.condition[x], entry)
            for value, name in names.items()
            for entry in shown.entries(probe)
            if entry.condition[series] == value and x in entry.condition
        ]

    return points


def by_masks(probe: str, name: str = "") -> Callable[[Shown], list[Point]]:
    """One curve along the number of masks."""
    return lambda shown: [Point(name, entry.masks, entry) for entry in shown.entries(probe)]
