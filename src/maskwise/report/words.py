"""Plain sentences from numbers. Each says only what its interval allows: nothing about a score that covers zero."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from maskwise.probes.intervals import none_seen
from maskwise.probes.scores import LEAST_SKILL
from maskwise.probes.settings import COHERENCE_PROBES
from maskwise.report.coherence_tables import verdict_number
from maskwise.report.curves import Measure, Point, Section, along
from maskwise.report.readings import Reading
from maskwise.report.sections import filler_name
from maskwise.tasks.episodes import CHANCE

NBSP = "\u00a0"
FEW_TASKS = 8
# Guessing is not one in three there.
OTHER_CHANCE = ("natural-text", "nelbo", "points", "hotpotqa", "labelled-text", *COHERENCE_PROBES)
NO_SKILL = f"guessing gives 33{NBSP}%, so there is no skill to lose"


@dataclass(frozen=True)
class Sentence:
    topic: str
    claim: str
    evidence: str


@dataclass(frozen=True)
class Tile:
    """A score: its number, its interval in words, the same on a scale of -100 % .. 100 % for the little drawing."""

    name: str
    value: str
    interval: str
    meaning: str
    marks: tuple[float, float, float] | None


@dataclass(frozen=True)
class Row:
    """One line of a comparison: what it is, its value for each model, and the change from the first to each other."""

    name: str
    meaning: str
    values: tuple[str, ...]
    changes: tuple[str, ...]


def percent(value: float | None, digits: int = 0) -> str:
    """0.375 -> 38 %; -0.001 -> 0 %: a zero has no sign."""
    if value is None:
        return "–"
    rounded = round(100 * value, digits) + 0.0
    return f"{rounded:.{digits}f}".replace("-", "−") + f"{NBSP}%"


def points(difference: float) -> str:
    """A change of a share, in points: +6.3 points."""
    rounded = round(100 * difference, 1) + 0.0
    return f"{rounded:+.1f}".replace("-", "−").replace("+0.0", "0.0") + f"{NBSP}points"


def between(low: float | None, high: float | None, digits: int = 0) -> str:
    if low is None or high is None:
        return "no interval"
    return f"{percent(low, digits).removesuffix(NBSP + '%')} to {percent(high, digits)}"


def number(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{value:.{digits}f}".replace("-", "−")


def three_sentences(reading: Reading) -> list[Sentence]:
    return [where_it_looks(reading), what_masks_do(reading), how_sure(reading)]


def where_it_looks(reading: Reading) -> Sentence:
    topic = "Where it looks"
    ends = near_and_far(reading)
    if not ends:
        return Sentence(
            topic, "Not measured.", "It takes the examples at two places, near to and far from the question."
        )
    near, far = (sum(values) / len(values) for values in zip(*ends, strict=True))
    seen = f"{percent(near)} of its answers are right with the examples near the question, {percent(far)} with them far"
    score = reading.summary["scores"]["locality"]
    if score["value"] is None:
        skilled = [near - CHANCE >= LEAST_SKILL for near, _ in ends]
        why = f"on one side of the question it hardly does better than guessing ({percent(CHANCE)})"
        return Sentence(topic, "It cannot be told.", f"{seen}; {why if any(skilled) else NO_SKILL}.")
    one_sided = "" if asked_with_question("left", reading) else " Measured with the question last only."
    claims = {
        1: "It favours what stands near the question.",
        0: "No preference for near or far could be shown.",
        -1: "It favours what stands far from the question.",
    }
    change = cost_or_gain("locality", reading.summary, "moving the examples away", "costs", "raises")
    return Sentence(topic, claims[direction(score)], f"{seen}: {change}.{one_sided}")


def what_masks_do(reading: Reading) -> Sentence:
    topic = "What masks do"
    if reading.is_autoregressive:
        return Sentence(
            topic, "Nothing: it never sees any.", "It is an autoregressive model, which writes from left to right."
        )
    entries = sorted(reading.entries("mask-count"), key=lambda entry: entry["masks"])
    if not entries:
        return Sentence(topic, "Not measured.", "The mask-count probe was not run.")
    if not was_measured("mask_tax", reading):
        return Sentence(topic, "Not measured.", "It takes answers with 2 masks and with more, and not both are there.")
    few, many = next(entry for entry in entries if entry["masks"] == 2), entries[-1]
    seen = (
        f"{percent(few['accuracy'])} of its answers are right with {few['masks']} masks, "
        f"{percent(many['accuracy'])} with {many['masks']}"
    )
    score = reading.summary["scores"]["mask_tax"]
    if score["value"] is None:
        return Sentence(topic, "It cannot be told.", f"{seen}; {NO_SKILL}.")
    claims = {1: "Masks distract it.", 0: "No distraction by masks could be shown.", -1: "Masks help it."}
    change = cost_or_gain("mask_tax", reading.summary, "on average more masks", "cost", "raise")
    return Sentence(topic, claims[direction(score)], f"{seen}: {change}.{_full_stops(reading)}")


def how_sure(reading: Reading) -> Sentence:
    topic = "How sure we are"
    few_shot = [one for probe, one in reading.asked.items() if probe not in OTHER_CHANCE]
    counts = few_shot or list(reading.asked.values())
    tasks, most = max(len(one.tasks) for one in counts), max(one.most for one in counts)
    answers = sum(one.answers for one in reading.asked.values())
    widths = [
        max(entry["high"] - entry["accuracy"], entry["accuracy"] - entry["low"])
        for entries in reading.summary["probes"].values()
        for entry in entries
        if entry["low"] is not None and entry["high"] is not None
    ]
    reach = f"; the widest interval on this page reaches ±{100 * max(widths):.0f} points" if widths else ""
    evidence = (
        f"{answers:,} answers, up to {most:,} test points in each of {counted(tasks)}{reach}. "
        f"The 95{NBSP}% intervals speak for other tasks of this kind, not for another draw of the examples."
    )
    if not reading.manifest["complete"]:
        return Sentence(topic, "Not yet: the run is unfinished.", evidence)
    if not any_skill(reading):
        nowhere = f"No condition lies clearly above {percent(CHANCE)}."
        return Sentence(topic, "It does no better than guessing.", f"{nowhere} {evidence}")
    if tasks < FEW_TASKS:
        return Sentence(topic, f"Roughly: only {counted(tasks)} could be averaged.", evidence)
    return Sentence(topic, f"As sure as {counted(tasks)} allow.", evidence)


def counted(tasks: int) -> str:
    return "one task" if tasks == 1 else f"{tasks} tasks"


def any_skill(reading: Reading) -> bool:
    """Whether some few-shot condition lies clearly above guessing (or none was asked, so nothing can be said)."""
    lows = [
        entry["low"] if entry["low"] is not None else entry["accuracy"]
        for probe, entries in reading.summary["probes"].items()
        if probe not in OTHER_CHANCE
        for entry in entries
    ]
    return not lows or max(lows) > CHANCE


def near_and_far(reading: Reading) -> list[tuple[float, float]]:
    """Accuracy with the examples nearest to and farthest from the question: what the locality score is made of."""

    def by_location(entries: list[dict[str, Any]]) -> list[float]:
        return [e["accuracy"] for e in sorted(entries, key=lambda entry: entry["condition"]["location"])]

    first = by_location(asked_with_question("left", reading))
    last = by_location(asked_with_question("right", reading))
    if not first and not last:
        last = by_location(reading.entries("location"))
    return [(side[0], side[-1]) for side in (last[::-1], first) if len(side) > 1]


def asked_with_question(place: str, reading: Reading) -> list[dict[str, Any]]:
    return [entry for entry in reading.entries("question-position") if entry["condition"]["question"] == place]


def _full_stops(reading: Reading) -> str:
    entries = sorted(reading.entries("filler"), key=lambda entry: entry["condition"]["fillers"])
    if len(entries) < 2:
        return ""
    first, last = entries[0], entries[-1]
    return (
        f" {filler_name(last['condition']['filler']).capitalize()} in their place take it from "
        f"{percent(first['accuracy'])} to {percent(last['accuracy'])} ({last['condition']['fillers']} of them)."
    )


def cost_or_gain(name: str, summary: dict[str, Any], what: str, costs: str, raises: str) -> str:
    """`more masks cost 20 % of its skill above guessing, 95 % interval 12 to 27 %`; a loss below zero is a gain."""
    score = summary["scores"][name]
    value, low, high = score["value"], score["low"], score["high"]
    unseen, digits = nothing_differed(name, summary), digits_of(score)
    if unseen:
        return f"{what} {costs} nothing here; {unseen}"
    if value >= 0:
        told = f"{what} {costs} {percent(value, digits)} of its skill above guessing"
    else:
        told = f"{what} {raises} its skill above guessing by {percent(-value, digits)}"
        low, high = (None, None) if low is None or high is None else (-high, -low)
    if low is None or high is None:
        return f"{told}, with no interval"
    crosses = "" if direction(score) else ", which includes zero"
    return f"{told}, 95{NBSP}% interval {between(low, high, digits)}{crosses}"


# Where the answers of a score come from: the first of these probes that was run.
ANSWERS_OF = {
    "mask_tax": ("mask-count",),
    "degradation": ("mask-count",),
    "locality": ("question-position", "location"),
}


def nothing_differed(name: str, summary: dict[str, Any]) -> str:
    """Empty, but for a score whose answers are the same under all its conditions. A bootstrap has nothing to resample
    then and its interval is a point; what the run cannot have seen is Wilson's bound for none in so many."""
    score = summary["scores"][name]
    if score["value"] is None or not score["value"] == score["low"] == score["high"] == 0:
        return ""
    entries = next(found for probe in ANSWERS_OF[name] if (found := summary["probes"].get(probe)))
    asked = min(entry["n"] for entry in entries)
    return f"none of {asked} answers differed, up to {percent(none_seen(asked), 1)} may in others (95{NBSP}%)"


