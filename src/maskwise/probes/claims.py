"""The second paper's claims held against a run: what was measured, its 95 % interval, and a verdict.

A claim names two numbers: `nothing`, what would be measured if there were nothing to it, and `asked`, what it takes to
say that it holds (ours where the paper says only "almost" or "close to"). With the whole interval beyond both it
holds; beyond `nothing` alone it is in direction; otherwise it does not hold. Differences are taken within a piece of
text, so they are paired; intervals are Student's over the pieces, or Wilson's where no piece differs from another.

Near is the mask beside the visible text, far the second half of the gap.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import numpy as np

from maskwise.probes.intervals import none_seen, reach
from maskwise.probes.records import Record

Verdict = Literal["holds", "in direction", "does not hold", "cannot be told"]
COUPLED = 0.05  # nats; Pinsker: two masks as far apart as 16 % in total variation
ALIKE = 0.1  # total variation: nine tenths of the predictions agree
LITTLE = 0.1  # of the puzzles
CLOSE_TAU = 0.5  # three of four pairs of tokens in reading order
CLOSE_ARNESS = 0.7  # LLaDA-8B has .73 (reported elsewhere)
BLIND_RULES = ("random", "margin", "entropy", "left-to-right")  # they look at no drawn token: the closed forms hold
LEAST_SKILL = 0.2  # of puzzles solved one token a step: below it there is nothing that speed could cost


def claims(records: Sequence[Record]) -> list[dict[str, Any]]:
    """One object a claim that these records can judge, in the paper's order."""
    by_probe: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        by_probe[record["probe"]].append(record)
    found = []
    if by_probe["total-correlation"]:
        found.append(_coupling(by_probe["total-correlation"]))
    if by_probe["coherence"]:
        found += _speed(by_probe["coherence"])
    if by_probe["marginals"]:
        found += _distance(by_probe["marginals"])
    if by_probe["order"]:
        found += _order(by_probe["order"])
    # An unfinished run may lack one side of a comparison.
    return [claim for claim in found if claim["n"] and not math.isnan(claim["nothing"])]


def verdict(low: float | None, high: float | None, nothing: float, asked: float, less: bool = False) -> Verdict:
    """`less`: the claim is that the value is small. Without an interval nothing can be told."""
    if low is None or high is None:
        return "cannot be told"
    if less:
        low, nothing, asked = -high, -nothing, -asked
    return "holds" if low > max(asked, nothing) else "in direction" if low > nothing else "does not hold"


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
) -> dict[str, Any]:
    """A claim about the mean of these values; `bounds` are the smallest and the largest a value can be."""
    mean, (low, high) = mean_of(values), interval(values, bounds)
    told = verdict(low, high, nothing, asked, less)
    if never_vary(values) and told == "does not hold":
        # Every value is on the claim's side, or none is; only in the second case are there enough of them.
        told = "cannot be told" if verdict(mean, mean, nothing, asked, less) == "holds" else told
    return {
        "name": name, "claim": claim, "measure": measure, "unit": unit, "n": len(values),
        "value": mean, "low": low, "high": high, "nothing": nothing, "asked": asked,
        "verdict": told,
    }  # fmt: skip


def interval(values: Sequence[float], bounds: tuple[float, float] | None) -> tuple[float | None, float | None]:
    """Student's; where the values never vary it has no width, and what was not seen may lie anywhere in the bounds."""
    mean = mean_of(values)
    if len(values) > 1 and not never_vary(values):
        return mean - reach(values), mean + reach(values)
    if len(values) < 2 or bounds is None:
        return None, None
    unseen = none_seen(len(values))
    return mean - unseen * (mean - bounds[0]), mean + unseen * (bounds[1] - mean)


def never_vary(values: Sequence[float]) -> bool:
    """But for rounding."""
    return len(values) > 0 and float(np.ptp(values)) < 1e-9


# Claim 1: the output is marginals, and a step that draws from their product pays the total correlation


def _coupling(records: Sequence[Record]) -> dict[str, Any]:
    nearest = min(record["condition"]["distance"] for record in records)
    values = [record["evidence"]["tc"] for record in records if record["condition"]["distance"] == nearest]
    return judged("coupled", "masks side by side are coupled, so filling both at once loses something",
                  f"total correlation at distance {nearest}", values, "nats", asked=COUPLED)  # fmt: skip


