"""From a summary's entries to the panels of a figure, by the description of a section."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from msgspec import UNSET

from maskwise.probes.section import ACCURACY, Measure, Point, Section, mark_place
from maskwise.report.figures.curves import Curve, Mark, Panel, covered_by
from maskwise.report.readings import Reading
from maskwise.report.words.task_skill import limit
from maskwise.scoring.intervals import Ends

NOT_JOINED = (
    "Points that no line joins: the model was not shown to be able to do the task, or the task is too easy to show a "
    "loss. They do not show that the condition has no effect."
)
COVERED = "Where curves have equal values, one is drawn wider and shows on either side of the other."


def panels(section: Section, readings: Sequence[Reading]) -> list[Panel]:
    """One model: a curve per series. Several models: a panel per series, a curve per model in each."""
    found = [_beside(section, section.points(one), turn, len(readings)) for turn, one in enumerate(readings)]
    series = list(dict.fromkeys(point.series for points in found for point in points)) or [""]
    limited = _limited(found)
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
            curves=tuple(
                _curve(name, style, own, measure, measure.key != ACCURACY.key or not limited(own))
                for name, style, points in lines
                if (own := having(points, measure))
            ),
            percent=measure.percent,
            chance=measure.chance,
            spread=section.spread,
            x_names=section.x_names,
            scatter=section.scatter,
            marks=tuple(Mark(*one) for one in section.published if section.published_measure in (None, measure.key)),
            diagonal=section.diagonal,
        )
        for measure in measures_of(section, readings)
        for title, lines in facets
    ]


def _beside(section: Section, points: Sequence[Point], model: int, of: int) -> list[Point]:
    """With several models a panel holds one series: its marks at a named place stand next to those of other models."""
    if of == 1 or not section.x_names:
        return list(points)
    return [replace(point, x=mark_place(round(point.x), model, of)) for point in points]


def caption_of(section: Section, drawn: Sequence[Panel]) -> str:
    """The section's caption, without lines and bands where only points are drawn."""
    points = section.caption.replace("Line:", "Point:").replace("band:", "vertical bar:")
    return points if _joined(drawn) == {False} else section.caption


def _joined(drawn: Sequence[Panel]) -> set[bool]:
    return {curve.joined for panel in drawn for curve in panel.curves}


def how_to_read(section: Section, drawn: Sequence[Panel]) -> str:
    joined = _joined(drawn)
    lines = not (section.x_names or section.scatter)
    covered = lines and any(any(covered_by(panel, turn)) for panel in drawn for turn in range(len(panel.curves)))
    said = [[] if joined == {False} else [section.how_to_read], [NOT_JOINED] if False in joined else []]
    return " ".join([*said[0], *said[1], *([COVERED] if covered else [])])


def _limited(found: Sequence[Sequence[Point]]) -> Callable[[Sequence[Point]], bool]:
    """True of a curve whose baseline cannot show a loss and that shows no change: a level line would look like a model
    that the condition leaves alone. Questions on which another model of the page loses are not too easy."""
    lost = any(high is not None and high < 0 for points in found for _, high in _changes(points))

    def limited(curve: Sequence[Point]) -> bool:
        points = next(points for points in found if any(point is curve[0] for point in points))
        bases = [point.entry.paired.baseline for point in curve if point.entry.paired is not UNSET]
        of_bases = [point.entry for point in points if point in curve or point.entry.condition in bases]
        skills = [entry.skill for entry in of_bases if entry.skill is not UNSET]
        changed = any(low is not None and high is not None and not low <= 0 <= high for low, high in _changes(curve))
        return not changed and bool(skills) and all(limit(one) and not (lost and one.shown) for one in skills)

    return limited


def _changes(points: Sequence[Point]) -> list[Ends]:
    return [(point.entry.paired.low, point.entry.paired.high) for point in points if point.entry.paired is not UNSET]


def measures_of(section: Section, readings: Sequence[Reading]) -> list[Measure]:
    """The measures that were taken (records of earlier versions may lack one), or all if there are no points."""
    points = [point for reading in readings for point in section.points(reading)]
    return [measure for measure in section.measures if not points or having(points, measure)]


def having(points: Sequence[Point], measure: Measure) -> list[Point]:
    return [point for point in points if measure.key in point.entry]


def along(points: Sequence[Point], series: str) -> list[Point]:
    """The points of one curve, from left to right."""
    return sorted((point for point in points if point.series == series), key=lambda point: point.x)


def in_order(points: Sequence[Point]) -> list[Point]:
    return [point for series in dict.fromkeys(p.series for p in points) for point in along(points, series)]


def _curve(name: str, style: int, points: list[Point], measure: Measure, joined: bool) -> Curve:
    entries = [point.entry for point in points]
    return Curve(
        name,
        style,
        tuple(point.x for point in points),
        tuple(entry[measure.key] for entry in entries),
        tuple(entry.get(measure.low) for entry in entries),
        tuple(entry.get(measure.high) for entry in entries),
        joined,
    )
