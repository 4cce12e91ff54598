"""Mitigations: what wins back the accuracy that appended masks cost?

    one step         R d d R Q ? _ _ _ _ _ _ _ _ ...   200 masks, filled at once
    growing canvas   R d d R Q ? _ _ _                 few masks at a time
    biased mask keys R d d R Q ? _ _ (_ _ _ _ ...)     all but two weigh as much as one

Each way to decode answers the same questions on a canvas of 200 masks, greedily, and its answer is the first token. All
but the one-step ways take 40 steps, so they are compared at equal speed. The likelihood is that of the right answer in
the step that commits an answer. Tuning is another model: maskwise diagnose MODEL MODEL+ADAPTER --probes mitigations
compares each way of the tuned model with one step of the first model.

A way counts only where accuracy and likelihood both rise. The share of the loss that it wins back is
(a_200' - a_200) / (a_2 - a_200), so that lowering the accuracy with two masks is no gain.

The ways: 40 steps (arXiv 2511.21338); small blocks (2502.09992); a growing canvas (after 2508.00819); a window of
visible masks (2508.14148); soft masks (2510.17206); biased mask keys (ours): the keys of the masks beyond the second
are biased by minus the log of their number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from maskwise.probes.extra_tokens import BIASED, changed
from maskwise.probes.probe import FIRST, Figure, Probe
from maskwise.probes.questions import DECODING_COST, FEW_SHOT, FewShot, Questions, few_shot, with_masks
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import NATS, SHARE, Estimate, change, curve, mean, recovered
from maskwise.support.typed import Count
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import Prompt

NAME = "mitigations"
ONE_STEP, BIASED_KEYS = "one step", "biased mask keys"
BLOCKS = {"steps": 40, "block": 10}
WAYS: Mapping[str, Mapping[str, Any]] = {  # options of `generate`
    ONE_STEP: {"steps": 1},
    "growing canvas": BLOCKS | {"canvas": "growing"},
    "40 steps": {"steps": 40},
    "small blocks": BLOCKS,
    "window": BLOCKS | {"canvas": "window", "window": 20},
    "soft masks": {"steps": 40, "soft_mask": True},
    BIASED_KEYS: {},  # of one forward pass
}


def ask(setup: Setup, ways: tuple[str, ...] = tuple(WAYS), masks: int = 200, points: int = 100) -> Iterator[Questions]:
    from maskwise.probes.answers.changed_attention import ask_changed
    from maskwise.probes.answers.decoded import first_token

    model = setup.model
    if BIASED_KEYS in ways and (not model.attention_readable or model.family.framed):
        setup.note(f"{NAME}: the attention of this model is fixed, so its mask keys cannot be biased")
        ways = tuple(way for way in ways if way != BIASED_KEYS)
    for source in few_shot(setup, [setup.settings.main_relevant]):
        fewer = replace(source, points=source.points[:points])
        for way, canvas in ((ONE_STEP, 2), *((way, masks) for way in ways)):
            asked, options = [{"way": way, "masks": canvas}], WAYS[way]
            if way == BIASED_KEYS:
                yield fewer.under(asked, biased, answering=ask_changed, cost=DECODING_COST)
            else:
                answering = partial(first_token, **options)
                yield fewer.under(asked, with_masks, answering=answering, cost=DECODING_COST, passes=options["steps"])


def biased(source: FewShot, point: int, condition: Mapping[str, Any]) -> Prompt:
    return changed(with_masks(source, point, condition), BIASED)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """Of each way: the change of accuracy and of nats from one step (of the first model), and the loss won back."""
    first = others.get(FIRST, table)
    (right, nats), (before, nats_before) = ((by_way(one), by_way(one, "nll")) for one in (table, first))
    base = ONE_STEP if first is table else f"{ONE_STEP} of the first model"
    few, most = int(table.masks.min()), int(table.masks.max())
    found: list[Estimate] = []
    for way in WAYS if few < most and {(ONE_STEP, few), (ONE_STEP, most)} <= set(before) else ():
        if (way, most) in right and (way != ONE_STEP or first is not table):
            ends = {"few": before[ONE_STEP, few], "most": before[ONE_STEP, most], "after": right[way, most]}
            found += [
                change(f"{way}: accuracy less {base}", ends["after"], ends["most"]),
                mean(f"{way}: nats less {base}", nats[way, most] - nats_before[ONE_STEP, most]),
                recovered(f"{way}: loss won back", **ends),
            ]
    return found


def by_way(table: Table, value: str = "correct") -> Table:
    """Questions x (way, masks); nan where a way did not answer."""
    return table.set_index(["task", "point", "way", "masks"])[value].astype(float).unstack(["way", "masks"])


def counting(found: Sequence[Estimate]) -> list[str]:
    """The ways with which accuracy and likelihood both rise."""
    sides = {one.name.partition(" less ")[0]: one.side for one in found}
    return [way for way in WAYS if sides.get(f"{way}: accuracy", 0) > 0 > sides.get(f"{way}: nats", 0)]


def by_masks(table: Table, others: Tables) -> Table:
    return curve(
        table, ["way", "masks"], {"correct": SHARE, "nll": NATS}, {"way": ONE_STEP, "masks": table.masks.max()}
    )


def advice(found: Sequence[Estimate]) -> str | None:
    ways = counting(found)
    return f"accuracy and likelihood both rise with {', '.join(ways)}" if ways else None


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_masks, "way", "", "", kind="points", series="masks", panel="measure", guessing=CHANCE)],
    condition=FEW_SHOT | {"way": str, "masks": Count},
    needs=frozenset({"masks", "whole sequences"}),
    advice=advice,
)
