"""What the records of the probe numerics say: flips of each setting, flips by margin, and the noise between runs."""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta

from maskwise.probes.numeric_settings import BFLOAT16, FLOAT16, GENERATIONS, ONE_PASS, REPEATED, SINGLE, compared_with
from maskwise.records.record import Record
from maskwise.scoring.flips import Answered, Flips, MarginBin, RunNoise, by_margin, flips, run_noise
from maskwise.support.typed import Typed

ROUNDING = 2**-14  # of the largest logit: sums of float32 numbers differ by less when their order changes
EDGES = (0.03, 0.1, 0.3, 1.0, 3.0)  # of margins, in logits


class NumericsSummary(Typed, frozen=True, kw_only=True):
    """What settings that should not matter changed."""

    flips: Annotated[list[Flips], Meta(description="each setting compared with float32, and --exact with itself")]
    margins: Annotated[dict[str, list[MarginBin]], Meta(description="one-pass flips by margin, of each half precision")]
    noise: Annotated[list[RunNoise], Meta(description="between two runs in half precision")]


def numerics_summary(records: Sequence[Record]) -> NumericsSummary | None:
    """None before two settings have answered the same questions."""
    found: list[Flips] = []
    bins: dict[str, list[MarginBin]] = {}
    noise: list[RunNoise] = []
    for answers in (ONE_PASS, GENERATIONS):
        table = _by_setting(records, answers)
        asked = frozenset(table)
        for setting in (*SINGLE, REPEATED):
            other = compared_with(setting, asked)
            pair = _paired(table, (other, setting))
            if pair is not None:
                before, after = pair
                found.append(flips(answers, setting, other, before, after, ROUNDING))
                if answers == ONE_PASS and setting in (BFLOAT16, FLOAT16):
                    bins[setting] = by_margin(before, after, EDGES)
        draws = [name for name in table if name.startswith("draw ")]
        repeated = _paired(table, draws) if len(draws) > 1 else None
        if repeated is not None:
            dtype = next(str(one.evidence["dtype"]) for one in table[draws[0]].values())
            noise.append(run_noise(answers, dtype, np.stack([one.right for one in repeated])))
    return NumericsSummary(flips=found, margins=bins, noise=noise) if found else None


SettingTable = dict[str, dict[tuple[str, int], Record]]


def _by_setting(records: Sequence[Record], answers: str) -> SettingTable:
    found: SettingTable = {}
    for record in records:
        if record.condition["answers"] == answers:
            found.setdefault(str(record.condition["setting"]), {})[record.task, record.point] = record
    return found


def _paired(table: SettingTable, settings: Sequence[str]) -> list[Answered] | None:
    """The answers to the questions that all these settings were asked; None where there are none."""
    if any(name not in table for name in settings):
        return None
    shared = sorted(set.intersection(*(set(table[name]) for name in settings)))
    return [_answered([table[name][one] for one in shared]) for name in settings] if shared else None


def _answered(records: Sequence[Record]) -> Answered:
    def column(name: str) -> np.ndarray:
        return np.array([record.evidence.get(name, np.nan) for record in records], dtype=float)

    right = np.array([record.correct for record in records], dtype=bool)
    return Answered([record.predicted for record in records], right, column("margin"), column("scale"))
