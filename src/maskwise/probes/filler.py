"""filler: full stops in the place of appended masks: is it the masks, or just more text?

Paper probe 6, format A with n fillers after the closed bracket: as many tokens as masks, none of them a mask.
Condition: {"filler": ".", "fillers": 50}.
"""

from collections.abc import Sequence

from maskwise.probes.probe import Probe, Setup, Variant, first_condition
from maskwise.probes.section import Point, Section, Shown
from maskwise.records.record import Condition, Record, condition_text
from maskwise.scoring.claims import Claim, contrast_claim, weights_of

NAME, MASK_COUNT = "filler", "mask-count"


def variants(setup: Setup) -> list[Variant]:
    text = setup.settings.filler
    return [Variant(NAME, {"filler": text, "fillers": n}, fillers=n) for n in setup.own["filler_counts"]]


def claims(records: Sequence[Record]) -> list[Claim]:
    """Fillers cost less than masks: it is the masks, not the length.

    Measured at the largest number n asked of both: what n masks cost (2 masks less n) less what n fillers cost (none
    less n), question by question, above zero.
    """
    masks = {r["condition"]["masks"] for r in records if r["probe"] == MASK_COUNT}
    asked = [r["condition"] for r in records if r["probe"] == NAME]
    common = [n for n in {c["fillers"] for c in asked} if n in masks and n > 2]
    if 2 not in masks or not common or not any(c["fillers"] == 0 for c in asked):
        return []
    most = max(common)
    none, all_of_them = ([c for c in asked_once(asked) if c["fillers"] == n] for n in (0, most))
    fillers = [(c, -1 / len(none)) for c in none] + [(c, 1 / len(all_of_them)) for c in all_of_them]
    weights = weights_of(NAME, fillers) | weights_of(MASK_COUNT, [({"masks": 2}, 1.0), ({"masks": most}, -1.0)])
    return [
        contrast_claim("fillers-cost-less", "fillers cost less than masks",
                       f"lost to {most} masks less lost to {most} fillers", records, weights)
    ]  # fmt: skip


def asked_once(conditions: Sequence[Condition]) -> list[Condition]:
    return list({condition_text(condition): condition for condition in conditions}.values())


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
    claims=claims,
    beside=(MASK_COUNT,),
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
            claims=("fillers-cost-less",),
            spread=True,
        ),
    ),
)
