"""From a summary's entries to the panels of a figure, by the description of a section."""

from collections.abc import Sequence

from maskwise.probes.section import Measure, Point, Section
from maskwise.report.figures.curves import Curve, Mark, Panel
from maskwise.report.readings import Reading


def panels(section: Section, readings: Sequence[Reading]) -> list[Panel]:
    """One model: a curve per series. Several models: a panel per series, a curve per model in each."""
    found = [section.points(reading) for reading in readings]
    series = list(dict.fromkeys(point.series for points in found for point in points)) or [""]
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
                _curve(name, style, own, measure) for name, style, points in lines if (own := having(points, measure))
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


def measures_of(section: Section, readings: Sequence[Reading]) -> list[Measure]:
    """Those that were taken: records of earlier versions may lack one. All of them where nothing was measured."""
    points = [point for reading in readings for point in section.points(reading)]
    return [measure for measure in section.measures if not points or having(points, measure)]


def having(points: Sequence[Point], measure: Measure) -> list[Point]:
    return [point for point in points if measure.key in point.entry]


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
