"""Trajectory: do the last steps destroy right answers?

    step 1     Q Q _ a _ _ _
    step 2     Q Q _ a a _ a
    last step  Q Q a a ! a a

Questions with a known answer (few-shot ones, or yours with --data) are decoded greedily under several strategies, with
one and several tokens per step. After each step every mask that is left is filled with its likeliest token, and the
answer is read from that text; a text without an answer is neither right nor wrong.

Right then wrong: right after some step, wrong at the end; wrong then right is its mirror. Both are given above chance,
which is what the same answers give in random order: with R right and W wrong of T looks, W/T of the questions with a
right look are lost and R/T of those with a wrong one gained. So only losses above 0 are due to the order of the steps.
The answer stands from the step after which it does not change any more.

Not in the paper. Wang et al. (arXiv 2508.09138) report right answers in the middle that are overwritten later.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from maskwise.probes.checked import AskedSet, asked_sets
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import DECODING_COST, Points, Questions
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring import intervals
from maskwise.scoring.estimates import SHARE, Estimate, answers, curve, mean, strata
from maskwise.scoring.verdicts import holm
from maskwise.tasks.checkable import EMBEDDED
from maskwise.tasks.datasets import is_checkable
from maskwise.tasks.prompts import Prompt

NAME = "trajectory"
STRATEGIES = ("low-confidence", "random", "remdm")
PACES = (1, 2)  # tokens per step
BY = ["rule", "tokens_per_step"]
PLACES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # shares of the steps at which the accuracy is drawn
KINDS = {"lost": "right then wrong", "gained": "wrong then right"}
ABOVE = ", above chance"
LITTLE = 0.05  # of the questions


def ask(
    setup: Setup,
    questions: int = 20,
    canvas: int = 8,
    data_canvas: int = 128,
    rules: tuple[str, ...] = STRATEGIES,
    tokens_per_step: tuple[int, ...] = PACES,
) -> Iterator[Questions]:
    from maskwise.probes.answers.decoded import watch_looks

    for asked in asked_sets(setup, min(setup.settings.questions, questions)):
        masks = canvas if asked.name == EMBEDDED else data_canvas
        if asked.longest + masks > setup.model.window:
            setup.note(f"{NAME} was not run on {asked.name}: a canvas of {masks} masks exceeds the context length")
            continue

        def prompt(point: int, _: Mapping[str, Any], asked: AskedSet = asked, masks: int = masks) -> Prompt:
            one = asked.questions[point]
            return Prompt((*one.ids, *[setup.asker.mask] * masks), len(one.ids), one.answer_ids[0], masks)

        source = Points(asked.name, range(len(asked.questions)))
        look = partial(watch_looks, asked=asked, canvas=masks, seed=setup.settings.seed)
        for rule in rules:
            for pace in (pace for pace in tokens_per_step if pace <= masks):
                condition = {"rule": rule, "tokens_per_step": pace}
                steps = masks // pace
                watch = partial(look, rule=rule, steps=steps)
                yield Questions(source, [condition], prompt, asked.answer, watch, DECODING_COST, passes=steps)


def looked(given: Sequence[int], right: int) -> dict[str, float]:
    """The measures of one question, from the class of the answer after each step and that of the right answer."""
    seen = np.array(given)
    is_right = (seen == right) & (right >= 0)
    is_wrong = ~is_right & (seen >= 0)
    changes = np.flatnonzero(seen != given[-1])
    return {
        "lost": float(is_wrong[-1]) - is_wrong.mean() if is_right.any() else 0.0,
        "gained": float(is_right[-1]) - is_right.mean() if is_wrong.any() else 0.0,
        "settled": float((changes[-1] + 2) / len(seen) if len(changes) else 1 / len(seen)),
    }


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """What is lost and gained above chance, and when the answer stands."""
    import pandas as pd

    measures = [looked(given, right) for given, right in zip(table.answers, table.right, strict=True)]
    asked = table.join(pd.DataFrame(measures, index=table.index)).groupby(BY, sort=False)
    found = [(f"{rule}, {per_step(pace)}", own) for (rule, pace), own in asked]
    above = [excess(f"{name}: {words}{ABOVE}", own, kind) for kind, words in KINDS.items() for name, own in found]
    stands = "steps until the answer stands"
    return above + [mean(f"{name}: {stands}", answers(own, "settled"), SHARE, (0.0, 1.0)) for name, own in found]


def excess(name: str, own: Table, kind: str) -> Estimate:
    groups = strata(answers(own, kind))
    p = intervals.p_of_mean(groups, 0.0, (-1.0, 1.0))
    value, low, high = map(float, intervals.paired_share(groups))
    return Estimate(name, value, low, high, len(own), SHARE, p=1.0 if p is None else p)


def per_step(pace: int) -> str:
    return f"{pace} token{'s' if pace != 1 else ''} per step"


def along(table: Table, others: Tables) -> Table:
    """Right answers after each tenth of the steps."""
    import pandas as pd

    looks = []
    for place in PLACES:
        at = [given[max(0, int(np.ceil(place * len(given) - 1e-9)) - 1)] for given in table.answers]
        right = ((table.right >= 0) & (table.right == at)).astype(float)
        looks.append(table.assign(steps=round(100 * place), correct=right, pace=table.tokens_per_step.map(per_step)))
    return curve(pd.concat(looks), ["rule", "pace", "steps"], {"correct": SHARE})


def advice(found: Sequence[Estimate]) -> str | None:
    """Fewer steps are never advised: not even a level accuracy over the last ones shows that nothing is lost."""
    lost = [one for one in found if one.name.endswith(KINDS["lost"] + ABOVE)]
    certain = holm({one.name: one for one in lost})
    worse = [one for one in lost if certain[one.name] and (one.value or 0.0) > 0]
    if worse:
        return f"commit fewer tokens per step; more right answers are lost than by chance: {worse[0]}"
    if all(one.high is not None and one.high < LITTLE for one in lost):
        return "decode to the end: the last steps destroy no more right answers than chance would"
    asking = "ask more questions (--questions) before you take fewer (--steps)"
    return f"decode to the end: it is not shown that the last steps destroy none; {asking}"


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(along, "steps", "Steps done, %", y="Right answers", series="rule", panel="pace")],
    condition={"rule": str, "tokens_per_step": int},
    evidence={"answers": list[int], "right": int},
    needs=frozenset({"masks", "whole sequences"}),
    sizes={"quick": {"questions": 8, "rules": ("low-confidence", "random")}},
    takes=is_checkable,
    advice=advice,
)
