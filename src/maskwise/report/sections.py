"""Which sections a page has: those of the probes that were run, in the probes' order.

A probe that this version does not know is still shown, by `plain_section`: a curve of accuracy and a table, without
explanations.
"""

from collections.abc import Sequence
from typing import Any

from maskwise.probes.section import Measure, Point, Section, Shown
from maskwise.report.readings import Reading


def sections_for(readings: Sequence[Reading]) -> list[tuple[str, Section]]:
    """(probe, section) in the page's order; probes the page does not know come last."""
    summaries = [reading.summary["probes"] for reading in readings]
    ran = dict.fromkeys(name for found in summaries for name, entries in found.items() if entries)
    probes = [probe for probe in readings[0].probes if probe.name in ran and probe.sections]
    known = [
        (probe.name, section)
        for probe in probes
        for section in probe.sections
        if len(readings) > 1 or not section.side_by_side
    ]
    names = {probe.name for probe in probes}
    return known + [(name, plain_section(name, readings)) for name in ran if name not in names]


def plain_section(probe: str, readings: Sequence[Reading]) -> Section:
    """A probe the page has no words for: accuracy along the first number that varies, a curve per other setting."""
    cells = [_cells(entry) for reading in readings for entry in reading.entries(probe)]
    keys = list(dict.fromkeys(key for row in cells for key in row))
    varying = [key for key in keys if len({row.get(key) for row in cells}) > 1]
    numeric = [key for key in varying if all(isinstance(row.get(key), int | float) for row in cells)]
    x = numeric[0] if numeric else "masks"

    def points(shown: Shown) -> list[Point]:
        return [
            Point(", ".join(f"{key} {row.get(key)}" for key in varying if key != x), row[x], entry)
            for entry in shown.entries(probe)
            for row in [_cells(entry)]
        ]

    return Section(
        title=probe.replace("-", " ").capitalize(),
        question="",
        paper="",
        how_to_read="The line is the accuracy, the band its 95 % interval.",
        x_label=x,
        at=x.replace("{", "{{").replace("}", "}}") + " {}",
        points=points,
        measures=(Measure("accuracy", "Accuracy"),),
        caption="",
    )


def _cells(entry: dict[str, Any]) -> dict[str, Any]:
    """A condition with its mask count last, so that another number that varies is preferred for the x axis."""
    named = {key: value for key, value in entry["condition"].items() if key != "masks"}
    return {**named, "masks": entry["masks"]}
