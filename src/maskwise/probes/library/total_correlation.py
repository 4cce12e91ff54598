"""total-correlation: how much two masked places know of each other, which a step that fills both at once loses.

The total correlation of a pair is C = KL(p(x_i, x_j) || p(x_i) p(x_j)) (Sun, Wen and Wang, arXiv 2510.03289). A model
states p(x_i) and, once x_i stands, p(x_j | x_i), so by the chain rule

    C(i, j) = E over x_i ~ p_i of KL( p(x_j | x_i) || p_j )

here the mean over samples of x_i, and once more with i and j exchanged: a consistent model gives the same both ways, a
real one need not, and the mean of the two is reported. 0 nats: the two can be filled in one step.
Condition: {"distance": 8}; evidence {"tc", "forth", "back"}.
"""

from collections.abc import Iterator, Sequence
from functools import partial

from maskwise.probes.evidence import measured_besides
from maskwise.probes.probe import NO_MASK_TOKEN, Probe, Setup, Unit
from maskwise.probes.section import Section, curve, in_nats
from maskwise.probes.text import GAP, QUICK_GAP, gap_items, gap_of, gap_pieces
from maskwise.records.record import Condition, Record
from maskwise.scoring.claims import Claim, judged
from maskwise.support.typed import Count

NAME = "total-correlation"
COUPLED = 0.05  # nats; Pinsker: two masks as far apart as 16 % in total variation


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.pair_correlation import correlate

    pieces, gap, samples = gap_pieces(setup, NAME), gap_of(setup.own), setup.own["samples"]
    if not pieces:
        return
    asked: list[Condition] = [{"distance": apart} for apart in setup.own["distances"] if apart < gap.masks]
    # Pairs of the first mask and the mask `distance` places after it; the row asked is the second's.
    items = gap_items(setup.asker, NAME, pieces, gap, asked, 0)
    answer = partial(correlate, seed=setup.settings.seed, samples=samples)
    yield Unit(range(len(pieces)), len(asked), items, answer, 2 * samples)


def claims(records: Sequence[Record]) -> list[Claim]:
    """The output is marginals: a step that draws from their product pays the total correlation."""
    nearest = min(record.condition["distance"] for record in records)
    values = [record.evidence["tc"] for record in records if record.condition["distance"] == nearest]
    claim = "masks side by side are coupled, so filling both at once loses something"
    return [judged("coupled", claim, f"total correlation at distance {nearest}", values, "nats", asked=COUPLED)]


PROBE = Probe(
    name=NAME,
    group="coherence",
    about="what filling two masks in one step loses",
    condition={"distance": Count},
    evidence={"tc": float, "forth": float, "back": float},
    units=units,
    parameters=GAP | {"distances": (1, 2, 4, 8, 16, 32), "samples": 32},
    quick=QUICK_GAP | {"samples": 8},
    not_causal=NO_MASK_TOKEN,
    not_blocks="the masks of its gap would stand in several blocks of a block diffusion model",
    measures=measured_besides,
    chance=None,
    claims=claims,
    columns={"tc": "nats", "tc_low": "low", "tc_high": "high", "forth": "forth", "back": "back"},
    sections=(
        Section(
            title="How much do two masks know of each other?",
            question="Filling two masks in one step draws them independently. What is lost is their total correlation: "
            "how far the prediction of one moves once the other stands.",
            paper="The output is conditional marginals; a parallel step is exact only where this is zero.",
            how_to_read="High next to the text and low far apart means: neighbours should not be filled in one step, "
            "distant masks may.",
            x_label="Distance between the two masks",
            at="distance {}",
            points=curve(NAME, "distance"),
            measures=(in_nats("tc", "Total correlation (nats)"),),
            caption="Line: mean over pieces of text and both orders; band: 95 % interval.",
            spread=True,
            claims=("coupled",),
        ),
    ),
)
