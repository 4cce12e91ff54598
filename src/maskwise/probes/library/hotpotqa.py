"""hotpotqa: questions about real text with two options, the supporting facts as context, and a share of masks.

Paper probe 12, format B, one in-context example. Condition: {"share": 0.05}, masks beyond the answer's as a share of
the length.
"""

from collections.abc import Iterator
from functools import partial

from maskwise.probes.labelled import QUICK_SHARES, SHARES, by_share, data_units, over_shares
from maskwise.probes.probe import Probe, Setup, Unit, first_condition
from maskwise.probes.section import Measure
from maskwise.tasks.datasets import HOTPOTQA as NAME


def units(setup: Setup) -> Iterator[Unit]:
    return data_units(setup, PROBE, 1, f"{NAME}=FILE")


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="questions about real text, by the share of masks (--data)",
    condition={"share": float},
    presets=("full", "paper"),
    units=units,
    takes=lambda data_set: data_set == NAME,
    parameters=SHARES,
    quick=QUICK_SHARES,
    baseline=first_condition,
    chance=0.5,
    sections=(
        over_shares(
            title="And in questions about real text?",
            question="HotpotQA questions with two options, the supporting facts as context, one example, and masks "
            "worth a share of the length.",
            paper="LLaDA-Base breaks at about 5 % of the length in masks; the tuned model stays level.",
            points=partial(by_share, NAME),
            measures=(Measure("accuracy", "Accuracy", chance=0.5),),
            caption="Line: accuracy; band: 95 % interval over questions.",
        ),
    ),
)
