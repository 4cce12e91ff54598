"""mechanism (ours): by which path do appended masks act, on the answer's own row or through the rows of the context?

Asked like mask-count (format B, mixed examples), at k masks against two. Attention to masks 3..k is cut from the
answer's row, from all other rows but their own, or from both, which must equal two masks up to rounding. paths.py says
what is made of the answers.

Controls: as many fillers, cut the same way; keys of the masks biased by minus the log of their number; their positions
made one; masks and fillers at the front, in the middle and scattered.

Condition: {"masks": 2}; {"masks": 200, "place": "end", "attention": "answer cut"}; fillers {"masks": 2, "fillers": 198,
"place": "end", "attention": "whole"}. The summary's "mechanism" holds the paths.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from msgspec import UNSET, UnsetType

from maskwise.probes.extra_tokens import (
    ANSWER,
    BIASED,
    BOTH,
    END,
    FRONT,
    MIDDLE,
    ONE_POSITION,
    OTHERS,
    PLACES,
    SCATTERED,
    WHOLE,
    ChangedPrompt,
    question_starts,
    slots,
    two_masks,
    with_extra,
)
from maskwise.probes.few_shot import episodes
from maskwise.probes.library.filler import filler_name
from maskwise.probes.paths import (
    BASELINE,
    INCONCLUSIVE,
    LARGEST_DIFFERENCE,
    MASKS,
    NAME,
    NO_EFFECT,
    Mechanism,
    TokenPaths,
    condition_of,
    conditions,
    mechanism,
    tokens_and_count,
)
from maskwise.probes.probe import NO_MASK_TOKEN, VARIES_MASKS, Asker, Item, Probe, Setup, Unit, units_of, with_nll
from maskwise.probes.section import Entry, Measure, Point, Section, Shown, Summary, TextTable
from maskwise.records.record import Condition, Key, condition_text, still_to_ask
from maskwise.scoring.numbers import NBSP, percent, signed
from maskwise.scoring.scores import Score
from maskwise.support.errors import UserError
from maskwise.support.randomness import python_random
from maskwise.support.typed import Count
from maskwise.tasks.episodes import Episode, mixed
from maskwise.tasks.prompts import Encoded, encode_parts

SUMMARY = NAME
UNITS = ("points", "nats")
PATHS = {
    "answer": "they act on the answer's own row",
    "others": "they act through the other rows",
    "answer and others": "they act on the answer's own row and through the other rows",
    "interaction": "they act only where the answer's row and the other rows see them together",
    INCONCLUSIVE: "the path is inconclusive",
}


# What is asked


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.changed_attention import ask_changed

    if not setup.model.attention_readable or setup.model.family.framed:
        setup.note(f"{NAME} was not run: the attention of a {setup.model.family.title} cannot be cut")
        return
    counts = setup.own["mask_counts"]
    if min(counts) < 3:
        raise UserError(f"{NAME} compares more masks with two: its mask counts must be at least 3, not {min(counts)}")
    asked, settings = conditions(counts), setup.settings
    most = min(settings.points, setup.own["points"])
    for episode in episodes(setup, settings.main_relevant, settings.distractors, most):
        yield from units_of(most, len(asked), partial(items, setup.asker, episode, asked), ask_changed)


def items(
    asker: Asker, episode: Episode, asked: Sequence[Condition], points: Sequence[int], done: Collection[Key]
) -> Iterator[Item]:
    examples = mixed(episode)
    for point in points:
        left = list(still_to_ask(NAME, episode.task.name, [point], asked, done))
        if left:
            test = episode.tests[point]
            encoded, parts = encode_parts(asker.tokenizer, examples, test, "right", asker.chat)
            where = (episode.seed, episode.task.name, point)
            for key, _, condition in left:
                yield Item(key, condition, prompt_for(asker, encoded, parts, condition, where), test.letter)


def prompt_for(
    asker: Asker, encoded: Encoded, parts: Sequence[int], condition: Condition, drawn_for: tuple[int, str, int]
) -> ChangedPrompt:
    """Masks and fillers of one number are scattered over the same places."""
    plain = two_masks(encoded, asker.mask_id)
    if condition == BASELINE:
        return plain
    assert asker.mask_id is not None
    fillers = int(condition.get("fillers", 0))
    count = fillers or int(condition["masks"]) - 2
    before = slots(
        str(condition["place"]), count, question_starts(parts[: encoded.row]), len(plain.ids),
        python_random("scattered tokens", *drawn_for, count),
    )  # fmt: skip
    token = asker.filler_id if fillers else asker.mask_id
    return with_extra(plain, before, token, not fillers, str(condition["attention"]))


# How it is shown

SEEN_BY = {WHOLE: "all", OTHERS: "answer's", ANSWER: "others", BOTH: "none"}
WEIGHED = {WHOLE: "unchanged", BIASED: "biased", ONE_POSITION: "one position"}
PLACE_NAMES = {END: "at the end", FRONT: "at the front", MIDDLE: "in the middle", SCATTERED: "scattered"}
CHANGE_IN_POINTS = Measure("change", "Change in accuracy (points)", "change_low", "change_high", percent=False,
                           unit="points")  # fmt: skip
CHANGE_IN_NATS = Measure("nll_change", "Change in NLL (nats)", "nll_change_low", "nll_change_high", percent=False)
PAIRED = "Difference from two masks over the same points; whisker: 95 % interval, points paired, stratified by task."
LEAST_TOLD = 1e-6  # nats; records hold no more digits
APART = 0.15  # between the markers of one place on the x axis


def _summary(shown: Shown) -> Mechanism:
    return shown.summary.extras.get(SUMMARY) or Mechanism(changes=[], paths=[], places=[], checks={})


def _entries(shown: Shown) -> dict[str, Entry]:
    """The entries of all conditions but the baseline, with their changes, by the condition's text."""
    entries = {condition_text(entry.condition): entry for entry in shown.entries(NAME)}
    found = {}
    for change in _summary(shown).changes:
        text = condition_text(change.condition)
        in_points, in_nats = change.points, change.nats
        found[text] = entries[text].changed(
            change=_hundredfold(in_points.value),
            change_low=_hundredfold(in_points.low),
            change_high=_hundredfold(in_points.high),
            nll_change=in_nats.value,
            nll_change_low=in_nats.low,
            nll_change_high=in_nats.high,
        )
    return found


