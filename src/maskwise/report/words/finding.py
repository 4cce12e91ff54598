"""The first screen of a page: what was found, in one sentence; the chart of what masks and fillers did to the accuracy;
three numbers with their intervals."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from msgspec import structs

from maskwise.probes.examples import in_words
from maskwise.probes.section import Summary
from maskwise.report.figures.curves import Panel
from maskwise.report.figures.panels import panels
from maskwise.report.readings import Reading, sections_of
from maskwise.report.words.both_ends import difference_of_changes, judged_at_most_masks, verdict
from maskwise.report.words.effects import LARGE, TOO_FEW, Change, Effect, by_size, effects_of
from maskwise.report.words.mask_chart import MaskChange, changes, leading, main_entries, mask_chart
from maskwise.report.words.task_skill import about_skill, asked_alike, conclusion, limit_of_run, next_steps
from maskwise.scoring.numbers import NBSP, tenths
from maskwise.scoring.skill import Skill
from maskwise.support.grouping import grouped

PAPER = "Open marks: changes stated in the paper (arXiv 2511.21338) for the models named there, Base above Instruct."
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
class ChartNumber:
    """A number next to the chart. If nothing was `detected` it is grey, with an upper bound or "too few questions".

    curve: the number of its curve, if the models have different colours.
    """

    value: str
    interval: str
    what: str
    detected: bool
    curve: int | None = None


@dataclass(frozen=True)
class Finding:
    """The first screen. `note`: the number of changes that the headline was chosen from, or a larger effect.
    `caption`: of the chart. `steps`: what to try if a model cannot show a loss."""

    headline: str
    panel: Panel | None
    caption: str = CAPTION
    numbers: tuple[ChartNumber, ...] = ()
    note: str = ""
    steps: str = ""

    @property
    def sentence(self) -> str:
        """The headline and what to try."""
        return f"{self.headline} {self.steps}".strip()


def finding(readings: Sequence[Reading], compared: bool = False) -> Finding:
    """The finding of one run is its largest effect; of several runs, the effect of masks on each model.
    `compared`: whether that differs from what they do to the first."""
    curves = [(reading, changes(main_entries(reading))) for reading in readings]
    drawn = [(reading, curve) for reading, curve in curves if len(curve) > 1]
    limited = limited_by_skill(drawn)
    shown = [one for one in drawn if one[0].label not in limited]
    order = [reading.label for reading in readings]
    panel = mask_chart(shown, order) if shown else None
    if len(readings) == 1:
        return _of_one(readings[0], panel)
    if drawn:
        labelled = [(reading.label, curve) for reading, curve in shown]
        first = drawn[0][0]
        verdicts = [verdict(first, reading) for reading, _ in shown if reading is not first]
        compares = compared and first.label not in limited
        sentence = " ".join(filter(None, verdicts if compares else [])) or about_masks(labelled)
        headline = " ".join(filter(None, [*(conclusion(skill, label) for label, skill in limited.items()), sentence]))
        numbers = _of_models(shown, order, compared)
        steps = grouped((next_steps(skill), label) for label, skill in limited.items())
        to_try = " ".join(f"{', '.join(labels)}: {one[0].lower()}{one[1:]}" for one, labels in steps.items())
        return Finding(headline, panel, MODELS_CAPTION, numbers, _larger_than_masks(readings), to_try)
    each = [(reading.label, by_size(effects_of(reading))[:1]) for reading in readings]
    return Finding(" ".join(_sentence(label, effect) for label, first in each for effect in first), None)


def limited_by_skill(drawn: Sequence[tuple[Reading, Sequence[MaskChange]]]) -> dict[str, Skill]:
    """By label, the skill of models that cannot show a loss: they have no curve and no number.

    Where another model loses accuracy on the same questions, these are not too easy.
    """
    found = {}
    for reading, curve in drawn:
        limit = limit_of_run(reading)
        lost = any(change.high < 0 for one, other in drawn if asked_alike(reading, one) for change in other)
        if limit is None or any(change.detected for change in curve[1:]) or (lost and limit.shown):
            continue
        found[reading.label] = limit
    return found


def advice_lines(readings: Sequence[Reading]) -> list[str]:
    """Advice, a line per model, from the probe that the first screen is about."""
    leads = [(reading, probe.lead) for reading in readings for probe in reading.probes if probe.lead is not None]
    advising = [(reading, lead.advice) for reading, lead in leads if lead.main and lead.advice is not None]
    said = [(reading.label, advice(reading.run.records)) for reading, advice in advising]
    return [f"{label}: {line}" if len(readings) > 1 else line for label, line in said if line]


def with_finding(reading: Reading) -> Summary:
    """What `maskwise diagnose --json` prints: the summary with the first sentence of its page."""
    summary = reading.summary
    found = {one.probe.name: [each.row for each in one.estimates[reading.label]] for one in sections_of([reading])}
    more = {"estimates": found} if found else {}
    return structs.replace(summary, finding=finding([reading]).sentence, extras=summary.extras | more)


def _of_one(reading: Reading, panel: Panel | None) -> Finding:
    """The largest effect, or first that the run cannot show one; of what it cannot show no number is given."""
    effects = by_size(effects_of(reading))
    if not effects:
        return Finding("No accuracy was compared with a baseline.", panel)
    able = [effect for effect in effects if effect.limit is None]
    limit, steps = limit_of_run(reading), ""
    detected = bool(able) and able[0].detected
    if limit is not None and not (limit.shown and detected):
        sentence, steps = conclusion(limit, reading.label), next_steps(limit)
        if not detected:
            return Finding(sentence, None, steps=steps)
        sentence = f"{sentence} {_sentence(reading.label, able[0])}"
    elif not able:
        return Finding(" ".join(dict.fromkeys(_sentence(reading.label, one) for one in effects[:1])), None)
    else:
        sentence = largest_effect(reading.label, able)
    caption = CAPTION
    if panel is None:
        panel, caption = panels(able[0].section, [reading])[0], able[0].section.caption
    return Finding(sentence, panel, caption, _three(able, leading(reading)), _of_how_many(able), steps)


# In one sentence


def largest_effect(label: str, effects: Sequence[Effect]) -> str:
    """The first of the effects, which come by their size."""
    if effects[0].detected:
        return _sentence(label, effects[0])
    most = f"{tenths(max(effect.at_most for effect in effects))}{NBSP}points"
    undecided = sum(effect.undecided for effect in effects)
    if undecided == len(effects):
        return (
            f"Inconclusive: this run is too small to show what changes the accuracy of {label}: no change "
            f"is significant, and an interval reaches {most}."
        )
    nothing = f"No significant change was detected in {label}"
    if undecided:
        return f"{nothing}, but {undecided} of {len(effects)} changes are inconclusive: an interval reaches {most}."
    return f"{nothing}: its accuracy changes by at most {most}."


def _sentence(label: str, effect: Effect) -> str:
    if effect.detected:
        verb = "loses" if effect.points < 0 else "gains"
        return f"{label} {verb} {effect.amount} of accuracy {effect.words}{effect.ends} ({effect.interval})."
    if effect.limit is not None:
        return about_skill(effect.limit, label)
    if effect.undecided:
        unknown = f"whether the accuracy of {label} changes {effect.words}"
        return f"Inconclusive {unknown}: too few questions ({effect.interval}{NBSP}points)."
    most = f"at most {tenths(effect.at_most)}{NBSP}points"
    return f"{label} shows no significant change of accuracy {effect.words} ({most})."


def _of_how_many(effects: Sequence[Effect]) -> str:
    if len(effects) == 1:
        return "The one change from a baseline that this run measured."
    return (
        f"The headline is the largest of {len(effects)} changes from a baseline, one for each section below. They are "
        "ranked by the end of the interval nearer to zero; significant means at 5 % by Holm's procedure over all "
        "changes of the run. Each interval is for its change alone."
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
    return f"A larger effect: {_sentence(label, first)}"


def about_masks(drawn: Sequence[tuple[str, Sequence[MaskChange]]]) -> str:
    """The effect of the most masks on each model, the largest loss first; equal numbers are named once."""
    if not drawn:
        return ""
    by_loss = sorted(((label, curve[-1]) for label, curve in drawn), key=lambda one: one[1].points)
    alike = len({last.count for _, last in by_loss}) == 1
    parts = [_in_words(label, last, named=not (alike and at)) for at, (label, last) in enumerate(by_loss)]
    return ("; ".join(parts) + ".").replace("inconclusive", "Inconclusive", parts[0].startswith("inconclusive"))


def _in_words(label: str, last: MaskChange, named: bool) -> str:
    """`tiny-llada loses 31.7 points of accuracy when 200 masks follow the question instead of 2 (95 % ...)`."""
    when = f" when {last.count} masks follow the question instead of 2" if named else ""
    if last.undecided:
        return f"inconclusive whether {label} loses accuracy{when}: too few questions ({last.interval}{NBSP}points)"
    if not last.detected:
        return f"{label} shows no loss of accuracy{when} (95{NBSP}% interval: at most {tenths(-last.low)}{NBSP}points)"
    verb = "loses" if last.points < 0 else "gains"
    return f"{label} {verb} {last.amount}{' of accuracy' if named else ''}{when} ({last.interval})"


# Three numbers


def _three(effects: Sequence[Effect], charted: Sequence[str]) -> tuple[ChartNumber, ...]:
    """The effects in the chart and the largest of the others, in order of size."""
    shown = [next((one for one in effects if one.probe == probe), None) for probe in charted]
    drawn = [effect for effect in shown if effect is not None]
    others = [effect for effect in effects if effect.probe not in charted]
    chosen = drawn + others[: NUMBERS - len(drawn)]
    return tuple(_number(effect, f"Accuracy {effect.words}{_shots(effect)}") for effect in by_size(chosen))


def _shots(effect: Effect) -> str:
    return "" if effect.section.relevant is None else f", {in_words(effect.section.relevant)} in the context"


def _of_models(
    drawn: Sequence[tuple[Reading, Sequence[MaskChange]]], order: Sequence[str], compared: bool
) -> tuple[ChartNumber, ...]:
    """What the most masks do to each model, the largest loss first. Of two that were asked the same also the difference
    of these; where they are `compared`, that of their accuracies with the most masks, since only that is a gain."""
    found = []
    for reading, curve in sorted(drawn, key=lambda one: one[1][-1].points):
        last = curve[-1]
        what = f"{reading.label}, {last.count} masks instead of 2"
        found.append(replace(_number(last, what), curve=order.index(reading.label)))
    apart = difference_of_changes(*(reading for reading, _ in drawn)) if len(drawn) == 2 else None
    if apart is None:
        return tuple(found)
    first, second = (reading for reading, _ in drawn)
    of, shown = "Difference", Change(apart.points, apart.low, apart.high)
    if compared:
        change = judged_at_most_masks(first, second, apart.count).accuracy
        if change.value is None or change.low is None or change.high is None:
            return tuple(found)
        of, shown = f"Accuracy, {apart.count} masks", Change(100 * change.value, 100 * change.low, 100 * change.high)
    return *found, _number(shown, f"{of}: {second.label} less {first.label}, paired")


def _number(change: Change, what: str) -> ChartNumber:
    value = f"{'+' if change.points > 0 else ''}{tenths(change.points)}{NBSP}points"
    interval = f"95{NBSP}% interval {tenths(change.low)} to {tenths(change.high)}"
    if not change.excludes_zero and change.at_most >= LARGE:
        interval = f"{TOO_FEW} ({interval}{NBSP}points)"
    elif not change.excludes_zero:
        interval = f"nothing detected: at most {tenths(change.at_most)}{NBSP}points ({interval})"
    elif not change.detected:
        interval = f"not significant among the changes of this run ({interval})"
    return ChartNumber(value, interval, what, change.detected)
