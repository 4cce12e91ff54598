"""The first screen of a page: what was found, in one sentence, and the chart of what masks did to the accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass

from maskwise.probes.examples import in_words, main_records, numbers_in
from maskwise.probes.filler import NAME as FILLER
from maskwise.probes.filler import filler_name, strictest
from maskwise.probes.mask_count import NAME as MASK_COUNT
from maskwise.probes.published import EXPECTATIONS
from maskwise.probes.section import MASKS_AT_THE_END, Entry
from maskwise.probes.summary import scores_shown
from maskwise.report.figures import Curve, Mark, Panel
from maskwise.report.readings import Reading
from maskwise.report.sentences import score_sentence
from maskwise.scoring.numbers import NBSP, tenths
from maskwise.scoring.scores import direction

CAPTION = (
    "What more masks do to the accuracy: its change from that with 2 masks, in points, on the same questions. Bands: "
    "95 % intervals, paired. Open marks: the end points that the paper states for its 8B models (arXiv 2511.21338)."
)


@dataclass(frozen=True)
class Change:
    """Of the accuracy, in points, against the fewest masks or fillers, with its interval."""

    count: int
    points: float
    low: float
    high: float


@dataclass(frozen=True)
class Finding:
    sentence: str
    panel: Panel | None


def finding(readings: Sequence[Reading]) -> Finding:
    """Of one run its largest effect; of several what masks do to those models that were asked about it."""
    curves = [(reading, changes(main_records(reading.entries(MASK_COUNT)))) for reading in readings]
    told = [(reading, curve) for reading, curve in curves if len(curve) > 1]
    if len(readings) == 1:
        sentence = largest_effect(readings[0])
    else:
        sentence = about_masks([(reading.label, curve) for reading, curve in told]) if told else ""
    return Finding(sentence, mask_chart(told, alone=len(readings) == 1) if told else None)


# In one sentence


def largest_effect(reading: Reading) -> str:
    """The score with the most of its range taken, of those whose interval excludes zero, in its own words."""
    scores = reading.summary["scores"]
    rules = [rule for rule in scores_shown(reading.summary, reading.probes) if rule.sentences and rule.unit == "share"]
    seen = [rule for rule in rules if scores[rule.name]["value"] is not None and direction(scores[rule.name])]
    if not seen:
        return "Nothing was detected: no score's interval excludes zero."
    told = score_sentence(max(seen, key=lambda rule: abs(scores[rule.name]["value"])), reading)
    return f"{told.claim} {told.evidence}"


def about_masks(told: Sequence[tuple[str, Sequence[Change]]]) -> str:
    """What the most masks do to each model, the largest loss first."""
    by_loss = sorted(told, key=lambda one: one[1][-1].points)
    sentence = "; ".join(_in_words(label, curve[-1]) for label, curve in by_loss)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _in_words(label: str, last: Change) -> str:
    many = f"{last.count} masks in place of 2"
    if last.low <= 0 <= last.high:
        return f"with {many} no change was detected in {label} (at most {tenths(-last.low)}{NBSP}points lost)"
    verb = "take" if last.points < 0 else "give"
    low, high = sorted((abs(last.low), abs(last.high)))
    amount = f"{tenths(abs(last.points))}{NBSP}points of accuracy, 95{NBSP}% interval {tenths(low)} to {tenths(high)}"
    return f"{many} {verb} {label} {amount}"


# The chart


def mask_chart(told: Sequence[tuple[Reading, Sequence[Change]]], alone: bool) -> Panel:
    """A curve for each model; a model alone has its fillers beside."""
    first = told[0][0]
    curves = [_curve(reading.label, style, curve) for style, (reading, curve) in enumerate(told)]
    entries = strictest(main_records(first.entries(FILLER)))
    fillers = changes([entry | {"masks": entry["condition"]["fillers"]} for entry in entries])
    if alone and len(fillers) > 1:
        curves = [_curve("masks", 0, told[0][1]),
                  _curve(f"{filler_name(entries[-1]['condition']['filler'])} instead", 1, fillers)]  # fmt: skip
    longest = max(change.count for _, curve in told for change in curve)
    marks = [
        Mark(_together(list(expected.values)), expected.at, tuple(100 * value for value in expected.values.values()))
        for expected in EXPECTATIONS
        if expected.probe == MASK_COUNT and expected.at is not None and expected.at <= longest
    ]
    asked = numbers_in(first.entries(MASK_COUNT))[:1]
    title = f"{in_words(asked[0])} in the context" if asked else ""
    return Panel(title, MASKS_AT_THE_END, "Change of accuracy (points)", tuple(curves), percent=False, spread=True,
                 marks=tuple(marks), points=True)  # fmt: skip


def _together(models: Sequence[str]) -> str:
    """LLaDA-8B-Base and LLaDA-8B-Instruct as LLaDA-8B (Base, Instruct)."""
    family = models[0].rsplit("-", 1)[0]
    return f"{family} ({', '.join(model.removeprefix(f'{family}-') for model in models)})"


def changes(entries: Sequence[Entry]) -> list[Change]:
    """From the fewest masks on, which the others are paired with; empty where nothing was paired."""
    ordered = sorted(entries, key=lambda entry: entry["masks"])
    paired = [entry for entry in ordered if entry.get("paired", {}).get("low") is not None]
    if not paired:
        return []
    start = [entry for entry in ordered if entry["condition"] == paired[0]["paired"]["baseline"]]
    found = [Change(entry["masks"], 0.0, 0.0, 0.0) for entry in start]
    for entry in paired:
        difference, low, high = (100 * entry["paired"][key] for key in ("difference", "low", "high"))
        found.append(Change(entry["masks"], difference, low, high))
    return sorted(found, key=lambda change: change.count)


def _curve(name: str, style: int, found: Sequence[Change]) -> Curve:
    return Curve(
        name,
        style,
        tuple(change.count for change in found),
        tuple(change.points for change in found),
        tuple(change.low for change in found),
        tuple(change.high for change in found),
    )