def _hundredfold(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _series(shown: Shown) -> list[tuple[str, int, str]]:
    """(tokens, number, name) of each marker of a figure, most tokens first."""
    filler = filler_name(shown.summary.settings.filler or ".")
    return [
        (one.tokens, one.masks, f"{one.masks} masks" if one.tokens == MASKS else f"2 masks, {one.masks - 2} {filler}")
        for one in _summary(shown).paths
    ]


def _along(shown: Shown, wanted: Sequence[tuple[str, str]]) -> list[Point]:
    """A point for each (place, attention) that was asked, of each series, side by side."""
    entries, series = _entries(shown), _series(shown)
    found = []
    for number_of, (tokens, count, name) in enumerate(series):
        shift = APART * (number_of - (len(series) - 1) / 2)
        for x, (place, attention) in enumerate(wanted):
            text = condition_text(condition_of(tokens, count, place, attention))
            if text in entries:
                found.append(Point(name, x + shift, entries[text]))
    return found


def _cut_points(shown: Shown) -> list[Point]:
    return _along(shown, [(END, attention) for attention in SEEN_BY])


def _weighed_points(shown: Shown) -> list[Point]:
    """Of masks alone."""
    found = _along(shown, [(END, attention) for attention in WEIGHED])
    return [point for point in found if "fillers" not in point.entry.condition]


def _place_points(shown: Shown) -> list[Point]:
    return _along(shown, [(place, WHOLE) for place in PLACES])


def in_points(found: Score) -> str:
    """−23.0 points (−26.1 to −19.9)"""
    return _with_ends(found, "points", 100, 1)


def in_nats(found: Score) -> str:
    return _with_ends(found, "nats", 1, 3)


def _with_ends(found: Score, unit: str, factor: float, digits: int) -> str:
    """A difference and its interval; with no interval where it never varied, with no value where it was not asked."""
    if found.value is None:
        return "not measured"
    value, *ends = (
        None if number is None else _signed(factor * number, digits) for number in (found.value, found.low, found.high)
    )
    return f"{value}{unit and NBSP}{unit} ({'no interval' if None in ends else ' to '.join(map(str, ends))})"


def _signed(value: float, digits: int) -> str:
    """A zero has no sign."""
    rounded = round(value, digits)
    return signed(rounded, digits) if rounded else f"{0:.{digits}f}"


def sentence(paths: TokenPaths, what: str) -> str:
    """The effect of the tokens by path, in the measure whose total excludes zero: points if both do."""
    start = f"{what} against 2 masks: {in_points(paths.points.total)}, {in_nats(paths.nats.total)}"
    if paths.content is not UNSET:
        start += f", {in_nats(paths.content.total)} of them in the choice among the allowed answers"
    measured = ((paths.points, in_points), (paths.nats, in_nats))
    found, in_words = next(((one, show) for one, show in measured if one.path != NO_EFFECT), (None, in_nats))
    if found is None:
        return f"{start}: no effect was detected, so there is no path to name"
    shares = found.shares or {}
    parts = {"answer": "seen by the answer's row alone", "others": "by the other rows alone",
             "interaction": "interaction"}  # fmt: skip
    listed = [
        f"{words} {in_words(getattr(found, name))}" + ("" if shares[name] is None else f", {percent(shares[name])}")
        for name, words in parts.items()
    ]
    return f"{start}: {PATHS[found.path]} ({'; '.join(listed)} of the total)"


def _says(shown: Shown) -> list[str]:
    names = {(tokens, count): name for tokens, count, name in _series(shown)}
    summary = _summary(shown)
    lines = [sentence(paths, names[paths.tokens, paths.masks]) for paths in summary.paths]
    largest = summary.checks.get(LARGEST_DIFFERENCE)
    if largest is not None:
        lines.append(
            "check: cut from both, the negative log-likelihoods equal those with two masks to within "
            f"{max(largest, LEAST_TOLD):.0e} nats"
        )
    return lines or ["not run"]


def _says_weighed(shown: Shown) -> list[str]:
    names = {(tokens, count): name for tokens, count, name in _series(shown)}
    words = {BIASED: "keys biased by minus the log of their number", ONE_POSITION: "all in one position"}
    return [
        f"{names[tokens_and_count(one.condition)]}, {words[one.condition['attention']]}: "
        f"{in_points(one.points)}, {in_nats(one.nats)}"
        for one in _summary(shown).changes
        if one.condition["attention"] in words
    ] or ["not run"]


def _says_places(shown: Shown) -> list[str]:
    return [
        f"{one.masks} masks {PLACE_NAMES[one.place]} less fillers in the same places: "
        f"{in_points(one.points)}, {in_nats(one.nats)}"
        for one in _summary(shown).places
        if one.points.value is not None
    ] or ["not run"]


def tables(summary: Summary) -> list[TextTable]:
    """For the terminal: every condition against two masks, and the paths."""
    found: Mechanism | None = summary.extras.get(SUMMARY)
    if found is None:
        return []
    rows = []
    for one in found.paths:
        name = f"{one.masks} masks" if one.tokens == MASKS else f"{one.masks - 2} fillers"
        changes = [change for change in found.changes if tokens_and_count(change.condition) == (one.tokens, one.masks)]
        rows += [
            (f"{name}, {_short_name(change.condition)}", *_cells(change.points, change.nats)) for change in changes
        ]
        rows.append((f"{name}, interaction", *_cells(one.points.interaction, one.nats.interaction)))
        rows.append((f"{name}, path", one.points.path, one.nats.path))
    return [TextTable(f"{NAME}: change from 2 masks (95 % interval)", ("", *UNITS), rows)]


def _short_name(condition: Condition) -> str:
    place, attention = str(condition["place"]), str(condition["attention"])
    return PLACE_NAMES[place] if place != END else "at the end" if attention == WHOLE else attention


def _cells(in_points: Score, in_nats: Score) -> tuple[str, str]:
    return _with_ends(in_points, "", 100, 1), _with_ends(in_nats, "", 1, 3)


def _baseline(condition: Condition, all_conditions: Sequence[Condition]) -> Condition | None:
    return BASELINE if BASELINE in all_conditions else None


PROBE = Probe(
    name=NAME,
    group="evidence",
    not_text=VARIES_MASKS,
    about="by which path appended masks act: attention to them cut row by row",
    condition={"masks": Count, "fillers": Count | UnsetType, "place": str | UnsetType, "attention": str | UnsetType},
    units=units,
    parameters={"mask_counts": (20, 200), "points": 100},
    quick={"mask_counts": (200,)},
    not_causal=NO_MASK_TOKEN,
    not_blocks="attention is cut in models that see every token",
    baseline=_baseline,
    measures=with_nll,
    extras={SUMMARY: mechanism},
    columns={},
    tables=tables,
    sections=(
        Section(
            title="By which path do appended masks act?",
            question="Attention to the masks beyond the second is cut from the row that predicts the answer, from all "
            "other rows, or from both. What remains of their effect on the answer?",
            paper="Not in the paper.",
            how_to_read="An effect that remains where only the answer's row sees the masks is direct; one that remains "
            "where only the other rows see them comes through the context. Seen by none, masks must do nothing: a "
            "check. Fillers are cut the same way as a control.",
            x_label="Rows that see the masks or fillers (answer's: the row that predicts it)",
            at="{}",
            points=_cut_points,
            measures=(CHANGE_IN_POINTS, CHANGE_IN_NATS),
            x_names=tuple(SEEN_BY.values()),
            caption=PAIRED,
            says=_says,
        ),
        Section(
            name="mask-weight",
            title="Is it the number of the masks, or where they stand?",
            question="The keys of the masks beyond the second are biased by minus the log of their number, so that "
            "together they weigh as much as one token; or all get the position of the first of them.",
            paper="Not in the paper.",
            how_to_read="An effect that is gone with biased keys comes from their number; one that is gone in one "
            "position, from their distance.",
            x_label="Masks beyond the second",
            at="{}",
            points=_weighed_points,
            measures=(CHANGE_IN_POINTS, CHANGE_IN_NATS),
            x_names=tuple(WEIGHED.values()),
            caption=PAIRED,
            says=_says_weighed,
        ),
        Section(
            name="mask-places",
            title="Does it matter where the masks stand?",
            question="The same number of masks at the end, at the front, in the middle of the examples or scattered "
            "between them, against fillers in the same places.",
            paper="Not in the paper, which appends them.",
            how_to_read="Masks below fillers in the same place: the masks themselves do it. Both alike: any tokens do.",
            x_label="Where the masks or fillers stand",
            at="{}",
            points=_place_points,
            measures=(CHANGE_IN_POINTS, CHANGE_IN_NATS),
            x_names=PLACES,
            caption=PAIRED,
            says=_says_places,
        ),
    ),
)
