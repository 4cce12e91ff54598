"""mechanism (ours): by which path do appended masks act, on the answer's own row or through the rows of the context?

Asked like mask-count (format B, mixed examples), at k masks against two. Attention to masks 3..k is cut from the
answer's row, from all other rows but their own, or from both, which must equal two masks up to rounding. paths.py says
what is made of the answers.

Controls: as many fillers, cut the same way; keys of the masks biased by minus the log of their number; their positions
made one; masks and fillers at the front, in the middle and scattered.

Condition: {"masks": 2}; {"masks": 200, "place": "end", "attention": "answer cut"}; fillers {"masks": 2, "fillers": 198,
"place": "end", "attention": "whole"}. The summary's "mechanism" holds the paths.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial

from msgspec import UNSET, UnsetType

from maskwise.probes import extra_tokens, paths, probe
from maskwise.probes.extra_tokens import ANSWER, BIASED, BOTH, END, ONE_POSITION, OTHERS, PLACES, WHOLE, ChangedPrompt
from maskwise.probes.few_shot import episodes
from maskwise.probes.library.filler import filler_name
from maskwise.probes.paths import BASELINE, MASKS, NAME, InEachUnit, Mechanism, TokenPaths, tokens_and_count
from maskwise.probes.probe import NO_MASK_TOKEN, Asker, ItemMaker, Probe, Setup, Unit, items_of, units_of
from maskwise.probes.section import Entry, Point, Section, Shown, Summary, TextTable, in_unit
from maskwise.records.record import Condition, condition_text
from maskwise.scoring.intervals import Estimate
from maskwise.scoring.numbers import NBSP, percent, signed
from maskwise.scoring.scores import Score
from maskwise.support.errors import UserError
from maskwise.support.randomness import python_random
from maskwise.support.typed import Count
from maskwise.tasks.episodes import Episode, mixed
from maskwise.tasks.prompts import Encoded, encode_parts

UNITS = ("points", "nats")
PATHS = {
    "answer": "they act on the answer's own row",
    "others": "they act through the other rows",
    "answer and others": "they act on the answer's own row and through the other rows",
    "interaction": "they act only where the answer's row and the other rows see them together",
    paths.INCONCLUSIVE: "the path is inconclusive",
}


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.changed_attention import ask_changed

    if not setup.model.attention_readable:
        setup.note(f"{NAME} was not run: the attention of a {setup.model.family.title} cannot be cut")
        return
    counts = setup.own["mask_counts"]
    if min(counts) < 3:
        raise UserError(f"{NAME} compares more masks with two: its mask counts must be at least 3, not {min(counts)}")
    asked, settings = paths.conditions(counts), setup.settings
    most = min(settings.points, setup.own["points"])
    for episode in episodes(setup, settings.main_relevant, settings.distractors, most):
        yield from units_of(most, len(asked), changed_items(setup.asker, episode, asked), ask_changed)


def changed_items(asker: Asker, episode: Episode, asked: Sequence[Condition]) -> ItemMaker:
    examples = mixed(episode)

    @lru_cache(1)  # all conditions of a point share a text
    def encoded(point: int) -> tuple[Encoded, tuple[int, ...]]:
        return encode_parts(asker.tokenizer, examples, episode.tests[point], "right", asker.chat)

    def made(point: int, condition: Condition) -> tuple[ChangedPrompt, str]:
        where = episode.seed, episode.task.name, point
        return prompt_for(asker, *encoded(point), condition, where), episode.tests[point].letter

    return items_of(NAME, episode.task.name, asked, made)


def prompt_for(
    asker: Asker, encoded: Encoded, parts: Sequence[int], condition: Condition, drawn_for: tuple[int, str, int]
) -> ChangedPrompt:
    """Masks and fillers of one number are scattered over the same places."""
    plain = extra_tokens.two_masks(encoded, asker.mask_id)
    if condition == BASELINE:
        return plain
    fillers = int(condition.get("fillers", 0))
    count = fillers or int(condition["masks"]) - 2
    starts = extra_tokens.question_starts(parts[: encoded.row])
    draws = python_random("scattered tokens", *drawn_for, count)
    before = extra_tokens.slots(str(condition["place"]), count, starts, len(plain.ids), draws)
    token = asker.filler_id if fillers else asker.mask
    return extra_tokens.with_extra(plain, before, token, not fillers, str(condition["attention"]))


SEEN_BY = {WHOLE: "all", OTHERS: "answer's", ANSWER: "others", BOTH: "none"}
WEIGHED = {WHOLE: "unchanged", BIASED: "biased", ONE_POSITION: "one position"}
PLACE_NAMES = dict(zip(PLACES, ("at the end", "at the front", "in the middle", "scattered"), strict=True))
from_two_masks = partial(
    Section,
    measures=(
        in_unit("points", "change", "Change in accuracy (points)"),
        in_unit("nats", "nll_change", "Change in NLL (nats)"),
    ),
    caption="Difference from two masks over the same points; whisker: 95 % interval, points paired, stratified by "
    "task.",
)
LEAST_TOLD = 1e-6  # nats; records hold no more digits
APART = 0.15  # between the markers of one place on the x axis


def _summary(shown: Shown) -> Mechanism:
    return shown.summary.extras.get(NAME) or Mechanism(changes=[], paths=[], places=[], checks={})


def _entries(shown: Shown) -> dict[str, Entry]:
    """The entries of all conditions but the baseline, with their changes, by the condition's text."""
    entries = {condition_text(entry.condition): entry for entry in shown.entries(NAME)}
    found = {}
    for change in _summary(shown).changes:
        ends: dict[str, float | None] = {}
        for name, score, factor in (("change", change.points, 100), ("nll_change", change.nats, 1)):
            drawn = (None if value is None else factor * value for value in (score.value, score.low, score.high))
            ends |= Estimate.of(drawn).named(name)
        text = condition_text(change.condition)
        found[text] = entries[text].changed(**ends)
    return found


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
            text = condition_text(paths.condition_of(tokens, count, place, attention))
            if text in entries:
                found.append(Point(name, x + shift, entries[text]))
    return found


