"""A paper's claims judged from a run's records: what was measured, its 95 % interval, and a verdict.

A claim names two numbers: `nothing`, what would be measured if there were nothing to it, and `asked`, what it takes to
say that it holds (ours where the paper says only "almost" or "close to"). With the whole interval beyond both it
holds; beyond `nothing` alone it is in direction; otherwise it does not hold. Differences are taken within a piece of
text, so they are paired; intervals are Student's over the pieces, or Wilson's where no piece differs from another.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from maskwise.records.record import Record
from maskwise.scoring.intervals import none_seen, reach

Claim = dict[str, Any]
Verdict = Literal["holds", "in direction", "does not hold", "cannot be told"]


def verdict(low: float | None, high: float | None, nothing: float, asked: float, less: bool = False) -> Verdict:
    """`less`: the claim is that the value is small. Without an interval nothing can be told."""
    if low is None or high is None:
        return "cannot be told"
    if less:
        low, nothing, asked = -high, -nothing, -asked
    if low > max(asked, nothing):
        return "holds"
    return "in direction" if low > nothing else "does not hold"


def judged(
    name: str,
    claim: str,
    measure: str,
    values: Sequence[float],
    unit: str,
    nothing: float = 0.0,
    asked: float = 0.0,
    less: bool = False,
    bounds: tuple[float, float] | None = None,
) -> Claim:
    """A claim about the mean of these values; `bounds` are the smallest and the largest a value can be."""
    mean, (low, high) = mean_of(values), interval(values, bounds)
    found = verdict(low, high, nothing, asked, less)
    if found == "does not hold" and never_vary(values) and verdict(mean, mean, nothing, asked, less) == "holds":
        found = "cannot be told"  # every value is on the claim's side, only there are too few of them
    return {
        "name": name, "claim": claim, "measure": measure, "unit": unit, "n": len(values),
        "value": mean, "low": low, "high": high, "nothing": nothing, "asked": asked,
        "verdict": found,
    }  # fmt: skip


def interval(values: Sequence[float], bounds: tuple[float, float] | None) -> tuple[float | None, float | None]:
    """Student's interval of the mean.

    Where the values never vary that interval has no width. Then a share of the values (Wilson's upper bound of none in
    so many) may lie anywhere within the bounds.
    """
    mean = mean_of(values)
    if len(values) > 1 and not never_vary(values):
        return mean - reach(values), mean + reach(values)
    if len(values) < 2 or bounds is None:
        return None, None
    unseen = none_seen(len(values))
    return mean - unseen * (mean - bounds[0]), mean + unseen * (bounds[1] - mean)


def never_vary(values: Sequence[float]) -> bool:
    """Whether all values are equal, up to rounding."""
    return len(values) > 0 and float(np.ptp(values)) < 1e-9


# Values of each piece of text (a record's point)


def by_point(
    records: Iterable[Record], kind: Callable[[Record], str], value: Callable[[Record], float]
) -> list[dict[str, list[float]]]:
    """For each point, the values of its records by kind."""
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        found[record["point"]][kind(record)].append(value(record))
    return [dict(kinds) for _, kinds in sorted(found.items())]


def differences(
    records: Sequence[Record],
    here: Callable[[Record], bool],
    there: Callable[[Record], bool],
    value: Callable[[Record], float],
) -> list[float]:
    """Of each piece, the mean of `value` here less that there."""
    chosen = [record for record in records if here(record) or there(record)]
    points = by_point(chosen, lambda record: "here" if here(record) else "there", value)
    return [float(np.mean(kinds["here"]) - np.mean(kinds["there"])) for kinds in points if len(kinds) == 2]


def means_by_point(
    records: Sequence[Record], here: Callable[[Record], bool], value: Callable[[Record], float]
) -> list[float]:
    """Of each piece, the mean of `value` here; pieces without one are left out."""
    points = by_point([record for record in records if here(record)], lambda record: "", value)
    found = [float(np.mean(kinds[""])) for kinds in points]
    return [one for one in found if not math.isnan(one)]


def mean_of(values: Sequence[float]) -> float:
    """nan of nothing."""
    return float(np.mean(values)) if values else math.nan
