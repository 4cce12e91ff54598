"""Total correlation: how many nats do two masks share, which one step that fills both would lose?

    together       t t t t 1 1 _ _
    one, then one  t t t t 1 2 _ _
    far apart      t t t t 1 _ _ 2

A piece of prose and then masks; the pairs are the first mask and another. A step that fills both draws them from
p(x_i) p(x_j), and loses the total correlation

    C(i, j) = KL(p(x_i, x_j) || p(x_i) p(x_j)) = E over x_i ~ p_i of KL(p(x_j | x_i) || p_j)

here the mean over samples of x_i (forth), and once more with i and j exchanged (back): a consistent model gives the
same both ways, a real one need not, and the mean of the two is reported. At 0 nats the two can be filled in one step;
neighbours that share more than .05 nats should be filled one at a time (by Pinsker's inequality two predictions that
differ by so much are up to 16 % apart in total variation).

The second paper (arXiv 2510.03289): the output is conditional marginals, so a parallel step is exact only where C is 0.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Setup
from maskwise.probes.text import QUICK_GAP, TASK, gap_pieces, with_gap
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import NATS, Estimate, answers, curve, mean
from maskwise.scoring.verdicts import COUPLED
from maskwise.support.typed import Count
from maskwise.tasks.prompts import Prompt

NAME = "total-correlation"


def ask(
    setup: Setup,
    pieces: int = 20,
    before: int = 64,
    masks: int = 64,
    after: int = 32,
    distances: tuple[int, ...] = (1, 2, 4, 8, 16, 32),
    samples: int = 32,
) -> Iterator[Questions]:
    from maskwise.probes.answers.distant_masks import correlate

    found = gap_pieces(setup, NAME, pieces, before + masks + after)
    if not found:
        return

    def prompt(point: int, condition: Mapping[str, Any]) -> Prompt:
        """Asked at the second mask of the pair."""
        return with_gap(setup.asker, found[point], before, masks, 1 + condition["distance"])

    asked = [{"distance": apart} for apart in distances if apart < masks]
    answering = partial(correlate, seed=setup.settings.seed, samples=samples)
    yield Questions(
        Points(TASK, range(len(found))), asked, prompt, answering=answering, cost=2 * samples, passes=2 * samples
    )


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """The claim: masks side by side are coupled, so filling both at once loses something. The last: the pair farthest
    apart, compared with the same number of nats."""
    nearest, farthest = table.distance.min(), table.distance.max()
    shared = {apart: answers(table[table.distance == apart], "tc") for apart in (nearest, farthest)}
    side_by_side = "nats shared by neighbours" if nearest == 1 else f"nats shared {nearest} apart"
    found = [mean(side_by_side, shared[nearest], NATS, claim="above", against=COUPLED)]
    if farthest > nearest:
        found.append(mean(f"nats shared {farthest} apart", shared[farthest], NATS, against=COUPLED))
    return found


def by_distance(table: Table, others: Tables) -> Table:
    return curve(table, ["distance"], {"tc": NATS})


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_distance, "distance", "Distance between the two masks", "Total correlation (nats)")],
    condition={"distance": Count},
    evidence={"tc": float},
    needs=frozenset({"masks", "whole sequences"}),
    presets=("default", "full"),
    sizes={
        "quick": QUICK_GAP | {"samples": 8},
        "default": {"pieces": 12, "before": 32, "masks": 32, "after": 0, "distances": (1, 2, 4, 16), "samples": 8},
    },
)
