"""Marginals: do distant masks get the same predictions?

    to the end  t t t t ? ? ? ? ? ?
    text after  t t t t ? ? ? ? ? ? t t

A piece of prose and then many masks, predicted in one pass, once with masks to the end and once with the text going on
after them. Near is the mask next to the text, far the second half of the masks, and p_d the prediction at distance d.

The likeness of neighbours is the total variation between p_d and p_(d+1), 1/2 sum |p_d - p_(d+1)|: 0 is identical, 1
nothing in common; likewise to the frequencies of the text's tokens. Frequent are the text's 50 commonest tokens and the
end token. Entropy that climbs and levels off while both distances fall to 0 shows predictions that fade into word
frequencies; with text on both sides the entropy should be highest in the middle.

The second paper (arXiv 2510.03289) conjectures that far from any visible token predictions lose information and become
almost identical, in the middle where both ends are visible. "Almost" is below .1 and "frequent" above .5 by us.
"""

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import UnsetType

from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Setup
from maskwise.probes.text import QUICK_GAP, TASK, gap_pieces, with_gap
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import NATS, QUESTION, SHARE, Estimate, curve, mean
from maskwise.support.typed import Count
from maskwise.tasks.prompts import Prompt

if TYPE_CHECKING:
    import pandas as pd

NAME = "marginals"
ALIKE = 0.1  # total variation: nine tenths of the predictions agree
FREQUENT = 0.5
DRAWN = {
    "common": "probability of frequent tokens",
    "tv_next": "distance to the next mask's prediction",
    "tv_unigram": "distance to word frequencies",
}
EVIDENCE = {"tv_unigram": float, "common": float, "mode_common": float | UnsetType, "tv_next": float | UnsetType}
AFTER = {"none": "masks to the end", "visible": "text after the masks"}


def ask(
    setup: Setup,
    pieces: int = 20,
    before: int = 64,
    masks: int = 64,
    after: int = 32,
    distances: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 56, 60, 62, 63, 64),
) -> Iterator[Questions]:
    from maskwise.probes.answers.distant_masks import common_tokens, compare_rows, text_frequencies

    asker, found = setup.asker, gap_pieces(setup, NAME, pieces, before + masks + after)
    if not found:
        return
    frequencies = text_frequencies(asker.tokenizer, setup.text, setup.model.vocab)
    common = common_tokens(frequencies, asker.tokenizer.eos_token_id)

    def prompt(point: int, condition: Mapping[str, Any]) -> Prompt:
        return with_gap(asker, found[point], before, masks, condition["distance"], condition["suffix"] == "visible")

    yield Questions(
        Points(TASK, range(len(found))),
        [{"suffix": suffix, "distance": d} for suffix in AFTER for d in distances if d <= masks],
        prompt,
        answering=partial(compare_rows, frequencies=frequencies, common=common),
    )


def of_pieces(table: Table, distances: Collection[int], column: str, suffix: str = "none") -> "pd.Series":
    """The mean of each piece at these distances."""
    own = table[(table.suffix == suffix) & table.distance.isin(distances)]
    return own.groupby(QUESTION, observed=True)[column].mean()


def metrics(table: Table, others: Tables) -> list[Estimate]:
    masks, distances, table = table.masks_seen.max(), {*table.distance}, measured(table)
    near, far = {1}, {d for d in distances if masks / 2 <= d < masks}
    middle, ends = {d for d in distances if abs(d - (masks + 1) / 2) <= masks / 8}, {1, masks}
    fading = of_pieces(table, far - near, "entropy") - of_pieces(table, near, "entropy")
    alike, frequent = (of_pieces(table, far, name).dropna() for name in ("tv_next", "mode_common"))
    alike_near, frequent_near = (of_pieces(table, near, name).mean() for name in ("tv_next", "mode_common"))
    often = max(FREQUENT, frequent_near)
    between = of_pieces(table, middle, "entropy", "visible") - of_pieces(table, ends - middle, "entropy", "visible")
    found = [
        mean("entropy, far less near", fading, NATS, claim="above"),
        mean("distance of neighbours, far", alike, SHARE, (0.0, 1.0), claim="below", against=min(ALIKE, alike_near)),
        mean("most probable token is frequent, far", frequent, SHARE, (0.0, 1.0), claim="above", against=often),
        mean("entropy, middle less ends, text after", between, NATS, claim="above"),
    ]
    return [one for one in found if one.value is not None]


def measured(table: Table) -> Table:
    """Runs of version 0.1 have no "mode_common" and no "tv_next"."""
    return table.reindex(columns=[*dict.fromkeys((*table, *EVIDENCE))])


def by_distance(table: Table, others: Tables) -> Table:
    own = measured(table).assign(after=table.suffix.map(AFTER)).rename(columns=DRAWN)
    return curve(own, ["after", "distance"], {"entropy": NATS, **dict.fromkeys(DRAWN.values(), "")})


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(by_distance, "distance", "Distance from the last visible token", "", series="after", panel="measure")
    ],
    condition={"suffix": str, "distance": Count},
    evidence=EVIDENCE,
    needs=frozenset({"masks", "whole sequences"}),
    sizes={"quick": QUICK_GAP},
)
