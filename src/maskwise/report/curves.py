"""From a summary's entries to the panels of a figure, by the description of a section."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from maskwise.report.figures import Curve, Panel
from maskwise.report.readings import Reading
from maskwise.tasks.episodes import CHANCE

OVER_TASKS = "Line: mean over tasks; band: 95 % interval over tasks."


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


ACCURACY = Measure("accuracy", "Right answers", chance=CHANCE)


@dataclass(frozen=True)
class Point:
    """One measured condition: which curve it belongs to, where on the x axis it stands, and the summary's entry."""

    series: str
    x: float
    entry: dict[str, Any]


@dataclass(frozen=True)
class Section:
    """All the page says about a probe. `points` gives the figure's points; curves and sentences follow from them.

    `at` words a place on the x axis in a sentence; `spread` widens small counts on it; `x_names` are places that are
    no numbers. `name` tells two sections of one probe apart; `says` words a figure that is no curve; `side_by_side` is
    shown only where models are compared; `claims` names those of the summary that are told here.
    """

    probe: str
    title: str
    question: str
    paper: str
    how_to_read: str
    x_label: str
    at: str
    points: Callable[[Reading], list[Point]]
    measures: tuple[Measure, ...] = (ACCURACY,)
    caption: str = OVER_TASKS
    spread: bool = False
    x_names: tuple[str, ...] = ()
    scatter: bool = False
    name: str = ""
    side_by_side: bool = False
    says: Callable[[Reading], list[str]] | None = None
    claims: tuple[str, ...] = ()


def panels(section: Section, readings: Sequence[Reading]) -> list[Panel]:
    """One model: a curve per series. Several models: a panel per series, a curve per model in each."""
    found = [section.points(reading) for reading in readings]
    series = list(dict.fromkeys(point.series for points in found for point in points))
    if len(readings) == 1:
        facets = [("", [(name, i, along(found[0], name)) for i, name in enumerate(series)])]
    else:
        facets = [
            (name, [(reading.label, i, along(found[i], name)) for i, reading in enumerate(readings)]) for name in series
        ]
    return [
        Panel(
            title=title,
            x_label=section.x_label,
            y_label=measure.label,
            curves=tuple(_curve(name, style, points, measure) for name, style, points in lines if points),
            percent=measure.percent,
            chance=measure.chance,
            spread=section.spread,
            x_names=section.x_names,
            scatter=section.scatter,
        )
        for measure in section.measures
        for title, lines in facets
    ]


def along(points: Sequence[Point], series: str) -> list[Point]:
    """The points of one curve, from left to right."""
    return sorted((point for point in points if point.series == series), key=lambda point: point.x)


def in_order(points: Sequence[Point]) -> list[Point]:
    """All points, curve by curve."""
    return [point for series in dict.fromkeys(p.series for p in points) for point in along(points, series)]


def _curve(name: str, style: int, points: list[Point], measure: Measure) -> Curve:
    entries = [point.entry for point in points]
    return Curve(
        name,
        style,
        tuple(point.x for point in points),
        tuple(entry[measure.key] for entry in entries),
        tuple(entry.get(measure.low) for entry in entries),
        tuple(entry.get(measure.high) for entry in entries),
    )
