"""Mechanism (ours): do appended masks act on the answer's own row, or through the rows of the context?

    2 masks       R d d Q ? _
    200 masks     R d d Q ? _ _ _ ...   attention to all but two of them is cut from some rows
    full stops    R d d Q ? _ . . ...   a control, cut in the same way

Prompts of mask-count. In every layer, attention to the masks beyond the second is cut from the row that predicts the
answer, from all other rows but their own, or from both. With y the accuracy, or the log-likelihood, where the answer's
row and where the other rows see them:

    total         y(seen, seen) - y(cut, cut)      y(cut, cut) is that of two masks
    answer's row  y(seen, cut) - y(cut, cut)       direct
    other rows    y(cut, seen) - y(cut, cut)       through the context
    interaction   total - answer's row - other rows

The path is the part whose interval lies on the same side of zero as that of the total. Seen by no row, masks must do
nothing: a check, to rounding. An effect that is gone where keys of the masks are biased by minus the log of their
number comes from their number; one that is gone where all have one position, from their distance. Masks below full
stops in the same place (the end, the front, the middle, scattered between questions): the masks themselves do it.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from msgspec import UnsetType

from maskwise.probes.extra_tokens import (
    ANSWER,
    BIASED,
    BOTH,
    CHANGES,
    CUTS,
    END,
    ONE_POSITION,
    OTHERS,
    PLACES,
    WHOLE,
    question_starts,
    slots,
    two_masks,
    with_extra,
)
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions, episodes
from maskwise.probes.setup import Asker, Setup
from maskwise.records.record import Condition
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import NATS, POINTS, QUESTION, SHARE, Estimate, answers, change, curve, mean
from maskwise.support.errors import UserError
from maskwise.support.randomness import python_random
from maskwise.support.typed import Count
from maskwise.tasks.episodes import Episode, mixed
from maskwise.tasks.prompts import Prompt, encode_parts

NAME = "mechanism"
MASKS, FILLERS = "masks", "fillers"
BASELINE: Condition = {"masks": 2}
TWO = "2 masks"
SEEN_BY = {BOTH: "no row", OTHERS: "the answer's row", ANSWER: "the other rows", WHOLE: "all rows"}
PLACE_NAMES = dict(zip(PLACES, ("at the end", "at the front", "in the middle", "scattered"), strict=True))
INTERACTION = ", interaction"
PARTS = ("", ", seen by the answer's row alone", ", seen by the other rows alone", INTERACTION)
WEIGHED = {WHOLE: "unchanged", BIASED: "biased", ONE_POSITION: "one position"}


def ask(setup: Setup, mask_counts: tuple[int, ...] = (20, 200), points: int = 100) -> Iterator[Questions]:
    from maskwise.probes.answers.changed_attention import ask_changed

    if not setup.model.attention_readable:
        setup.note(f"{NAME} was not run: the attention of a {setup.model.family.title} cannot be cut")
        return
    if min(mask_counts) < 3:
        least = min(mask_counts)
        raise UserError(f"{NAME} compares more masks with two: its mask counts must be at least 3, not {least}")
    settings, asked = setup.settings, conditions(mask_counts)
    most = min(settings.questions, points)
    for episode in episodes(setup, settings.main_relevant, settings.distractors, most):
        prompt = prompts_of(setup.asker, episode)

        def answer(point: int, episode=episode) -> str:
            letter: str = episode.tests[point].letter
            return letter

        yield Questions(Points(episode.task.name, range(most)), asked, prompt, answer, ask_changed)


def condition_of(tokens: str, count: int, place: str = END, attention: str = WHOLE) -> Condition:
    """`count` masks, or as many tokens of which all but two are fillers."""
    counts: Condition = {"masks": count} if tokens == MASKS else {"masks": 2, "fillers": count - 2}
    return {**counts, "place": place, "attention": attention}


def conditions(counts: Sequence[int]) -> list[Condition]:
    found = [BASELINE]
    for count in counts:
        found += [condition_of(MASKS, count, attention=attention) for attention in CHANGES]
        found += [condition_of(FILLERS, count, attention=attention) for attention in CUTS]
        found += [condition_of(tokens, count, place) for place in PLACES[1:] for tokens in (MASKS, FILLERS)]
    return found


def prompts_of(asker: Asker, episode: Episode) -> Any:
    """Of (point, condition); masks and fillers of one number are scattered over the same places."""
    examples = mixed(episode)

    @lru_cache(1)  # all conditions of a point share a text
    def encoded(point: int) -> Any:
        return encode_parts(asker.tokenizer, examples, episode.tests[point], "right", asker.chat)

    def prompt(point: int, condition: Mapping[str, Any]) -> Prompt:
        text, parts = encoded(point)
        plain = two_masks(text, asker.mask_id)
        if condition == BASELINE:
            return plain
        fillers = condition.get("fillers", 0)
        count = fillers or condition["masks"] - 2
        draws = python_random("scattered tokens", episode.seed, episode.task.name, point, count)
        before = slots(condition["place"], count, question_starts(parts[: text.row]), len(plain.ids), draws)
        return with_extra(
            plain, before, asker.filler_id if fillers else asker.mask, not fillers, condition["attention"]
        )

    return prompt


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """The total and its parts, of the most masks first; then the controls."""
    table, found = labelled(table), []
    counts = sorted(set(table["count"][table.place.notna()]), reverse=True)
    for count in counts:
        right, nats = (effects(table, MASKS, count, value) for value in ("correct", "nll"))
        name = f"with {count} masks instead of 2"
        for part in PARTS[:-1]:
            found.append(change(f"accuracy {name}{part}", *right[part]))
        after, before = right[INTERACTION]
        found.append(mean(f"accuracy {name}{INTERACTION}", after - before, POINTS, (-2.0, 2.0)))
        for part, (after, before) in nats.items():  # a loss of likelihood is negative
            found.append(mean(f"log-likelihood {name}{part}", before - after, NATS))
        name = f"accuracy with {count - 2} fillers after 2 masks instead of none"
        found.append(change(name, *effects(table, FILLERS, count, "correct")[""]))
        for place, where in PLACE_NAMES.items():
            both = (column(table, tokens, count, "correct", place) for tokens in (MASKS, FILLERS))
            found.append(change(f"accuracy with {count} masks {where}, less with as many fillers there", *both))
    cut = table[table.attention == BOTH].set_index(QUESTION).nll - base_of(table, "nll")
    most = float(cut.abs().max()) if len(cut) else None
    found.append(Estimate("largest difference where no row sees them, rounding", most, n=len(cut), unit=NATS))
    return [one for one in found if one.value is not None]


def labelled(table: Table) -> Table:
    """With all columns of conditions, and `tokens`, `count` and in words what was `added` to two masks."""
    table = table.reindex(columns=[*dict.fromkeys([*table, "fillers", "place", "attention"])])
    tokens = table.fillers.notna().map({True: FILLERS, False: MASKS})
    count = table.masks.where(tokens == MASKS, table.fillers + 2).astype(int)
    added = count.astype(str) + " masks"
    added = added.where(tokens == MASKS, "2 masks, " + (count - 2).astype(str) + " fillers")
    return table.assign(tokens=tokens, count=count, added=added)


def column(table: Table, tokens: str, count: int, value: str, place: str = END, attention: str = WHOLE) -> Any:
    """The answers to one condition, by question."""
    asked = (table.tokens == tokens) & (table["count"] == count)
    return answers(table[asked & (table.place == place) & (table.attention == attention)], value)


def base_of(table: Table, value: str) -> Any:
    return answers(table[table.place.isna()], value)


def effects(table: Table, tokens: str, count: int, value: str) -> dict[str, tuple[Any, Any]]:
    """{part: (after, before)} of the total and its parts, by question."""
    whole, own, context = (column(table, tokens, count, value, END, seen) for seen in (WHOLE, OTHERS, ANSWER))
    two = base_of(table, value)
    return dict(zip(PARTS, ((whole, two), (own, two), (context, two), (whole - own, context - two)), strict=True))


def drawn(table: Table, name: str, wanted: Mapping[str, str]) -> Table:
    """Two masks, then what was added to them, in the order and the words of `wanted`: the places of a figure."""
    import pandas as pd

    more = [table[table[name] == one].assign(**{name: words}) for one, words in wanted.items()]
    two = [
        table[table.place.isna()].assign(added=added, **{name: TWO}) for added in dict.fromkeys(pd.concat(more).added)
    ]
    measures = {"correct": SHARE, "nll": NATS, "nll_choice": NATS}
    return curve(pd.concat([*two, *more]), ["added", name], measures, {name: TWO}) if two else table[:0]


def by_rows(table: Table, others: Tables) -> Table:
    table = labelled(table)
    return drawn(table[table.place.isin([END]) | table.place.isna()], "attention", SEEN_BY)


def by_weight(table: Table, others: Tables) -> Table:
    table = labelled(table)
    return drawn(table[(table.place.isin([END]) | table.place.isna()) & (table.tokens == MASKS)], "attention", WEIGHED)


def by_place(table: Table, others: Tables) -> Table:
    table = labelled(table)
    return drawn(table[table.attention.isin([WHOLE]) | table.place.isna()], "place", PLACE_NAMES)


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(
            by_rows, "attention", "Rows that see what was added", "", series="added", panel="measure", kind="points"
        ),
        Figure(
            by_weight,
            "attention",
            "Attention to masks beyond the second",
            "",
            title="Their number or where they stand?",
            series="added",
            panel="measure",
            kind="points",
        ),
        Figure(
            by_place,
            "place",
            "Where they stand",
            "",
            title="Does the place matter?",
            series="added",
            panel="measure",
            kind="points",
        ),
    ],
    condition={"masks": Count, "fillers": Count | UnsetType, "place": str | UnsetType, "attention": str | UnsetType},
    needs=frozenset({"masks", "whole sequences"}),
    sizes={"quick": {"mask_counts": (200,)}},
)
