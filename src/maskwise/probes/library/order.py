"""Order: in which order does the model fill its masks, one token a step?

    left to right  t t t t 1 2 3 4 5 6
    as written     t t t t 1 2 5 3 4 6

A piece of prose is continued greedily under several strategies; random shows what no preference looks like.

Kendall's tau is 1 from left to right, -1 from right to left and 0 at random. Global AR-ness@1 is the share of steps
that fill the leftmost mask: with n masks in random order H_n / n, on average.

The second paper (arXiv 2510.03289): confidence falls with the distance from the text, so the reliable order is close to
left to right. Reported elsewhere: global AR-ness@1 of LLaDA-8B is .73, of Dream-7B .92. "Close" is a tau above .5 and
AR-ness@1 above .7 by us.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import scipy  # scipy.special, which takes a moment to import, is imported when it is first used

from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import DECODING_COST, Points, Questions
from maskwise.probes.setup import Setup
from maskwise.probes.text import QUICK_GAP, TASK, gap_pieces
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import SHARE, Estimate, answers, curve, mean
from maskwise.tasks.prompts import Prompt

NAME = "order"
STRATEGIES = ("low-confidence", "margin", "entropy", "random")
CLOSE_TAU = 0.5  # three of four pairs of tokens in reading order
CLOSE_ARNESS = 0.7
MEASURES = {"tau": "Kendall's tau", "global1": "global AR-ness@1"}


def ask(
    setup: Setup, pieces: int = 20, before: int = 64, masks: int = 64, after: int = 32, tokens: int = 32
) -> Iterator[Questions]:
    """The pieces are those of the other two probes of prose, so that they can be compared."""
    from maskwise.probes.answers.decoded import watch_order

    found = gap_pieces(setup, NAME, pieces, before + masks + after)

    def prompt(point: int, condition: Mapping[str, Any]) -> Prompt:
        piece = found[point]
        return Prompt((*piece[:before], *[setup.asker.mask] * tokens), before, piece[before], tokens)

    for rule in STRATEGIES if found else ():
        answering = partial(watch_order, rule=rule, seed=setup.settings.seed)
        source = Points(TASK, range(len(found)))
        yield Questions(source, [{"rule": rule}], prompt, answering=answering, cost=DECODING_COST, passes=tokens + 1)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """Of the order by confidence."""
    own = table[table.rule == STRATEGIES[0]]
    if own.empty:  # an unfinished run
        return []
    most = max(CLOSE_ARNESS, leftmost_at_random(int(own.masks_seen.max())))
    return [
        mean(MEASURES["tau"], answers(own, "tau"), "", (-1.0, 1.0), claim="above", against=CLOSE_TAU),
        mean(MEASURES["global1"], answers(own, "global1"), SHARE, (0.0, 1.0), claim="above", against=most),
    ]


def leftmost_at_random(places: int) -> float:
    """How often the leftmost of the masks left is filled if each is as likely: the mean of 1/n, H_n / n."""
    return float(scipy.special.digamma(places + 1) + np.euler_gamma) / max(places, 1)


def by_rule(table: Table, others: Tables) -> Table:
    own = table[table.rule.isin(STRATEGIES)].sort_values("rule", key=lambda rules: rules.map(STRATEGIES.index))
    return curve(own.rename(columns=MEASURES), ["rule"], dict.fromkeys(MEASURES.values(), ""))


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_rule, "rule", "Strategy", "", panel="measure", kind="points")],
    condition={"rule": str},
    evidence=dict.fromkeys(MEASURES, float),
    needs=frozenset({"masks", "whole sequences"}),
    sizes={"quick": QUICK_GAP | {"tokens": 16}},
)
