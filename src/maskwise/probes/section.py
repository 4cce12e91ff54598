"""How a probe's measurements are shown: the figure, its words, and tables for the terminal. All of it is data.

The report draws from these values and knows no probe by name.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from maskwise.tasks.episodes import CHANCE

Entry = dict[str, Any]  # a condition of a probe in a run's summary, with what was measured under it

OVER_TASKS = "Line: mean over tasks; band: 95 % interval for these tasks, with questions drawn afresh."
MASKS_AT_THE_END = "Masks at the end (k)"
K_EQUALS = "k\u00a0=\u00a0{}"


class Shown(Protocol):
    """A run as a section sees it."""

    @property
    def summary(self) -> dict[str, Any]: ...

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


def in_nats(key: str, label: str) -> Measure:
    return Measure(key, label, f"{key}_low", f"{key}_high", percent=False)


def as_share(key: str, label: str) -> Measure:
    return Measure(key, label, f"{key}_low", f"{key}_high")


@dataclass(frozen=True)
class Point:
    """One measured condition: which curve it belongs to, where on the x axis it stands, and the summary's entry."""

    series: str
    x: float
    entry: Entry


@dataclass(frozen=True)
class Section:
    """All the page says about a probe. `points` gives the figure's points; curves and sentences follow from them.

    at: words for a place on the x axis in a sentence. spread: small counts are widened on the axis. x_names: names of
    places that are no numbers. name: tells two sections of one probe apart. says: sentences for a figure that is no
    curve. side_by_side: shown only where models are compared. claims: which claims of the summary are told here, of the
    number of relevant examples `relevant` (probes/examples.py). masks: says how many masks there were where entries'
    counts do not. effect: words for the change from a baseline to a point, such as `with 200 masks in place of 2`.
    published: values of the paper at places of the x axis, in the figure's own unit, each with the name beside it.
    """

    title: str
    question: str
    paper: str
    how_to_read: str
    x_label: str
    at: str
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


@dataclass(frozen=True)
class TextTable:
    """A table for the terminal; the first column is text, the others are numbers."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def curve(probe: str, x: str, series: str = "", name: str = "{}") -> Callable[[Shown], list[Point]]:
    """Points along one entry of the condition, a curve for each value of another (`series`), worded by `name`."""

    def points(shown: Shown) -> list[Point]:
        return [
            Point(name.format(entry["condition"][series]) if series else "", entry["condition"][x], entry)
            for entry in shown.entries(probe)
        ]

    return points


def named_curves(probe: str, x: str, series: str, names: dict[str, str]) -> Callable[[Shown], list[Point]]:
    """Points along one entry of the condition, curves in the order and by the names given."""

    def points(shown: Shown) -> list[Point]:
        return [
            Point(name, entry["condition"][x], entry)
            for value, name in names.items()
            for entry in shown.entries(probe)
            if entry["condition"][series] == value
        ]

    return points


def by_masks(probe: str, name: str = "") -> Callable[[Shown], list[Point]]:
    """One curve along the number of masks."""
    return lambda shown: [Point(name, entry["masks"], entry) for entry in shown.entries(probe)]