def _weighed_points(shown: Shown) -> list[Point]:
    """Of masks alone."""
    found = _along(shown, [(END, attention) for attention in WEIGHED])
    return [point for point in found if "fillers" not in point.entry.condition]


def in_points(found: Score, unit: str = "points") -> str:
    """−23.0 points (−26.1 to −19.9)"""
    return _with_ends(found, unit, 100, 1)


def in_nats(found: Score, unit: str = "nats") -> str:
    return _with_ends(found, unit, 1, 3)


def _with_ends(found: Score, unit: str, factor: float, digits: int) -> str:
    """A difference and its interval; with no interval where it never varied, with no value where it was not asked."""
    if found.value is None:
        return "not measured"
    value, *ends = (
        None if number is None else signed(factor * number, digits) for number in (found.value, found.low, found.high)
    )
    return f"{value}{unit and NBSP}{unit} ({'no interval' if None in ends else ' to '.join(map(str, ends))})"


def _in_both(found: InEachUnit) -> str:
    return f"{in_points(found.points)}, {in_nats(found.nats)}"


def sentence(effect: TokenPaths, what: str) -> str:
    """The effect of the tokens by path, in the measure whose total excludes zero: points if both do."""
    start = f"{what} against 2 masks: {in_points(effect.points.total)}, {in_nats(effect.nats.total)}"
    if effect.content is not UNSET:
        start += f", {in_nats(effect.content.total)} of them in the choice among the allowed answers"
    measured = ((effect.points, in_points), (effect.nats, in_nats))
    found, in_words = next(((one, show) for one, show in measured if one.path != paths.NO_EFFECT), (None, in_nats))
    if found is None:
        return f"{start}: no effect was detected, so there is no path to name"
    shares = found.shares or {}
    alone = {"answer": "seen by the answer's row alone", "others": "by the other rows alone"}
    listed = [
        f"{words} {in_words(getattr(found, name))}" + ("" if shares[name] is None else f", {percent(shares[name])}")
        for name, words in (alone | {"interaction": "interaction"}).items()
    ]
    return f"{start}: {PATHS[found.path]} ({'; '.join(listed)} of the total)"


