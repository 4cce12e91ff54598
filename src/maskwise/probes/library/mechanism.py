"""Mechanism (ours): do appended masks act on the answer's own row, or through the rows of the context?

    2 masks       R d d Q ? _
    200 masks     R d d Q ? _ _ _ ...   attention to all but two of them is cut from some rows

Prompts of mask-count. In every layer, attention to the masks beyond the second is cut from the row that predicts the
answer, from all other rows but their own, or from both. With y the accuracy, or the log-likelihood, where the answer's
row and where the other rows see them:

    total         y(seen, seen) - y(cut, cut)      y(cut, cut) is that of two masks
    answer's row  y(seen, cut) - y(cut, cut)       direct
    other rows    y(cut, seen) - y(cut, cut)       through the context
    interaction   total - answer's row - other rows

The path is the part whose interval lies on the same side of zero as that of the total. Seen by no row, masks must do
nothing: a check, to rounding. An effect that is gone where keys of the masks are biased by minus the log of their
number comes from their number.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from msgspec import UnsetType

from maskwise.probes.extra_tokens import ANSWER, BIASED, BOTH, OTHERS, WHOLE, changed
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import FewShot, Points, Questions, few_shot, with_masks
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import NATS, POINTS, SHARE, Estimate, answers, change, curve, mean
from maskwise.support.errors import UserError
from maskwise.support.typed import Count
from maskwise.tasks.prompts import Prompt

NAME = "mechanism"
TWO, INTERACTION = "2 masks", ", interaction"
ROWS = {  # that see the masks beyond the second
    WHOLE: "all rows",
    ANSWER: "the other rows",
    OTHERS: "the answer's row",
    BOTH: "no row",
    BIASED: "all rows, biased keys",
}


def ask(setup: Setup, mask_counts: tuple[int, ...] = (20, 200), points: int = 100) -> Iterator[Questions]:
    from maskwise.probes.answers.changed_attention import ask_changed

    if not setup.model.attention_readable:
        setup.note(f"{NAME} was not run: the attention of a {setup.model.family.title} cannot be cut")
        return
    if min(mask_counts) < 3:
        least = min(mask_counts)
        raise UserError(f"{NAME} compares more masks with two: its mask counts must be at least 3, not {least}")
    asked = [{"masks": count, "place": "end", "attention": one} for count in mask_counts for one in ROWS]
    for source in few_shot(setup, [setup.settings.main_relevant], afresh=False):
        prompt = partial(prompt_of, source)
        fewer = Points(source.task, source.points[:points])
        yield Questions(fewer, [{"masks": 2}, *asked], prompt, source.answer, ask_changed)


def prompt_of(source: FewShot, point: int, condition: Mapping[str, Any]) -> Prompt:
    return changed(with_masks(source, point, condition), condition.get("attention", WHOLE))


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """The total and its parts, of the most masks first."""
    table, found = labelled(table), []
    for count in sorted({*table.masks} - {2}, reverse=True):
        right, nats = (effects(table, count, value) for value in ("correct", "nll"))
        name = f"with {count} masks instead of 2"
        for part, (after, before) in right.items():
            if part == INTERACTION:
                found.append(mean(f"accuracy {name}{part}", after - before, POINTS, (-2.0, 2.0)))
            else:
                found.append(change(f"accuracy {name}{part}", after, before))
        for part, (after, before) in nats.items():  # a loss of likelihood is negative
            found.append(mean(f"log-likelihood {name}{part}", before - after, NATS))
    return [one for one in found if one.value is not None]


def labelled(table: Table) -> Table:
    """With the `rows` that see the masks. Version 0.2 asked more: full stops, and masks in other places."""
    table = table.reindex(columns=[*dict.fromkeys([*table, "fillers", "place", "attention"])])
    rows = table.attention.fillna(TWO).map({TWO: TWO, **ROWS})
    return table.assign(rows=rows)[rows.notna() & table.fillers.isna() & (table.place.fillna("end") == "end")]


def effects(table: Table, count: int, value: str) -> dict[str, tuple[Any, Any]]:
    """{part: (after, before)} of the total and its parts, by question."""
    asked = table[table.masks.isin((2, count))]
    own = {rows: answers(asked[asked.rows == rows], value) for rows in (TWO, *ROWS.values())}
    two, whole, context, direct, _, biased = own.values()
    return {
        "": (whole, two),
        ", seen by the answer's row alone": (direct, two),
        ", seen by the other rows alone": (context, two),
        INTERACTION: (whole - direct, context - two),
        ", with biased keys": (biased, two),
    }


def by_rows(table: Table, others: Tables) -> Table:
    return curve(labelled(table), ["masks", "rows"], {"correct": SHARE, "nll": NATS}, {"masks": 2, "rows": TWO})


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_rows, "rows", "Rows that see the masks", "", series="masks", panel="measure", kind="points")],
    condition={"masks": Count, "fillers": Count | UnsetType, "place": str | UnsetType, "attention": str | UnsetType},
    needs=frozenset({"masks", "whole sequences"}),
    sizes={"quick": {"mask_counts": (200,)}},
)
