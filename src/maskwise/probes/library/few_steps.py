"""few-steps: the masks are filled in random order in very few steps, as fast decoders do.

Paper probe 10: 2, 4 and 6 steps, format B. Condition: {"steps": 2, "masks": 50}.
"""

from collections.abc import Iterator

from maskwise.probes.examples import FEW_SHOT
from maskwise.probes.library.unmasking import QUICK_STEP_MASKS, STEP_MASKS, beside_one_step, step_units
from maskwise.probes.probe import BY_BLOCKS, NO_MASK_TOKEN, Probe, Setup, Unit, first_of_same
from maskwise.probes.section import curve, over_masks
from maskwise.support.typed import Count

NAME = "few-steps"


def units(setup: Setup) -> Iterator[Unit]:
    return step_units(setup, NAME, [({"steps": count}, count, "random") for count in setup.own["steps"]])


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="the masks filled in 2, 4 and 6 steps",
    condition=FEW_SHOT | {"steps": Count, "masks": Count},
    presets=("full", "paper"),
    units=units,
    parameters=STEP_MASKS | {"steps": (2, 4, 6)},
    paper={"points": 1000},
    quick=QUICK_STEP_MASKS | {"steps": (2, 4)},
    not_causal=NO_MASK_TOKEN,
    not_blocks=BY_BLOCKS,
    baseline=first_of_same,
    sections=(
        over_masks(
            title="And in a few steps?",
            question="The masks are filled in random order in very few steps, as fast decoders do.",
            paper="Relative degradation in 2, 4 and 6 steps: LLaDA-Base 19.7, 14.5 and 12.4 %, LLaDA-Instruct 33.2, "
            "26.5 and 22.8 %; after mask-agnostic tuning about half of it.",
            how_to_read="The flatter a line, the less the canvas' length matters at that speed.",
            points=beside_one_step(NAME, curve(NAME, "masks", "steps", "{} steps")),
        ),
    ),
)