def direction(score: dict[str, float | None]) -> int:
    """+1 or -1 where the interval lies on one side of zero, 0 where it does not or is not known."""
    low, high = score["low"], score["high"]
    if low is None or high is None:
        return 0
    return 1 if low > 0 else -1 if high < 0 else 0


MEANINGS = {
    "mask_tax": ("Mask tax", "share of its skill above guessing lost to masks beyond the second, on average"),
    "locality": ("Locality", "share of its skill above guessing lost when the examples stand far from the question"),
    "degradation": (
        "Degradation",
        "from the best to the worst number of masks, as a share of the best; chance alone lifts it above 0",
    ),
}


def tiles(reading: Reading) -> list[Tile]:
    return [score_tile(name, reading.summary["scores"][name], reading) for name in MEANINGS]


def score_tile(name: str, score: dict[str, float | None], reading: Reading) -> Tile:
    title, meaning = MEANINGS[name]
    if score["value"] is None:
        return Tile(title, "–", why_empty(name, reading), meaning, None)
    digits = digits_of(score)
    value = percent(score["value"], digits)
    if score["low"] is None or score["high"] is None:
        return Tile(title, value, "no interval", meaning, None)
    ends = f"95{NBSP}% interval {between(score['low'], score['high'], digits)}"
    interval = nothing_differed(name, reading.summary) or ends
    return Tile(title, value, interval, meaning, (score["low"], score["value"], score["high"]))


