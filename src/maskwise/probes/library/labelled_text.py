"""labelled-text: texts and labels of data sets that the user gives, a few examples, and a share of masks.

After the data sets of paper probe 11, format B. Condition: {"share": 0.05}; the tasks are data sets.
"""

from collections.abc import Iterator
from functools import partial

from maskwise.probes.labelled import QUICK_SHARES, SHARES, by_share, data_units, over_shares
from maskwise.probes.probe import Probe, Setup, Unit, first_condition
from maskwise.probes.section import Measure
from maskwise.tasks.datasets import READERS, has_labels

NAME = "labelled-text"


def units(setup: Setup) -> Iterator[Unit]:
    return data_units(setup, PROBE, setup.own["shots"], f"NAME=PATH ({', '.join(READERS)} or a file of your own)")


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="classification of texts, by the share of masks (--data)",
    condition={"share": float},
    units=units,
    one_pass=True,
    takes=has_labels,
    parameters=SHARES | {"shots": 8},
    quick=QUICK_SHARES | {"shots": 4},
    baseline=first_condition,
    chance=None,
    sections=(
        over_shares(
            title="And in ordinary classification?",
            question="Texts and labels of the data sets given, a few examples, and masks worth a share of the length.",
            paper="Not in the paper in this form; the data sets are those usual for in-context learning.",
            points=partial(by_share, NAME),
            measures=(Measure("accuracy", "Accuracy"),),
            caption="Line: mean over data sets; band: 95 % interval over questions.",
        ),
    ),
)
