"""location-masks: the location probe with k masks at the end: do masks change the use of distant context?

Paper probe 8, format B. Condition: {"location": 20, "masks": 50}.
"""

from collections.abc import Mapping, Sequence

from maskwise.probes.blocks import visible_counts
from maskwise.probes.examples import FEW_SHOT
from maskwise.probes.library.location import LOCATIONS, NEARER_TO_THE_RIGHT, QUICK_LOCATIONS
from maskwise.probes.probe import NO_MASK_TOKEN, Probe, Setup, Variant
from maskwise.probes.section import WITH_MASKS, Point, Section, Shown, curve
from maskwise.records.groups import values_of
from maskwise.records.record import Condition, Record
from maskwise.scoring.claims import Claim, contrast_claim
from maskwise.scoring.contrasts import ConditionWeights, weights_of
from maskwise.support.typed import Count

NAME = "location-masks"
_curves = curve(NAME, "location", "masks", WITH_MASKS)


def variants(setup: Setup) -> list[Variant]:
    return [
        Variant(NAME, {"location": at, "masks": k}, location=at, open=True, masks=k)
        for k in visible_counts(setup, NAME, setup.own["mask_counts"])
        for at in setup.own["locations"]
    ]


def fewest_masks(condition: Condition, conditions: Sequence[Condition]) -> Condition:
    return next(c for c in conditions if c["location"] == condition["location"])


def claims(records: Sequence[Record]) -> list[Claim]:
    """Masks flatten the curve over locations mostly by lowering it, most near the question.

    Measured between the fewest masks and the most: the loss of accuracy, mean over all locations, above zero; and the
    loss at the location nearest to the question less that at the farthest, above zero.
    """
    counts, places = values_of(records, "masks"), values_of(records, "location")
    if len(counts) < 2 or len(places) < 2:
        return []

    def lost(weight_of: Mapping[int, float]) -> ConditionWeights:
        weighted: list[tuple[Condition, float]] = [
            ({"location": place, "masks": masks}, sign * weight)
            for place, weight in weight_of.items()
            for masks, sign in ((counts[0], 1.0), (counts[-1], -1.0))
        ]
        return weights_of(NAME, weighted)

    between = f"{counts[0]} masks less {counts[-1]}"
    return [
        contrast_claim("masks-lower-all", "masks lower the whole curve", f"{between}, mean over locations", records,
                       lost({place: 1 / len(places) for place in places})),
        contrast_claim("masks-lower-near", "masks cost most near the question", f"{between}, nearest less farthest",
                       records, lost({places[-1]: 1.0, places[0]: -1.0})),
    ]  # fmt: skip


def _points(shown: Shown) -> list[Point]:
    return sorted(_curves(shown), key=lambda point: point.entry.condition["masks"])


PROBE = Probe(
    name=NAME,
    group="context",
    about="the location probe with more and more masks",
    condition=FEW_SHOT | {"location": Count, "masks": Count},
    presets=("default", "full", "paper"),
    variants=variants,
    each_number=True,
    parameters=LOCATIONS | {"mask_counts": (2, 50, 100, 200)},
    quick=QUICK_LOCATIONS | {"mask_counts": (2, 20, 200)},
    not_causal=NO_MASK_TOKEN,
    baseline=fewest_masks,
    claims=claims,
    sections=(
        Section(
            title="Do appended masks change the use of distant context?",
            question="The block of examples is moved as in the first probe, now with more masks behind the question. "
            "Do masks change which examples are used, or lower the accuracy everywhere?",
            paper="Masks flatten the curve mostly by lowering it, most of all near the question.",
            how_to_read="Lines that keep their shape but sink mean masks cost the same everywhere; a line that loses "
            "its rise at the right means they take away what stood near.",
            x_label=NEARER_TO_THE_RIGHT,
            at="{} distractors before the examples",
            points=_points,
            claims=("masks-lower-all", "masks-lower-near"),
        ),
    ),
)