def _speed(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Solved one token a step less solved all in one step, puzzle by puzzle, over the rules that look at no token."""
    chosen = [record for record in records if record["condition"]["rule"] in BLIND_RULES]
    paces = sorted({record["condition"]["speed"] for record in chosen}, key=lambda speed: int(speed.split()[0]))
    if len(paces) < 2:  # an unfinished run
        return []
    slow, fast = paces[0], paces[-1]
    found = []
    for puzzle in dict.fromkeys(record["condition"]["puzzle"] for record in chosen):
        of_puzzle = [record for record in chosen if record["condition"]["puzzle"] == puzzle]
        by_point = _by_point(of_puzzle, lambda record: record["condition"]["speed"], lambda record: record["correct"])
        lost = [
            float(np.mean(speeds[slow]) - np.mean(speeds[fast])) for speeds in by_point if len(speeds) == len(paces)
        ]
        skill = float(np.mean([np.mean(speeds[slow]) for speeds in by_point if slow in speeds]))
        measure = f"solved {slow} less {fast}"
        if puzzle == "copy":
            told = judged("speed-copy", "copy: nothing is coupled, so one step costs little", measure, lost, "points",
                          nothing=LITTLE, asked=LITTLE, less=True, bounds=(-1, 1))  # fmt: skip
        else:
            told = judged(f"speed-{puzzle}", f"{puzzle}: all in one step solves less than one token a step", measure,
                          lost, "points", bounds=(-1, 1))  # fmt: skip
        found.append(told | ({"verdict": "cannot be told"} if skill < LEAST_SKILL else {}) | {"skill": skill})
    return found


# Claim 2: distant masks become alike


def _distance(records: Sequence[Record]) -> list[dict[str, Any]]:
    masks = max(record["masks"] for record in records)
    open_end = [record for record in records if record["condition"]["suffix"] == "none"]
    closed = [record for record in records if record["condition"]["suffix"] == "visible"]

    def near(record: Record) -> bool:
        return record["condition"]["distance"] == 1

    def far(record: Record) -> bool:
        return masks / 2 <= record["condition"]["distance"] < masks

    def middle(record: Record) -> bool:
        return abs(record["condition"]["distance"] - (masks + 1) / 2) <= masks / 8

    def at_an_end(record: Record) -> bool:
        return record["condition"]["distance"] in (1, masks)

    def entropy(record: Record) -> float:
        return record["entropy"]

    def alike(record: Record) -> float:
        return record["evidence"]["tv_next"]

    def frequent(record: Record) -> float:
        return record["evidence"].get("mode_common", math.nan)  # runs of earlier versions do not hold it

    return [
        judged("far-unsure", "far from the text the model is less sure", "entropy, far less near",
               _differences(open_end, far, near, entropy), "nats"),
        judged("far-doubtful", "confidence falls with distance", "top probability, near less far",
               _differences(open_end, near, far, lambda record: record["confidence"]), "points", bounds=(-1, 1)),
        judged("grow-alike", "neighbours grow more alike with distance", "distance of neighbours, near less far",
               _differences(open_end, near, far, alike), "points", bounds=(-1, 1)),
        judged("far-identical", "far neighbours are almost identical", "distance of neighbours, far",
               _means(open_end, far, alike), "share", nothing=_mean(open_end, near, alike), asked=ALIKE, less=True,
               bounds=(0, 1)),
        judged("far-frequent", "far predictions name frequent words or the end", "most probable token is frequent, far",
               _means(open_end, far, frequent), "share", nothing=_mean(open_end, near, frequent), asked=0.5,
               bounds=(0, 1)),
        judged("middle-unsure", "with text on both sides it is the middle that is unsure", "entropy, middle less ends",
               _differences(closed, middle, at_an_end, entropy), "nats"),
    ]  # fmt: skip


# Claim 3: the reliable order is close to left to right


def _order(records: Sequence[Record]) -> list[dict[str, Any]]:
    chosen = [record for record in records if record["condition"]["rule"] == "low-confidence"]
    places = chosen[0]["masks"]
    at_random = sum(1 / n for n in range(1, places + 1)) / places
    return [
        judged("reading-order", "the surest-first order is close to left to right", "Kendall's tau",
               [record["evidence"]["tau"] for record in chosen], "", asked=CLOSE_TAU, bounds=(-1, 1)),
        judged("leftmost-first", "most steps take the leftmost mask", "global AR-ness@1",
               [record["evidence"]["global1"] for record in chosen], "share", nothing=at_random, asked=CLOSE_ARNESS,
               bounds=(0, 1)),
    ]  # fmt: skip


# Values a piece of text


def _by_point(
    records: Iterable[Record], kind: Callable[[Record], str], value: Callable[[Record], float]
) -> list[dict[str, list[float]]]:
    """For each point, the values of its records by kind."""
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for record in records:
        found[record["point"]][kind(record)].append(value(record))
    return [dict(kinds) for _, kinds in sorted(found.items())]


def _differences(
    records: Sequence[Record],
    here: Callable[[Record], bool],
    there: Callable[[Record], bool],
    value: Callable[[Record], float],
) -> list[float]:
    """Of each piece, the mean of `value` here less that there."""
    chosen = [record for record in records if here(record) or there(record)]
    by_point = _by_point(chosen, lambda record: "here" if here(record) else "there", value)
    return [float(np.mean(kinds["here"]) - np.mean(kinds["there"])) for kinds in by_point if len(kinds) == 2]


def _means(records: Sequence[Record], here: Callable[[Record], bool], value: Callable[[Record], float]) -> list[float]:
    by_point = _by_point([record for record in records if here(record)], lambda record: "", value)
    means = [float(np.mean(kinds[""])) for kinds in by_point]
    return [mean for mean in means if not math.isnan(mean)]


def _mean(records: Sequence[Record], here: Callable[[Record], bool], value: Callable[[Record], float]) -> float:
    return mean_of(_means(records, here, value))


def mean_of(values: Sequence[float]) -> float:
    """nan of nothing."""
    return float(np.mean(values)) if values else math.nan
