"""filler: full stops in the place of appended masks: is it the masks, or just more text?

Paper probe 6, format A with n fillers after the closed bracket: as many tokens as masks, none of them a mask.
Condition: {"filler": ".", "fillers": 50}.
"""

from maskwise.probes.probe import Probe, Setup, Variant, first_condition
from maskwise.probes.section import Point, Section, Shown

NAME = "filler"


def variants(setup: Setup) -> list[Variant]:
    text = setup.settings.filler
    return [Variant(NAME, {"filler": text, "fillers": n}, fillers=n) for n in setup.own["filler_counts"]]


def filler_name(filler: str) -> str:
    return "full stops" if filler == "." else f"“{filler}” repeated"


def _points(shown: Shown) -> list[Point]:
    """The mask-count curve is drawn beside the control: the control means nothing without it."""
    masks = [Point("masks", entry["masks"], entry) for entry in shown.entries("mask-count")]
    return masks + [
        Point(filler_name(entry["condition"]["filler"]), entry["condition"]["fillers"], entry)
        for entry in shown.entries(NAME)
    ]


PROBE = Probe(
    name=NAME,
    group="context",
    about="full stops in the place of appended masks",
    presets=("quick", "default", "full"),
    variants=variants,
    parameters={"filler_counts": (0, 5, 10, 20, 50, 100, 200)},
    quick={"filler_counts": (0, 20, 100)},
    not_causal="an autoregressive model never sees what follows its answer",
    baseline=first_condition,
    sections=(
        Section(
            title="Is it the masks, or just more text?",
            question="Full stops take the place of the extra masks. If any extra tokens did the harm, full stops would "
            "do it too.",
            paper="LLaDA loses only 3 points (Base) and 10 (Instruct) to full stops, far less than to masks: it is the "
            "masks. Dream: full stops and masks alike.",
            how_to_read="Compare the two lines: masks low and full stops level means the masks themselves distract; "
            "both low means any extra text does.",
            x_label="Masks, or full stops, at the end",
            at="{}",
            points=_points,
            spread=True,
        ),
    ),
)