def digits_of(score: dict[str, float | None]) -> int:
    """A small score is told to a tenth of a percent: "0 to 3 %" would not say which side of zero it is on."""
    known = [abs(value) for value in score.values() if value]
    return 1 if known and min(known) < 0.05 else 0


def why_empty(name: str, reading: Reading) -> str:
    if name != "locality" and reading.is_autoregressive:
        return "does not apply: no masks"
    return "no skill above guessing to lose" if was_measured(name, reading) else "not measured"


def was_measured(score: str, reading: Reading) -> bool:
    """Whether the answers a score is made of are there (not so in every unfinished run)."""
    counts = {entry["masks"] for entry in reading.entries("mask-count")}
    return {
        "locality": bool(near_and_far(reading)),
        "mask_tax": 2 in counts and max(counts) > 2,
        "degradation": len(counts) > 1,
    }[score]


def what_this_run_shows(section: Section, readings: Sequence[Reading]) -> list[str]:
    """The section's own words or a line per curve, then what becomes of the paper's claims."""

    def lines(words: Callable[[Reading], list[str]]) -> list[str]:
        return [f"{r.label}, {line}" if len(readings) > 1 else line for r in readings for line in words(r)]

    own = lines(section.says) if section.says else _line_per_curve(section, readings)
    return own + [line for name in section.claims for line in _verdict(name, readings)]


