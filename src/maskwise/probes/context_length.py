"""context-length: fewer or more distractors, with two masks and with masks worth a share of the length.

Paper probe 5, format B. Condition: {"distractors": 20, "masks": "20% masks"}, or "2 masks", or for autoregressive
models "no masks".
"""

from collections.abc import Sequence

from maskwise.probes.probe import Probe, Setup, Variant
from maskwise.probes.section import Section, curve
from maskwise.records.record import Condition

NAME = "context-length"


def variants(setup: Setup) -> list[Variant]:
    share = setup.own["mask_share"]
    amounts: list[tuple[str, int | float]] = [("2 masks", 2), (f"{share:.0%} masks", share)]
    if setup.model.causal:
        amounts = [("no masks", 0)]
    return [
        Variant(NAME, {"distractors": n, "masks": name}, distractors=n, open=True, masks=masks)
        for name, masks in amounts
        for n in setup.own["distractors"]
    ]


def two_masks(condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    same = [c for c in conditions if c["distractors"] == condition["distractors"]]
    return next((c for c in same if c["masks"] == "2 masks"), None)


PROBE = Probe(
    name=NAME,
    group="context",
    about="prompts of several lengths, with few masks and with many",
    presets=("default", "full", "paper"),
    variants=variants,
    parameters={"distractors": (0, 10, 20, 30), "mask_share": 0.2},
    quick={"distractors": (0, 5, 15)},
    baseline=two_masks,
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
        ),
    ),
)
