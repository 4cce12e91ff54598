"""Place in the block: does it matter where in its block the answer stands?

    answer first  R d Q | ? _ _ _
    half way      R d | Q Q ? _ |
    answer last   R d | Q Q Q ? |

A block diffusion model sees no token after the block of its answer. The prompts of mask-count are moved on the grid of
blocks, so that the answer comes first in its block, later, or last: once with two masks, and once with masks to the end
of the block, as decoding shows them. A model that predicts a token from the position before it reads an answer that
comes first from the block before, and sees none of the masks. Other models have no blocks and are not asked.

A level line of two masks means that the place in the block does not matter. Where the other line is lower, the masks of
the rest of the block cost accuracy.

Not in the paper; this probe is ours.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import FEW_SHOT, FewShot, Questions, few_shot
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import SHARE, Estimate, change, curve, wide
from maskwise.support.typed import Count
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import Prompt, opened

NAME = "block-offset"
TWO, TO_THE_END = "2 masks", "to the end"


def ask(setup: Setup, shares: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)) -> Iterator[Questions]:
    block = setup.model.block
    if block is None:
        return
    places = sorted({round(share * (block - 1)) for share in shares})
    masks = {TWO: lambda at: 2, TO_THE_END: lambda at: block - at}
    asked = [{"after": one, "offset": at} for one in masks for at in places if at + masks[one](at) <= block]

    def prompt(source: FewShot, point: int, condition: Mapping[str, Any]) -> Prompt:
        return opened(source.encoded(point), setup.asker.mask_id, masks[condition["after"]](condition["offset"]))

    for source in few_shot(setup):
        yield source.under(asked, prompt)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    right = wide(table, ["after", "offset"])
    places = [at for after, at in right if after == TWO]
    if right.empty or not places or (TO_THE_END, places[0]) not in right:  # an unfinished run
        return []
    first, last = places[0], places[-1]
    name = f"accuracy with {TWO} at place {{}} of the block, less at place {first}"
    moved = [change(name.format(last), right[TWO, last], right[TWO, first])] if last > first else []
    name = f"accuracy with masks to the end of the block less with {TWO}, at place {first}"
    return [*moved, change(name, right[TO_THE_END, first], right[TWO, first])]


def by_place(table: Table, others: Tables) -> Table:
    first = table.groupby("after").offset.min()
    return curve(table, ["after", "offset"], {"correct": SHARE}, lambda one: {"offset": first[one["after"]]})


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_place, "offset", "Place of the answer in its block", series="after", guessing=CHANCE)],
    condition=FEW_SHOT | {"after": str, "offset": Count},
    needs=frozenset({"blocks"}),
    sizes={"quick": {"shares": (0.0, 0.5, 1.0)}},
)