def _verdict(name: str, readings: Sequence[Reading]) -> list[str]:
    """What becomes of a claim: one line, with all models that can judge it."""
    found = [(r.label, claim) for r in readings for claim in r.summary.get("claims", []) if claim["name"] == name]
    if not found:
        return []
    told = found[0][1]
    if len(readings) == 1:
        return [f"{told['verdict']}: {told['claim']} ({told['measure']}: {verdict_number(told)})"]
    each = "; ".join(f"{label} {verdict_number(claim)}: {claim['verdict']}" for label, claim in found)
    return [f"{told['claim']} ({told['measure']}): {each}"]


def _line_per_curve(section: Section, readings: Sequence[Reading]) -> list[str]:
    """The first and last value of each curve, and the change between them."""
    lines = []
    for measure in section.measures:
        for reading in readings:
            found = section.points(reading)
            for series in dict.fromkeys(point.series for point in found):
                who = ", ".join(filter(None, [reading.label if len(readings) > 1 else "", series]))
                lines.append(_first_to_last(who, along(found, series), measure, section))
    return lines


def _first_to_last(who: str, curve: list[Point], measure: Measure, section: Section) -> str:
    def shown(point: Point) -> str:
        value = point.entry[measure.key]
        return percent(value, 1) if measure.percent else f"{number(value)}{unit}"

    def place(point: Point) -> str:
        return section.at.format(section.x_names[int(point.x)] if section.x_names else f"{point.x:g}")

    unit = f"{NBSP}{measure.unit}" if measure.unit else ""
    start = f"{who}: " if who else ""
    first, last = ends(curve)
    line = f"{start}{shown(first)} at {place(first)}"
    before, after = first.entry[measure.key], last.entry[measure.key]
    if first is last or before is None or after is None:
        return line
    line += f", {shown(last)} at {place(last)}"
    if not measure.percent:
        return f"{line} ({f'{after - before:+.2f}'.replace('-', '−')}{unit})"
    tested = chance_of_change(first, last) if measure.key == "accuracy" else ""
    return f"{line} ({points(after - before)}{tested})"


def ends(curve: list[Point]) -> tuple[Point, Point]:
    """The first and last point of a curve, or the baseline and the last point where the last has one on the curve."""
    baseline = curve[-1].entry.get("paired", {}).get("baseline")
    return next((point for point in curve if point.entry["condition"] == baseline), curve[0]), curve[-1]


def chance_of_change(first: Point, last: Point) -> str:
    """The p-value of the paired test between two points, if one is the other's baseline."""
    for one, other in ((first, last), (last, first)):
        paired = one.entry.get("paired")
        if paired is not None and paired["baseline"] == other.entry["condition"]:
            return f", {p_value(paired['p'])}"
    return ""


def p_value(p: float) -> str:
    return f"p{NBSP}<{NBSP}.001" if p < 0.001 else f"p{NBSP}={NBSP}{p:.3f}".replace("0.", ".")
