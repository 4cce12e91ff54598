"""Which sections a page has: those of the probes that were run, in the probes' order.

A probe that this version does not know is still shown, by `plain_section`: a curve of accuracy and a table, without
explanations.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from maskwise.probes.examples import PAPER_RELEVANT, RelevantCount, WithNumber, in_words, number_of, numbers_in
from maskwise.probes.section import Entry, Measure, Point, Section, Shown
from maskwise.report.readings import Reading


def sections_for(readings: Sequence[Reading]) -> list[tuple[str, Section]]:
    """(probe, section) in the page's order; probes the page does not know come last."""
    summaries = [reading.summary.probes for reading in readings]
    ran = dict.fromkeys(name for found in summaries for name, entries in found.items() if entries)
    ran = {name: None for name in ran if readings[0].probe(name).measured is None}  # the others: section.py
    probes = [probe for probe in readings[0].probes if probe.name in ran and probe.sections]
    known = [
        (probe.name, one)
        for probe in probes
        for section in probe.sections
        if len(readings) > 1 or not section.side_by_side
        for one in by_number(probe.name, section, readings)
    ]
    names = {probe.name for probe in probes}
    return known + [(name, plain_section(name, readings)) for name in ran if name not in names]


def by_number(probe: str, section: Section, readings: Sequence[Reading]) -> list[Section]:
    """The section once for each number of relevant examples with which the probe was asked."""
    numbers = numbers_in(entry for reading in readings for entry in reading.entries(probe))
    words = {number: in_words(number) if number is not None else unnamed_number(probe, readings) for number in numbers}
    return [_of_number(probe, section, number, words[number], len(numbers) > 1) for number in numbers]


def unnamed_number(probe: str, readings: Sequence[Reading]) -> str:
    """The number of examples if conditions name none: the paper's, or the setting of a run of version 0.1."""
    unnamed = [r for r in readings if any(number_of(entry.condition) is None for entry in r.entries(probe))]
    set_to = [reading.manifest.settings.relevant for reading in unnamed]
    counts = sorted({found if isinstance(found, int) else PAPER_RELEVANT for found in set_to})
    return " or ".join([*map(str, counts[:-1]), in_words(counts[-1])])


def _of_number(probe: str, section: Section, number: RelevantCount, words: str, several: bool) -> Section:
    says, masks = section.says, section.masks
    drawn = "the same for every question" if number is None else "drawn afresh for each question"
    context = f" {words.replace('example', 'relevant example')} in the context, {drawn}."
    return replace(
        section,
        points=lambda shown: section.points(WithNumber(shown, number)),
        says=None if says is None else lambda shown: says(WithNumber(shown, number)),
        masks=None if masks is None else lambda shown: masks(WithNumber(shown, number)),
        relevant=number,
        title=f"{section.title} ({words})" if several else section.title,
        name=f"{section.name or probe}-{number}" if several and number is not None else section.name,
        caption=section.caption + context if several or number is not None else section.caption,
    )


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


def _cells(entry: Entry) -> dict[str, Any]:
    """A condition with its mask count last, so that another number that varies is preferred for the x axis."""
    named = {key: value for key, value in entry.condition.items() if key != "masks"}
    return {**named, "masks": entry.masks}