def _says(shown: Shown) -> list[str]:
    names = {(tokens, count): name for tokens, count, name in _series(shown)}
    summary = _summary(shown)
    lines = [sentence(effect, names[effect.tokens, effect.masks]) for effect in summary.paths]
    largest = summary.checks.get(paths.LARGEST_DIFFERENCE)
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
        f"{names[tokens_and_count(one.condition)]}, {words[one.condition['attention']]}: {_in_both(one)}"
        for one in _summary(shown).changes
        if one.condition["attention"] in words
    ] or ["not run"]


def _says_places(shown: Shown) -> list[str]:
    return [
        f"{one.masks} masks {PLACE_NAMES[one.place]} less fillers in the same places: {_in_both(one)}"
        for one in _summary(shown).places
        if one.points.value is not None
    ] or ["not run"]


def tables(summary: Summary) -> list[TextTable]:
    """For the terminal: every condition against two masks, and the paths."""
    found: Mechanism | None = summary.extras.get(NAME)
    if found is None:
        return []
    rows = []
    for one in found.paths:
        name = f"{one.masks} masks" if one.tokens == MASKS else f"{one.masks - 2} fillers"
        changes = [change for change in found.changes if tokens_and_count(change.condition) == (one.tokens, one.masks)]
        measured = [(_short_name(change.condition), change.points, change.nats) for change in changes]
        measured.append(("interaction", one.points.interaction, one.nats.interaction))
        rows += [(f"{name}, {what}", in_points(points, ""), in_nats(nats, "")) for what, points, nats in measured]
        rows.append((f"{name}, path", one.points.path, one.nats.path))
    return [TextTable(f"{NAME}: change from 2 masks (95 % interval)", ("", *UNITS), rows)]


def _short_name(condition: Condition) -> str:
    place, attention = str(condition["place"]), str(condition["attention"])
    return attention if place == END and attention != WHOLE else PLACE_NAMES[place]


def _baseline(condition: Condition, all_conditions: Sequence[Condition]) -> Condition | None:
    return BASELINE if BASELINE in all_conditions else None


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="how appended masks act: attention to them is cut, one kind of row at a time",
    condition={"masks": Count, "fillers": Count | UnsetType, "place": str | UnsetType, "attention": str | UnsetType},
    units=units,
    parameters={"mask_counts": (20, 200), "points": 100},
    quick={"mask_counts": (200,)},
    not_causal=NO_MASK_TOKEN,
    not_blocks="attention is cut in models that see every token",
    baseline=_baseline,
    measures=probe.with_nll,
    extras={NAME: paths.mechanism},
    columns={},
    tables=tables,
    sections=(
        from_two_masks(
            title="By which path do appended masks act?",
            question="Attention to the masks beyond the second is cut from the row that predicts the answer, from all "
            "other rows, or from both. What remains of their effect on the answer?",
            how_to_read="An effect that remains where only the answer's row sees the masks is direct; one that remains "
            "where only the other rows see them comes through the context. Seen by none, masks must do nothing: a "
            "check. Fillers are cut the same way as a control.",
            x_label="Rows that see the masks or fillers (answer's: the row that predicts it)",
            points=lambda shown: _along(shown, [(END, attention) for attention in SEEN_BY]),
            x_names=tuple(SEEN_BY.values()),
            says=_says,
        ),
        from_two_masks(
            name="mask-weight",
            title="Is it the number of the masks, or where they stand?",
            question="The keys of the masks beyond the second are biased by minus the log of their number, so that "
            "together they weigh as much as one token; or all get the position of the first of them.",
            how_to_read="An effect that is gone with biased keys comes from their number; one that is gone in one "
            "position, from their distance.",
            x_label="Masks beyond the second",
            points=_weighed_points,
            x_names=tuple(WEIGHED.values()),
            says=_says_weighed,
        ),
        from_two_masks(
            name="mask-places",
            title="Does it matter where the masks stand?",
            question="The same number of masks at the end, at the front, in the middle of the examples or scattered "
            "between them, against fillers in the same places.",
            paper="Not in the paper, which appends them.",
            how_to_read="Masks below fillers in the same place: the masks themselves do it. Both alike: any tokens do.",
            x_label="Where the masks or fillers stand",
            points=lambda shown: _along(shown, [(place, WHOLE) for place in PLACES]),
            x_names=PLACES,
            says=_says_places,
        ),
    ),
)
