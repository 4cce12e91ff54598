"""block-offset (ours): the answer of a block diffusion model at several places of its block.

Format B, relevant examples and distractors mixed at random, as in mask-count. The prompt is moved on the grid of blocks
until the answer stands at the offset (probes/blocks.py), with two masks, or with masks to the block's end, as decoding
shows them. Condition: {"after": "2 masks", "offset": 8}, or "to the end". A shifted model reads the answer at offset 0
from the block before, and sees none of the masks. Other models have no blocks and are not asked.
"""

from maskwise.probes.examples import FEW_SHOT
from maskwise.probes.probe import Probe, Setup, Variant, first_of_same
from maskwise.probes.section import Section, named_curves
from maskwise.support.typed import Count

NAME = "block-offset"
TWO, TO_THE_END = "2 masks", "to the end"


def variants(setup: Setup) -> list[Variant]:
    block = setup.model.block
    if block is None:
        return []
    offsets = sorted({round(share * (block - 1)) for share in setup.own["shares"]})
    return [
        Variant(NAME, {"after": after, "offset": at}, open=True, masks=block - at if after == TO_THE_END else 2)
        for after in (TWO, TO_THE_END)
        for at in offsets
        if after == TO_THE_END or at + 2 <= block
    ]


PROBE = Probe(
    name=NAME,
    group="context",
    about="the answer at several places of a block (block diffusion models)",
    condition=FEW_SHOT | {"after": str, "offset": Count},
    presets=("default", "full"),
    variants=variants,
    each_number=True,
    parameters={"shares": (0.0, 0.25, 0.5, 0.75, 1.0)},
    quick={"shares": (0.0, 0.5, 1.0)},
    only_blocks=True,
    baseline=first_of_same,
    sections=(
        Section(
            title="Does it matter where in its block the answer stands?",
            question="A block diffusion model sees no token after the block of its answer. The same prompt is moved on "
            "the grid of blocks, so that the answer comes first in its block, later, or last, with two masks, or with "
            "masks to the end of the block.",
            paper="Not in the paper; this probe is ours.",
            how_to_read="A level line of two masks means that the place in the block does not matter. Where the other "
            "line is lower, the masks of the rest of the block take something away.",
            x_label="Place of the answer in its block",
            at="place {}",
            points=named_curves(NAME, "offset", "after", {TWO: "2 masks", TO_THE_END: "masks to the end of the block"}),
        ),
    ),
)
