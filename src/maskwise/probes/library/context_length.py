"""context-length: fewer or more distractors, with two masks and with masks worth a share of the length.

Paper probe 5, format B. Condition: {"distractors": 20, "masks": "20% masks"}, or "2 masks", or for autoregressive
models "no masks".
"""

from collections.abc import Sequence

from maskwise.probes.examples import FEW_SHOT
from maskwise.probes.probe import Probe, Setup, Variant
from maskwise.probes.section import Section, curve
from maskwise.records.groups import values_of
from maskwise.records.record import Condition, Record
from maskwise.scoring.claims import Claim, contrast_claim
from maskwise.scoring.contrasts import weights_of
from maskwise.support.typed import Count

NAME = "context-length"
FEW, NO_MASKS = "2 masks", "no masks"


def variants(setup: Setup) -> list[Variant]:
    share = setup.own["mask_share"]
    amounts: list[tuple[str, int | float]] = [(FEW, 2), (f"{share:.0%} masks", share)]
    if setup.model.block is not None:
        setup.note(f"{NAME}: masks worth a share of the length are not visible to an answer in a block; 2 masks are")
        amounts = amounts[:1]
    if setup.model.causal:
        amounts = [(NO_MASKS, 0)]
    return [
        Variant(NAME, {"distractors": n, "masks": name}, distractors=n, open=True, masks=masks)
        for name, masks in amounts
        for n in setup.own["distractors"]
    ]


def two_masks(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    same = [c for c in conditions if c["distractors"] == condition["distractors"]]
    return next((c for c in same if c["masks"] == FEW), None)


def claims(records: Sequence[Record]) -> list[Claim]:
    """The gap between few masks and masks worth a share of the length grows with the context (the paper: for LLaDA).

    Measured: the gap with the most distractors less the gap with the fewest, above zero.
    """
    lengths = values_of(records, "distractors")
    more = [masks for masks in values_of(records, "masks") if masks not in (FEW, NO_MASKS)]
    if len(lengths) < 2 or not more:
        return []
    weighted: list[tuple[Condition, float]] = [
        ({"distractors": length, "masks": masks}, sign * side)
        for length, side in ((lengths[-1], 1.0), (lengths[0], -1.0))
        for masks, sign in ((FEW, 1.0), (more[0], -1.0))
    ]
    claim = "masks worth a share of the length cost more in a longer prompt"
    measure = f"gap with {lengths[-1]} distractors less gap with {lengths[0]}"
    return [contrast_claim("gap-grows", claim, measure, records, weights_of(NAME, weighted))]


PROBE = Probe(
    name=NAME,
    group="context",
    about="prompts of several lengths, with few masks and with many",
    condition=FEW_SHOT | {"distractors": Count, "masks": str},
    presets=("default", "full", "paper"),
    variants=variants,
    parameters={"distractors": (0, 10, 20, 30), "mask_share": 0.2},
    quick={"distractors": (0, 5, 15)},
    baseline=two_masks,
    claims=claims,
    sections=(
        Section(
            title="Do masks hurt more in a longer prompt?",
            question="The prompt grows by more and more distracting examples, once with two masks and once with masks "
            "worth a share of its length. Does the gap grow?",
            paper="With two masks against masks worth 20 % of the length, the gap grows with the context for LLaDA; "
            "for Dream it does not.",
            how_to_read="The vertical distance between the lines is the price of the masks at that length.",
            x_label="Distracting examples in the prompt",
            at="{} distractors",
            points=curve(NAME, "distractors", "masks"),
            claims=("gap-grows",),
        ),
    ),
)
