"""attention (ours): the share of the answer's attention that goes to masks, near and far context, by layer.

Asked like mask-attribution. Condition: {"extra masks": 50}; evidence {"masks": [a share per layer], "near", "far",
"answer"}.
"""

from collections.abc import Iterator
from functools import partial

from maskwise.probes.evidence import entry_per_target
from maskwise.probes.library.attribution import ORDERINGS, QUICK_ORDERINGS
from maskwise.probes.library.mask_attribution import EXTRA_MASKS, mask_units
from maskwise.probes.probe import Probe, Setup, Unit
from maskwise.probes.section import Point, Section, Shown, as_share, named_curves
from maskwise.support.typed import Count

NAME = "attention"
ATTENTION_COST = 4


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.attention_shares import watch

    if not setup.model.attention_readable:
        setup.note(f"{NAME} was not run: the attention of a {setup.model.family.title} cannot be read")
        return iter(())
    return mask_units(setup, NAME, partial(watch, near=setup.own["near"]), ATTENTION_COST)


def _points(shown: Shown) -> list[Point]:
    """Masks first; an autoregressive model has none."""
    names = {"masks": "masks"} if not shown.is_autoregressive else {}
    names |= {"near": "nearest context", "far": "farther context", "answer": "itself"}
    return named_curves(NAME, "layer", "tokens", names, first=1)(shown)


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="attention of the answer by kind of token and layer",
    condition={"extra masks": Count},
    evidence={"answer": list[float], "masks": list[float], "near": list[float], "far": list[float]},
    units=units,
    parameters=ORDERINGS | EXTRA_MASKS,
    quick=QUICK_ORDERINGS,
    measures=entry_per_target,
    sections=(
        Section(
            title="What does the answer attend to?",
            question="The share of its attention that the place which predicts the answer pays to masks, to the "
            "nearest context and to all farther context, layer by layer, mean over heads.",
            paper="Not in the paper; asked for by its reviewers.",
            how_to_read="The four lines add up to 100 % in each layer. Attention to masks is attention lost to the "
            "text.",
            x_label="Layer",
            at="layer {}",
            points=_points,
            measures=(as_share("evidence", "Share of attention"),),
        ),
    ),
)
