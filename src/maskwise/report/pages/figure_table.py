"""The table behind a figure: the numbers of every point that it draws."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from maskwise.probes.section import Entry, Measure, Section, place_in_words
from maskwise.report.figures.panels import in_order
from maskwise.report.readings import Reading
from maskwise.scoring.numbers import between, nats_between, number, percent, points_between

# Further measures of an entry, and what they are called in the table.
EXTRAS = {
    "evidence": "measured",
    "nll": "NLL (nats)",
    "nll_allowed": "of it format",
    "nll_choice": "of it content",
    "confidence": "confidence",
    "entropy": "entropy (nats)",
}


def figure_table(section: Section, readings: Sequence[Reading]) -> dict[str, list[Any]]:
    """Each condition with its place on the x axis, its mask count, the number of answers, and what was measured."""
    points = [(reading.label, point) for reading in readings for point in in_order(section.points(reading))]
    entries = [point.entry for _, point in points]
    places = [place_in_words(section, point.x) for _, point in points]
    conditions = list(dict.fromkeys(key for entry in entries for key in entry.condition if key != "masks"))
    extras = [key for key in EXTRAS if any(key in entry for entry in entries)]
    drawn = [measure for measure in section.measures if measure.key not in (*EXTRAS, "accuracy")]
    drawn_last = [Measure(key, EXTRAS[key], f"{key}_low", f"{key}_high", percent=False) for key in extras]
    named = [[str(entry.condition.get(key, entry.masks)) for entry in entries] for key in (*conditions, "masks")]
    placed = not any(_names_place(values, places) for values in named)
    judged = any(entry.accuracy is not None for entry in entries)  # a probe may measure likelihoods alone
    tested = judged and any(entry.paired for entry in entries)
    in_nats = any(entry.paired and entry.paired.nll for entry in entries)
    ruled = any(entry.rules_low is not None for entry in entries)
    columns: list[tuple[bool, str, list[str]]] = [  # whether it is shown, its head, its cells
        (len(readings) > 1, "model", [label for label, _ in points]),
        *((True, key, [_condition(key, entry.condition.get(key)) for entry in entries]) for key in conditions),
        (placed, section.x_label, places),
        *((True, measure.label, [_with_interval(entry, measure) for entry in entries]) for measure in drawn),
        (any(entry.masks for entry in entries), "masks", [str(entry.masks) for entry in entries]),
        (True, "questions" if "answers" in conditions else "answers", [f"{entry.n:,}" for entry in entries]),
        (judged, "right", [percent(entry.accuracy, 1) for entry in entries]),
        (judged, "95 % interval", [between(entry.low, entry.high, 1) for entry in entries]),
        (ruled, "new rules", [between(entry.rules_low, entry.rules_high, 1) for entry in entries]),
        (tested, "against the baseline (points)", [_points_from_baseline(entry) for entry in entries]),
        (in_nats, "against the baseline (nats)", [_nats_from_baseline(entry) for entry in entries]),
        *((True, measure.label, [_with_interval(entry, measure) for entry in entries]) for measure in drawn_last),
    ]
    cells = [own for shown, _, own in columns if shown]
    return {
        "head": [head for shown, head, _ in columns if shown],
        "rows": [list(row) for row in zip(*cells, strict=True)],
    }


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


def _points_from_baseline(entry: Entry) -> str:
    paired = entry.paired
    return points_between(paired.difference, paired.low, paired.high) if paired else "–"


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


def cell(value: Any, missing: str = "–", colon: str = ":") -> str:
    """A value of JSON in words; missing: of null, colon: after the names of an object."""
    if value is None:
        return missing
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(cell(one, missing, colon) for one in value) or "none"
    if isinstance(value, dict):
        return "; ".join(f"{name}{colon} {cell(one, missing, colon)}" for name, one in value.items()) or "none"
    return str(value)
