"""The chart of the first screen: what masks, and fillers in their place, did to the accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import UNSET

from maskwise.probes.examples import in_words, main_records, numbers_in
from maskwise.probes.probe import Probe
from maskwise.probes.published import EXPECTATIONS
from maskwise.probes.section import MASKS_AT_THE_END, Entry
from maskwise.report.figures.curves import Curve, Mark, Panel
from maskwise.report.readings import Reading
from maskwise.report.words.effects import Change


@dataclass(frozen=True)
class MaskChange(Change):
    """The change from the fewest masks or fillers to so many."""

    count: int


def mask_chart(of_models: Sequence[tuple[Reading, Sequence[MaskChange]]], order: Sequence[str]) -> Panel:
    """A curve for each model, coloured by its position in `order`, the models of the page; a single model also has a
    curve of its fillers."""
    first, alone = of_models[0][0], len(order) == 1
    curves = [_curve(reading.label, order.index(reading.label), curve) for reading, curve in of_models]
    main, *others = [first.probe(name) for name in leading(first)]
    second = next((probe for probe in others if alone and len(_changes(first, probe)) > 1), None)
    shown = [main] if second is None else [main, second]
    if second is not None:
        curves = [_curve(_name(first, probe), style, _changes(first, probe)) for style, probe in enumerate(shown)]
    longest = max(change.count for _, curve in of_models for change in curve)
    asked = numbers_in(first.entries(main.name))[:1]
    title = f"{in_words(asked[0])} in the context" if asked else ""
    axis = f"{MASKS_AT_THE_END.removesuffix(' (k)')}, or masks and fillers" if second else MASKS_AT_THE_END
    return Panel(
        title,
        axis,
        "Change of accuracy (points)",
        tuple(curves),
        percent=False,
        spread=True,
        marks=tuple(_published(shown, longest)),
        points=True,
    )


def leading(reading: Reading) -> list[str]:
    """The probes of the first screen by their `lead`: the one it is about, then those drawn with it."""
    leads = [(probe.name, probe.lead) for probe in reading.probes if probe.lead is not None]
    main = [name for name, lead in leads if lead.main][:1]
    return main + [name for name, lead in leads if main and not lead.main]


def main_entries(reading: Reading) -> Sequence[Entry]:
    """The entries of the first screen's probe for the main number of relevant examples."""
    return [entry for name in leading(reading)[:1] for entry in main_records(reading.entries(name))]


def _changes(reading: Reading, probe: Probe) -> list[MaskChange]:
    entries = main_records(reading.entries(probe.name))
    return changes(probe.lead.entries(entries)) if probe.lead is not None and entries else []


def _name(reading: Reading, probe: Probe) -> str:
    return "" if probe.lead is None else probe.lead.name(main_records(reading.entries(probe.name)))


def _published(probes: Sequence[Probe], longest: int) -> list[Mark]:
    """The paper's end points within the chart: of the main probe in no colour, of others in that of their curve."""
    found = []
    by_name = {probe.name: probe.lead for probe in probes}
    for expected in EXPECTATIONS:
        lead = by_name.get(expected.probe)
        if lead is not None and expected.at is not None and expected.at <= longest:
            name = next(iter(expected.values)).rsplit("-", 1)[0]  # LLaDA-8B for its Base and Instruct
            mark = Mark(name, expected.at, tuple(100 * value for value in expected.values.values()))
            found.append(mark if lead.main else replace(mark, name=f"{name}{lead.published}", style=1))
    return found


def changes(entries: Sequence[Entry]) -> list[MaskChange]:
    """From the fewest masks on, which the others are paired with; empty where nothing was paired."""
    ordered = sorted(entries, key=lambda entry: entry.masks)
    found: list[MaskChange] = []
    for entry in ordered:
        paired = entry.paired
        if paired is UNSET or paired.low is None or paired.high is None:
            continue
        if not found:
            start = [one for one in ordered if one.condition == paired.baseline]
            found += [MaskChange(0.0, 0.0, 0.0, one.masks) for one in start]
        found.append(MaskChange(100 * paired.difference, 100 * paired.low, 100 * paired.high, entry.masks))
    return sorted(found, key=lambda change: change.count)


def _curve(name: str, style: int, found: Sequence[MaskChange]) -> Curve:
    x, y, low, high = zip(*((one.count, one.points, one.low, one.high) for one in found), strict=True)
    return Curve(name, style, x, y, low, high)
