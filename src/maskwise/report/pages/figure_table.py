"""The table behind a figure: the numbers of every point that it draws."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from maskwise.probes.section import Entry, Measure, Section, place_in_words
from maskwise.report.figures.panels import in_order
from maskwise.report.readings import Reading
from maskwise.scoring.numbers import between, nats_between, number, percent, points_between


def figure_table(section: Section, readings: Sequence[Reading]) -> dict[str, list[Any]]:
    """Each condition with its place on the x axis, its mask count, the number of answers, and what was measured."""
    points = [(reading.label, point) for reading in readings for point in in_order(section.points(reading))]
    entries = [(label, point.entry) for label, point in points]
    places = [place_in_words(section, point.x) for _, point in points]
    conditions = list(dict.fromkeys(key for _, entry in entries for key in entry.condition if key != "masks"))
    names = {"evidence": "measured", "nll": "NLL (nats)", "nll_allowed": "of it format", "nll_choice": "of it content",
             "confidence": "confidence", "entropy": "entropy (nats)"}  # fmt: skip
    extras = [key for key in names if any(key in entry for _, entry in entries)]
    drawn = [measure for measure in section.measures if measure.key not in (*names, "accuracy")]
    named = [[str(entry.condition.get(key, entry.masks)) for _, entry in entries] for key in (*conditions, "masks")]
    placed = not any(_names_place(values, places) for values in named)
    several, masked = len(readings) > 1, any(entry.masks for _, entry in entries)
    judged = any(entry.accuracy is not None for _, entry in entries)  # a probe may measure likelihoods alone
    tested = judged and any(entry.paired for _, entry in entries)
    in_nats = any(entry.paired and entry.paired.nll for _, entry in entries)
    ruled = any(entry.rules_low is not None for _, entry in entries)
    head = [
        *(["model"] if several else []),
        *conditions,
        *([section.x_label] if placed else []),
        *(measure.label for measure in drawn),
        *(["masks"] if masked else []),
        "questions" if "answers" in conditions else "answers",
        *(["right", "95 % interval"] if judged else []),
        *(["new rules"] if ruled else []),
        *(["against the baseline (points)"] if tested else []),
        *(["against the baseline (nats)"] if in_nats else []),
        *(names[key] for key in extras),
    ]
    rows = [
        [
            *([label] if several else []),
            *(_condition(key, entry.condition.get(key)) for key in conditions),
            *([place] if placed else []),
            *(_with_interval(entry, measure) for measure in drawn),
            *([str(entry.masks)] if masked else []),
            f"{entry.n:,}",
            *([percent(entry.accuracy, 1), between(entry.low, entry.high, 1)] if judged else []),
            *([between(entry.rules_low, entry.rules_high, 1)] if ruled else []),
            *([points_between(p.difference, p.low, p.high) if (p := entry.paired) else "–"] if tested else []),
            *([_nats_from_baseline(entry)] if in_nats else []),
            *(_with_interval(entry, Measure(key, "", f"{key}_low", f"{key}_high", percent=False)) for key in extras),
        ]
        for (label, entry), place in zip(entries, places, strict=True)
    ]
    return {"head": head, "rows": rows}


def _names_place(values: Sequence[str], places: Sequence[str]) -> bool:
    """Whether a column of the table names the places of the x axis: one value for each, and no value for two."""
    return len({*zip(values, places, strict=True)}) == len({*values}) == len({*places})


def _with_interval(entry: Entry, measure: Measure) -> str:
    value, low, high = entry.get(measure.key), entry.get(measure.low), entry.get(measure.high)
    if measure.percent:
        return percent(value, 1) + (f" ({between(low, high, 1)})" if low is not None else "")
    digits = 3 if measure.key == "evidence" else 2
    ends = "" if low is None else f" ({number(low, digits)} to {number(high, digits)})"
    return number(value, digits) + ends


def _nats_from_baseline(entry: Entry) -> str:
    """The change of the whole with its interval, and of its part that is a change of content."""
    paired = entry.paired
    if paired is UNSET or paired.nll is UNSET:
        return "–"
    whole = nats_between(paired.nll.difference, paired.nll.low, paired.nll.high)
    if paired.nll_choice is UNSET:
        return whole
    content = nats_between(paired.nll_choice.difference, paired.nll_choice.low, paired.nll_choice.high)
    return f"{whole}, content {content}"


def _condition(name: str, value: Any) -> str:
    """Examples and layers count from 1 here, as in the figures; in the records from 0."""
    return cell(value + 1 if name in ("example", "layer") and value is not None else value)


def cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(cell, value)) or "none"
    if isinstance(value, dict):
        return "; ".join(f"{key}: {cell(inner)}" for key, inner in value.items()) or "none"
    return str(value)
