"""The first screen of a page: what was found, in one sentence; the chart of what masks and fillers did to the accuracy;
three numbers with their intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import UNSET, structs

from maskwise.probes.examples import in_words, main_records, numbers_in
from maskwise.probes.probe import Probe
from maskwise.probes.published import EXPECTATIONS
from maskwise.probes.section import MASKS_AT_THE_END, Entry
from maskwise.records.groups import values_of
from maskwise.report.figures.curves import Curve, Mark, Panel
from maskwise.report.figures.panels import panels
from maskwise.report.readings import Reading, differing_settings
from maskwise.report.words.effects import TOO_FEW, Effect, by_size, effects_of, undecided
from maskwise.scoring.changes import of_probe, paired_values
from maskwise.scoring.numbers import NBSP, tenths
from maskwise.scoring.scores import mean_score

PAPER = "Open marks: the end points that the paper (arXiv 2511.21338) states for these models, Base above Instruct."
CAPTION = (
    "What masks, and fillers in their place, do to the accuracy: its change from that with 2 masks or no fillers, in "
    f"points, on the same questions. Bands: 95 % intervals, paired. {PAPER}"
)
MODELS_CAPTION = (
    "What masks do to the accuracy of each model: its change from that with 2 masks, in points, on the same questions. "
    f"Bands: 95 % intervals, paired. {PAPER}"
)
NUMBERS = 3


@dataclass(frozen=True)
class Change:
    """Of the accuracy, in points, against the fewest masks or fillers, with its interval."""

    count: int
    points: float
    low: float
    high: float

    @property
    def detected(self) -> bool:
        return not self.low <= 0 <= self.high


@dataclass(frozen=True)
class ChartNumber:
    """One of the numbers beside the chart. Where nothing was `detected` it is grey, and says how much it is at most, or
    that there are too few questions.

    curve: the number of the curve whose end it is, where models are told apart by colour.
    """

    value: str
    interval: str
    what: str
    detected: bool
    curve: int | None = None


@dataclass(frozen=True)
class Finding:
    """`beside`: of how many changes the sentence tells one, or a larger one. `caption` is that of the chart."""

    sentence: str
    panel: Panel | None
    caption: str = CAPTION
    numbers: tuple[ChartNumber, ...] = ()
    beside: str = ""


def finding(readings: Sequence[Reading], compared: bool = False) -> Finding:
    """Of one run its largest effect; of several what masks do to those models that were asked about it.
    `compared`: whether that differs from what they do to the first."""
    curves = [(reading, changes(main_entries(reading))) for reading in readings]
    told = [(reading, curve) for reading, curve in curves if len(curve) > 1]
    panel = mask_chart(told, alone=len(readings) == 1) if told else None
    if len(readings) == 1:
        return _of_one(readings[0], panel)
    if told:
        labelled = [(reading.label, curve) for reading, curve in told]
        verdicts = [verdict(told[0][0], reading) for reading, _ in told[1:]] if compared else []
        sentence = " ".join(filter(None, verdicts)) or about_masks(labelled)
        return Finding(sentence, panel, MODELS_CAPTION, _of_models(told), _larger_than_masks(readings))
    each = [(reading.label, by_size(effects_of(reading))[:1]) for reading in readings]
    return Finding(" ".join(_sentence(label, effect) for label, first in each for effect in first), None)


def _of_one(reading: Reading, panel: Panel | None) -> Finding:
    effects = by_size(effects_of(reading))
    if not effects:
        return Finding("Nothing was compared with a baseline yet.", panel)
    first = effects[0]
    caption = CAPTION
    if panel is None:
        panel, caption = panels(first.section, [reading])[0], first.section.caption
    return Finding(
        largest_effect(reading.label, effects), panel, caption, _three(effects, leading(reading)), _of_how_many(effects)
    )


# In one sentence


def largest_effect(label: str, effects: Sequence[Effect]) -> str:
    """The first of the effects, which come by their size."""
    if effects[0].detected:
        return _sentence(label, effects[0])
    most = max(effect.at_most for effect in effects)
    undecided = sum(effect.undecided for effect in effects)
    if undecided == len(effects):
        return (
            f"Inconclusive: this run is too small to show what changes the accuracy of {label}: each 95{NBSP}% "
            f"interval includes zero, one reaches {tenths(most)}{NBSP}points."
        )
    if undecided:
        return (
            f"No significant change was detected in {label}, but {undecided} of {len(effects)} changes are "
            f"inconclusive: an interval reaches {tenths(most)}{NBSP}points."
        )
    return f"No significant change was detected in {label}: its accuracy changes by at most {tenths(most)}{NBSP}points."


def _sentence(label: str, effect: Effect) -> str:
    words = f"{effect.words[0].upper()}{effect.words[1:]}"
    if effect.detected:
        change = f"{effect.verb} by {effect.amount}{effect.ends} ({effect.interval})"
        return f"{words} the accuracy of {label} {change}."
    if effect.undecided:
        unknown = f"whether the accuracy of {label} changes {effect.words}"
        return f"Inconclusive {unknown}: too few questions ({effect.interval}{NBSP}points)."
    return f"{words} no significant change was detected in {label} (at most {tenths(effect.at_most)}{NBSP}points)."


def _of_how_many(effects: Sequence[Effect]) -> str:
    if len(effects) == 1:
        return "The one change from a baseline that this run measured."
    return (
        f"The largest significant one by the end of its interval nearest to zero, of {len(effects)} changes from a "
        "baseline, one for each section below. Significant: at 5 % by Holm's procedure over all changes of the run. "
        "Each interval is for its change alone."
    )


def _larger_than_masks(readings: Sequence[Reading]) -> str:
    """The largest effect of several runs, where it is none of masks: the first sentence is about those."""
    each = [(effect, reading.label) for reading in readings for effect in effects_of(reading)]
    if not each:
        return ""
    first = by_size([effect for effect, _ in each])[0]
    label = next(label for effect, label in each if effect is first)
    if first.probe in leading(readings[0])[:1] or not first.detected:
        return ""
    sentence = _sentence(label, first)
    return f"Larger than that: {sentence[0].lower()}{sentence[1:]}"


def about_masks(told: Sequence[tuple[str, Sequence[Change]]]) -> str:
    """What the most masks do to each model, the largest loss first."""
    by_loss = sorted(told, key=lambda one: one[1][-1].points)
    sentence = "; ".join(_in_words(label, curve[-1]) for label, curve in by_loss)
    return f"{sentence[0].upper()}{sentence[1:]}."


def verdict(first: Reading, second: Reading) -> str:
    """Whether masks take less from the second model; empty where the two were not asked the same."""
    apart = difference_of_changes(first, second)
    if apart is None:
        return ""
    masks = f"{apart.count} masks in place of 2"
    if undecided(apart.low, apart.high):
        return (
            f"Inconclusive whether {masks} take more or less from {second.label} than from {first.label}: too few "
            f"questions (95{NBSP}% interval {tenths(apart.low)} to {tenths(apart.high)}{NBSP}points, paired)."
        )
    if not apart.detected:
        most = tenths(max(abs(apart.low), abs(apart.high)))
        return (
            f"No difference was detected between what {masks} do to {second.label} and to {first.label} (at most "
            f"{most}{NBSP}points)."
        )
    low, high = sorted((abs(apart.low), abs(apart.high)))
    amount = f"{tenths(abs(apart.points))}{NBSP}points {'less' if apart.points > 0 else 'more'}"
    return (
        f"{masks} take {amount} from {second.label} than from {first.label} (95{NBSP}% interval {tenths(low)} to "
        f"{tenths(high)}, paired)."
    )


def _in_words(label: str, last: Change) -> str:
    many = f"{last.count} masks in place of 2"
    if undecided(last.low, last.high):
        interval = f"95{NBSP}% interval {tenths(last.low)} to {tenths(last.high)}{NBSP}points"
        return f"inconclusive whether {many} change the accuracy of {label}: too few questions ({interval})"
    if not last.detected:
        return f"with {many} no change was detected in {label} (at most {tenths(-last.low)}{NBSP}points lost)"
    verb = "take" if last.points < 0 else "give"
    low, high = sorted((abs(last.low), abs(last.high)))
    amount = f"{tenths(abs(last.points))}{NBSP}points of accuracy, 95{NBSP}% interval {tenths(low)} to {tenths(high)}"
    return f"{many} {verb} {label} {amount}"


# Three numbers


def _three(effects: Sequence[Effect], charted: Sequence[str]) -> tuple[ChartNumber, ...]:
    """What the chart shows, and the largest of the others; the largest first."""
    shown = [next((one for one in effects if one.probe == probe), None) for probe in charted]
    drawn = [effect for effect in shown if effect is not None]
    others = [effect for effect in effects if effect.probe not in charted]
    chosen = drawn + others[: NUMBERS - len(drawn)]
    return tuple(
        _number(one.points, one.low, one.high, f"Accuracy {one.words}", one.detected) for one in by_size(chosen)
    )


def _of_models(told: Sequence[tuple[Reading, Sequence[Change]]]) -> tuple[ChartNumber, ...]:
    """What the most masks do to each model, the largest loss first; of two that were asked the same also the difference
    of these."""
    found = []
    for style, (reading, curve) in sorted(enumerate(told), key=lambda one: one[1][1][-1].points):
        last = curve[-1]
        what = f"{reading.label}, {last.count} masks in place of 2"
        found.append(replace(_number(last.points, last.low, last.high, what), curve=style))
    if len(told) == 2:
        first, second = (reading for reading, _ in told)
        apart = difference_of_changes(first, second)
        if apart is not None:
            found.append(
                _number(apart.points, apart.low, apart.high, f"Difference: {second.label} less {first.label}, paired")
            )
    return tuple(found)


def difference_of_changes(first: Reading, second: Reading) -> Change | None:
    """What the most masks do to the second model less what they do to the first, question by question; None where they
    were not asked the same."""
    if differing_settings([first, second]):
        return None
    sides = []
    for reading in (first, second):
        records = main_records([record for name in leading(reading)[:1] for record in of_probe(reading.run, name)])
        counts = values_of(records, "masks")
        if 2 not in counts or counts[-1] == 2:
            return None
        few, many = ([r for r in records if r.condition["masks"] == count] for count in (2, counts[-1]))
        before = {(record.task, record.point): float(record.correct) for record in few}
        changed = [
            structs.replace(r, correct=float(r.correct) - before[r.task, r.point])
            for r in many
            if (r.task, r.point) in before
        ]
        sides.append((counts[-1], changed))
    (most, ours), (same, theirs) = sides
    strata = paired_values(theirs, ours, "correct")
    if most != same or not strata:
        return None
    score = mean_score(strata, bounds=(-2.0, 2.0))
    if score.value is None or score.low is None or score.high is None:
        return None
    return Change(most, 100 * score.value, 100 * score.low, 100 * score.high)


def _number(points: float, low: float, high: float, what: str, significant: bool = True) -> ChartNumber:
    """`significant`: among the other changes of the run, where the number is one of them."""
    excludes_zero = not low <= 0 <= high
    value = f"{tenths(points)}{NBSP}points" if points <= 0 else f"+{tenths(points)}{NBSP}points"
    interval = f"95{NBSP}% interval {tenths(low)} to {tenths(high)}"
    if undecided(low, high):
        interval = f"{TOO_FEW} ({interval}{NBSP}points)"
    elif not excludes_zero:
        interval = f"nothing detected: at most {tenths(max(abs(low), abs(high)))}{NBSP}points ({interval})"
    elif not significant:
        interval = f"not significant among the changes of this run ({interval})"
    return ChartNumber(value, interval, what, excludes_zero and significant)


# The chart


def mask_chart(told: Sequence[tuple[Reading, Sequence[Change]]], alone: bool) -> Panel:
    """A curve for each model; a model alone has its fillers beside."""
    first = told[0][0]
    curves = [_curve(reading.label, style, curve) for style, (reading, curve) in enumerate(told)]
    main, *others = [first.probe(name) for name in leading(first)]
    beside = next((probe for probe in others if alone and len(_changes(first, probe)) > 1), None)
    shown = [main] if beside is None else [main, beside]
    if beside is not None:
        curves = [_curve(_name(first, probe), style, _changes(first, probe)) for style, probe in enumerate(shown)]
    longest = max(change.count for _, curve in told for change in curve)
    asked = numbers_in(first.entries(main.name))[:1]
    title = f"{in_words(asked[0])} in the context" if asked else ""
    axis = f"{MASKS_AT_THE_END.removesuffix(' (k)')}, or masks and fillers" if beside else MASKS_AT_THE_END
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
    """The probes of the first screen by their `lead`: the one it is about, then those drawn beside it."""
    leads = [(probe.name, probe.lead) for probe in reading.probes if probe.lead is not None]
    main = [name for name, lead in leads if lead.main][:1]
    return main + [name for name, lead in leads if main and not lead.main]


def main_entries(reading: Reading) -> Sequence[Entry]:
    """Of the probe that the first screen is about, those of the main number of relevant examples."""
    return [entry for name in leading(reading)[:1] for entry in main_records(reading.entries(name))]


def _changes(reading: Reading, probe: Probe) -> list[Change]:
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
            name = _together(list(expected.values))
            mark = Mark(name, expected.at, tuple(100 * value for value in expected.values.values()))
            found.append(mark if lead.main else replace(mark, name=f"{name}{lead.published}", style=1))
    return found


def _together(models: Sequence[str]) -> str:
    """LLaDA-8B-Base and LLaDA-8B-Instruct as LLaDA-8B."""
    return models[0].rsplit("-", 1)[0]


def changes(entries: Sequence[Entry]) -> list[Change]:
    """From the fewest masks on, which the others are paired with; empty where nothing was paired."""
    ordered = sorted(entries, key=lambda entry: entry.masks)
    found: list[Change] = []
    for entry in ordered:
        paired = entry.paired
        if paired is UNSET or paired.low is None or paired.high is None:
            continue
        if not found:
            start = [one for one in ordered if one.condition == paired.baseline]
            found += [Change(one.masks, 0.0, 0.0, 0.0) for one in start]
        found.append(Change(entry.masks, 100 * paired.difference, 100 * paired.low, 100 * paired.high))
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
