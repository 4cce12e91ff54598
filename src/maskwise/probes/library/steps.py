"""Steps: does decoding in more steps win back what masks cost?

    R d d R Q ? _ _ _ _      one step: mask-count
    R d d R Q ? _ x _ x      two steps: the answer may be filled in either
    R d d R Q ? _ _ x _ ...  40 steps

The prompts of mask-count are decoded: in random order in 2, 4 and 6 steps, as fast decoders do, and in 40 steps, in
random order and the most confident first. The answer is the token in its place; its likelihood is that of the step in
which it was written.

Lines above that of one step show what more steps win back. The flatter a line, the less the number of masks matters at
that speed: the degradation is (max - min) / max of the accuracy over the numbers of masks.

The paper (arXiv 2511.21338, probes 7 and 10, format B): in 40 steps the loss is recovered, best with the most confident
first. Degradation in 2, 4 and 6 steps: LLaDA-Base 19.7, 14.5 and 12.4 %, LLaDA-Instruct 33.2, 26.5 and 22.8 %; after
mask-agnostic tuning about half of it.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from maskwise.probes.library.mask_count import NAME as MASK_COUNT
from maskwise.probes.library.mask_count import few_shots
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import DECODING_COST, FEW_SHOT, Questions, few_shot, with_masks
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring import scores
from maskwise.scoring.estimates import SHARE, Estimate, change, curve, ratio, wide
from maskwise.support.typed import Count
from maskwise.tasks.episodes import CHANCE

NAME = "steps"
RANDOM, CONFIDENT = "random", "confidence"
STRATEGIES = {RANDOM: "random", CONFIDENT: "low-confidence"}  # the orders, and the unmasking strategies they are


def ask(
    setup: Setup,
    masks: tuple[int, ...] = (2, 10, 20, 50, 100, 200),
    points: int = 100,
    random: tuple[int, ...] = (2, 4, 6, 40),
    confident: tuple[int, ...] = (40,),
) -> Iterator[Questions]:
    """random, confident: the numbers of steps in random order, and with the most confident first."""
    from maskwise.probes.answers.decoded import first_token

    ways = [(RANDOM, steps) for steps in random] + [(CONFIDENT, steps) for steps in confident]
    for source in few_shot(setup, [setup.settings.main_relevant]):
        fewer = replace(source, points=source.points[:points])
        for order, steps in ways:
            answering = partial(first_token, steps=steps, rule=STRATEGIES[order], seed=setup.settings.seed)
            for count in masks:
                asked = [{"order": order, "steps": steps, "masks": count}]
                yield fewer.under(asked, with_masks, answering=answering, cost=DECODING_COST, passes=min(steps, count))


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """What the most steps win back with the most masks, then the degradation in each number of steps."""
    steps = table.steps.max()
    longest = table[table.steps == steps]
    most = longest.masks.max()
    right = wide(longest[longest.masks == most], "order")
    name, found = f"accuracy with {most} masks in {steps} steps, most confident first", []
    one_step = wide(few_shots(others[MASK_COUNT]), "masks") if MASK_COUNT in others else None
    if CONFIDENT in right and one_step is not None and most > 2 and {2, most} <= set(one_step):
        lost = change("", one_step[most], one_step[2]).side < 0  # a claim where masks lower it
        claim = "above" if lost else ""
        found.append(change(f"{name}, less in one step", right[CONFIDENT], one_step[most], claim=claim))
    if {CONFIDENT, RANDOM} <= set(right):
        found.append(change(f"{name} less random order", right[CONFIDENT], right[RANDOM], claim="above"))
    for steps, own in table[table.order == RANDOM].groupby("steps"):
        counts = wide(own, "masks")
        if counts.shape[1] > 1:
            name = f"degradation in {steps} steps"
            found.append(ratio(name, counts, scores.relative_loss, low_end=scores.least_relative_loss))
    return found


def by_masks(table: Table, others: Tables) -> Table:
    import pandas as pd

    surest = table.order.map({RANDOM: "", CONFIDENT: ", most confident first"})
    listed = [table.assign(way=table.steps.astype(str) + " steps" + surest)]
    if MASK_COUNT in others:
        one_step = few_shots(others[MASK_COUNT])
        listed.insert(0, one_step[one_step.masks.isin(table.masks)].assign(way="1 step"))
    return curve(pd.concat(listed), ["way", "masks"], {"correct": SHARE}, {"masks": table.masks.min()})


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_masks, "masks", "Masks at the end of the prompt", series="way", guessing=CHANCE, log=True)],
    condition=FEW_SHOT | {"order": str, "steps": Count, "masks": Count},
    needs=frozenset({"masks", "whole sequences"}),
    presets=("full", "paper"),
    sizes={"quick": {"masks": (2, 20, 100), "random": (2, 4, 40)}, "paper": {"points": 1000}},
)
