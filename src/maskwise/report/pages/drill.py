"""Below the curves: prompts as the model was given them, accuracies task by task, and single records."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import count, groupby, islice
from typing import Any

from maskwise.probes.examples import number_of, with_number
from maskwise.probes.section import Point, Section, at_place
from maskwise.records.groups import groups_of, places_by_group
from maskwise.records.record import Record, condition_text
from maskwise.records.sample import SampledPrompt, read_sample
from maskwise.report.figures.panels import along
from maskwise.report.readings import Reading
from maskwise.scoring.numbers import number, percent

LONG_RUN = 4  # equal tokens in a row that are shown as one and their number
MOST_ROWS = 400  # of the table of records
WIDTH, HEIGHT, EDGE = 120, 56, 5  # of a small multiple, in its own units


# Prompts


@dataclass(frozen=True)
class Piece:
    """A token, or a run of equal ones. `weight`: its attribution in twentieths, of a run the mean; None where that was
    not measured."""

    text: str
    times: int
    answer: bool
    weight: int | None


@dataclass(frozen=True)
class ShownPrompt:
    """`top`: (token, probability, its share of the bar's width in percent, whether it is the right one)."""

    model: str
    relevant: int | None
    condition: str
    task: str
    point: int
    correct: bool
    answer: str
    probability: str
    pieces: tuple[Piece, ...]
    top: tuple[tuple[str, str, int, bool], ...]
    tokens: int
    late: bool  # the answer's place is in the second half
    attributed: bool


def prompts_by_probe(readings: Sequence[Reading]) -> dict[str, list[ShownPrompt]]:
    found: dict[str, list[ShownPrompt]] = defaultdict(list)
    for reading in readings:
        for prompt in read_sample(reading.folder, reading.manifest):
            found[prompt.probe].append(shown_prompt(prompt, reading.label if len(readings) > 1 else ""))
    return found


def shown_prompt(prompt: SampledPrompt, label: str) -> ShownPrompt:
    return ShownPrompt(
        label,
        number_of(prompt.condition),
        condition_in_words(prompt.condition),
        prompt.task,
        prompt.point,
        prompt.correct,
        prompt.answer,
        likelihood(prompt.probability),
        tuple(_pieces(prompt)),
        tuple(
            (text, likelihood(p), round(100 * min(1.0, max(0.0, p))), text == prompt.answer) for text, p in prompt.top
        ),
        len(prompt.tokens),
        2 * prompt.row > len(prompt.tokens),
        bool(prompt.attribution),
    )


def _pieces(prompt: SampledPrompt) -> Iterable[Piece]:
    """The tokens in their order; the answer's position is a piece of its own, at the end if the prompt has no mask."""
    weights: list[int | None] = [round(20 * weight) for weight in prompt.attribution or []]
    weights = weights or [None] * len(prompt.tokens)
    marked = [Piece(text, 1, place == prompt.row, weights[place]) for place, text in enumerate(prompt.tokens)]
    for (text, answer), grouped in groupby(marked, key=lambda piece: (piece.text, piece.answer)):
        same = list(grouped)
        if len(same) >= LONG_RUN:
            known = [piece.weight for piece in same if piece.weight is not None]
            yield Piece(text, len(same), answer, round(sum(known) / len(known)) if known else None)
        else:
            yield from same
    if prompt.row == len(prompt.tokens):
        yield Piece("", 1, True, None)


def likelihood(probability: float) -> str:
    return percent(probability, 1) if probability >= 0.001 else "< 0.1\u00a0%"


def condition_in_words(condition: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in condition.items())


# Task by task


@dataclass(frozen=True)
class SmallMultiple:
    """One task: for each curve its colour and the places of its points in the little drawing; words for those who do
    not see it."""

    task: str
    curves: tuple[tuple[int, tuple[tuple[float, float], ...]], ...]
    words: str


def small_multiples(probe: str, section: Section, reading: Reading) -> list[SmallMultiple]:
    """The accuracies of each task, on one scale of 0 to 100 %; none where the section draws no accuracies."""
    if "accuracy" not in [measure.key for measure in section.measures] or section.says is not None:
        return []
    accuracy = accuracy_by_task(with_number(reading.run.by_probe.get(probe, []), section.relevant))
    if len(accuracy) < 2:
        return []
    points = section.points(reading)
    known = {text for conditions in accuracy.values() for text in conditions}
    own = [point for point in points if condition_text(point.entry.condition) in known]
    order = sorted({point.x for point in own})
    series = list(dict.fromkeys(point.series for point in points))
    if len(order) < 2:
        return []
    return [_of_task(task, shares, own, order, series, section) for task, shares in accuracy.items()]


def accuracy_by_task(records: Sequence[Record]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for group in groups_of(records):
        for task, right in group.by_task("correct").items():
            found[task][condition_text(group.condition)] = float(right.mean())
    return found


def _of_task(
    task: str,
    accuracy: dict[str, float],
    points: Sequence[Point],
    order: Sequence[float],
    series: Sequence[str],
    section: Section,
) -> SmallMultiple:
    """Conditions are drawn at equal distances: a drawing of this size has no room for an axis."""

    def place(point: Point) -> tuple[float, float]:
        across = order.index(point.x) / (len(order) - 1)
        right = accuracy[condition_text(point.entry.condition)]
        return round(EDGE + across * (WIDTH - 2 * EDGE), 1), round(HEIGHT - EDGE - right * (HEIGHT - 2 * EDGE), 1)

    curves, words = [], []
    for style, name in enumerate(series):
        line = [p for p in along(points, name) if condition_text(p.entry.condition) in accuracy]
        if line:
            curves.append((style % 7, tuple(map(place, line))))
            ends = [
                f"{percent(accuracy[condition_text(p.entry.condition)])} at {at_place(section, p.x)}"
                for p in (line[0], line[-1])
            ]
            words.append(f"{name + ': ' if name else ''}{', '.join(dict.fromkeys(ends))}")
    return SmallMultiple(task, tuple(curves), "; ".join(words))


# Single records


@dataclass(frozen=True)
class RecordTable:
    """rows: the number of the probe among the filters, whether the answer was right, and the cells."""

    head: tuple[str, ...]
    probes: tuple[str, ...]
    rows: tuple[tuple[int, bool, tuple[str, ...]], ...]
    total: int


def records_table(readings: Sequence[Reading]) -> RecordTable:
    """At most MOST_ROWS records: the first of each condition, in equal numbers. An answer of many tokens has no one
    confidence or likelihood: its record holds zeros in their place."""
    several = len(readings) > 1
    probes = tuple(dict.fromkeys(probe for reading in readings for probe in reading.run.by_probe))
    asked = ("probe", "condition", "task", "point")
    head = ("model",) * several + asked + ("answered", "right answer", "is", "confidence", "NLL (nats)")
    rows = []
    for reading in readings:
        for record in in_turn(reading.run.records, MOST_ROWS // len(readings)):
            asked = (record.probe, condition_in_words(record.condition), record.task, str(record.point))
            said = (record.predicted, record.answer, "right" if record.correct else "wrong")
            nll = record.nll if record.nll or record.confidence == 1 else None  # 0 nats are a confidence of 1
            sure = percent(record.confidence or None, 1), number(nll)
            rows.append((probes.index(record.probe), record.correct, (reading.label,) * several + asked + said + sure))
    return RecordTable(head, probes, tuple(rows), sum(len(reading.run.records) for reading in readings))


def in_turn(records: Sequence[Record], most: int) -> list[Record]:
    """As many of each condition as of any other, as far as they go; in the records' own order."""
    groups = places_by_group(records)
    turns = (place for turn in count() for group in groups for place in group[turn : turn + 1])
    return [records[place] for place in sorted(islice(turns, min(most, len(records))))]
