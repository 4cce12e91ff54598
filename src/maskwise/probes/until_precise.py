"""`--precision`: the few-shot probes ask as many questions as their least certain difference needs.

The differences are the paired ones of the summary: every condition against its baseline. scoring/precision.py says how
many blocks (one question of each task) they need. Probes with questions of their own keep the preset's numbers.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from msgspec import structs

from maskwise.probes.examples import with_baselines
from maskwise.probes.probe import Probe
from maskwise.probes.section import PrecisionReport, WorstDifference
from maskwise.records.record import Condition, Record, condition_text
from maskwise.scoring.precision import FIRST_STAGE, block_differences, blocks_needed, first_stage_variance, half_width


@dataclass(frozen=True)
class BlockDifference:
    """A condition against its baseline: what each block gave, and how many tasks a block has."""

    probe: str
    condition: Condition
    baseline: Condition
    blocks: np.ndarray
    tasks: int

    @property
    def half_width(self) -> float:
        return half_width(first_stage_variance(self.blocks), len(self.blocks), self.tasks)

    def needed(self, wanted: float) -> int:
        return blocks_needed(first_stage_variance(self.blocks), wanted, self.tasks)


def differences(records: Sequence[Record], probes: Sequence[Probe]) -> Iterator[BlockDifference]:
    """Every paired difference of the few-shot probes."""
    groups: dict[str, dict[str, list[Record]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        groups[record.probe][condition_text(record.condition)].append(record)
    for probe in probes:
        if probe.variants is None:
            continue
        asked = groups[probe.name]
        for condition, baseline in with_baselines([group[0]["condition"] for group in asked.values()], probe.baseline):
            if baseline is not None:
                group, before = asked[condition_text(condition)], asked[condition_text(baseline)]
                tasks = len({record.task for record in before})
                yield BlockDifference(probe.name, condition, baseline, block_differences(group, before), tasks)


def blocks_in_all(records: Sequence[Record], probes: Sequence[Probe], points: float) -> int:
    """The number of blocks that the differences need for +- `points`; the first stage must have been asked."""
    return max((one.needed(points / 100) for one in differences(records, probes)), default=FIRST_STAGE)


def precision(records: Sequence[Record], probes: Sequence[Probe], points: float) -> PrecisionReport:
    """The summary's "precision": the half-width wanted (as a share), the blocks of both stages, how many of them were
    asked, and the difference that is known least well. Null where the first stage is unfinished or nothing differs."""
    found = list(differences(records, probes))
    asked = min((len(one.blocks) for one in found), default=0)
    plan = PrecisionReport(
        wanted=points / 100, first_stage=FIRST_STAGE, second_stage=None, asked=asked, half_width=None, worst=None
    )
    if asked < FIRST_STAGE:
        return plan
    worst = max(found, key=lambda one: one.half_width)
    return structs.replace(
        plan,
        second_stage=blocks_in_all(records, probes, points) - FIRST_STAGE,
        half_width=worst.half_width,
        worst=WorstDifference(
            probe=worst.probe, condition=worst.condition, baseline=worst.baseline, difference=float(worst.blocks.mean())
        ),
    )
