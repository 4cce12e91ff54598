"""From records to numbers: accuracy with intervals, paired tests, and the three scores of a run.

Chance c is 1/3. With a_k the accuracy under k masks (probe mask-count):
    mask tax     1 - mean over k > 2 of (a_k - c) / (a_2 - c)
    degradation  (max - min) / max over k
and with the block of examples nearest to or farthest from the question (probe question-position, else location):
    locality     (a_near - a_far) / (a_near - c), mean of question right and left
A score is null where it is not measured, or where the accuracy it divides by is less than .05 above chance.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy import stats

from maskwise.probes.claims import claims
from maskwise.probes.coherence_scores import areas, measures
from maskwise.probes.evidence_scores import expand, shots_against_masks
from maskwise.probes.intervals import CONFIDENCE, mean_over_tasks, reach, widened_tails
from maskwise.probes.records import Condition, Record, Run, condition_order, condition_text
from maskwise.probes.settings import COHERENCE_PROBES
from maskwise.tasks.episodes import CHANCE

LEAST_SKILL = 0.05
RESAMPLES = 2000
WITH_SURPRISE = ("natural-text", "nelbo")

Score = dict[str, float | None]
# For each task, whether each of its points was answered right under each of C conditions: [points, C].
Tables = list[np.ndarray]
DIGITS = 12  # beyond them is rounding


def summarise(run: Run) -> dict[str, Any]:
    """The object that `maskwise diagnose --json` prints."""
    by_probe: dict[str, list[Record]] = {probe: [] for probe in run.manifest["settings"]["probes"]}
    for record in run.records:
        by_probe.setdefault(record["probe"], []).append(record)
    summary: dict[str, Any] = {
        "model": run.manifest["model"]["name"],
        "out": str(run.folder),
        "settings": run.manifest["settings"],
        "scores": {
            "mask_tax": mask_tax(by_probe.get("mask-count", [])),
            "locality": locality(by_probe.get("question-position") or by_probe.get("location", [])),
            "degradation": degradation(by_probe.get("mask-count", [])),
        },
        "probes": {probe: entries(probe, records) for probe, records in by_probe.items() if records},
    }
    if by_probe.get("shots-masks"):
        summary["shots_against_masks"] = shots_against_masks(by_probe["shots-masks"])
    if by_probe.get("coherence"):
        summary["aup"] = areas(by_probe["coherence"])
    if held := claims(run.records):
        summary["claims"] = held
    return summary


# One condition


def entries(probe: str, records: Sequence[Record]) -> list[dict[str, Any]]:
    """Accuracy and the other measures of each condition of a probe, with a paired test against its baseline."""
    groups: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        groups[condition_text(record["condition"])].append(record)
    conditions = sorted((group[0]["condition"] for group in groups.values()), key=condition_order)
    found = []
    for condition in conditions:
        group = groups[condition_text(condition)]
        baseline = baseline_of(probe, condition, conditions)
        entry = _entry(condition, group) | (_surprise(group) if probe in WITH_SURPRISE else {})
        if baseline is not None and baseline != condition:
            entry["paired"] = {"baseline": baseline, **paired(group, groups[condition_text(baseline)])}
        if probe == "coherence":  # an answer of many tokens, each of its own step, has no one confidence
            found.append({k: v for k, v in entry.items() if k not in ("confidence", "entropy")} | measures(group))
        elif probe in COHERENCE_PROBES:
            found.append(entry | _surprise(group) | measures(group))
        else:
            found += expand(entry, group) if "evidence" in group[0] else [entry]
    return found


def _entry(condition: Condition, group: Sequence[Record]) -> dict[str, Any]:
    accuracy, low, high = accuracy_interval(group)
    return {
        "condition": condition,
        "masks": round(float(np.mean([record["masks"] for record in group]))),
        "n": len(group),
        "accuracy": accuracy,
        "low": low,
        "high": high,
        "confidence": float(np.mean([record["confidence"] for record in group])),
        "entropy": float(np.mean([record["entropy"] for record in group])),
    }


def accuracy_interval(group: Sequence[Record]) -> tuple[float, float, float]:
    """(mean over tasks, low, high): Student's 95 % interval over tasks.

    Where the tasks do not differ, or there is one task only, Wilson's interval over the points.
    """
    by_task: dict[str, list[bool]] = defaultdict(list)
    for record in group:
        by_task[record["task"]].append(record["correct"])
    means = [float(np.mean(right)) for right in by_task.values()]
    accuracy = float(np.mean(means))
    if len(set(means)) > 1:
        half = reach(means)
        return accuracy, max(0.0, accuracy - half), min(1.0, accuracy + half)
    right = sum(record["correct"] for record in group)
    interval = stats.binomtest(right, len(group)).proportion_ci(CONFIDENCE, method="wilson")
    return accuracy, float(interval.low), float(interval.high)


def _surprise(group: Sequence[Record]) -> dict[str, float | None]:
    """Mean -log p of the true token."""
    found = mean_over_tasks((record["task"], record["nll"]) for record in group)
    return dict(zip(("nll", "nll_low", "nll_high"), found, strict=True))


# Two conditions


def paired(group: Sequence[Record], baseline: Sequence[Record]) -> dict[str, float]:
    """The difference in accuracy over the points both were asked, and the p-value of McNemar's exact test."""
    before = {(record["task"], record["point"]): record["correct"] for record in baseline}
    pairs = [
        (record["correct"], before[record["task"], record["point"]])
        for record in group
        if (record["task"], record["point"]) in before
    ]
    gained = sum(now and not then for now, then in pairs)
    lost = sum(then and not now for now, then in pairs)
    p = float(stats.binomtest(gained, gained + lost).pvalue) if gained + lost else 1.0
    return {"difference": (gained - lost) / max(1, len(pairs)), "p": p}


def baseline_of(probe: str, condition: Condition, conditions: Sequence[Condition]) -> Condition | None:
    """What a condition is compared with: the examples nearest to the question, or the fewest masks or fillers."""
    if probe in ("location", "question-position"):
        same = [c for c in conditions if c.get("question") == condition.get("question")]
        return nearest_first(same)[0]
    if probe == "mask-count":
        return next((c for c in conditions if c["masks"] == 2), conditions[0])
    if probe == "filler":
        return conditions[0]
    if probe == "context-length":
        same = [c for c in conditions if c["distractors"] == condition["distractors"]]
        return next((c for c in same if c["masks"] == "2 masks"), None)
    if probe == "location-masks":
        return next(c for c in conditions if c["location"] == condition["location"])
    if probe in ("unmasking", "few-steps", "shots-masks"):
        name, count = next(iter(condition.items()))
        return next(c for c in conditions if c[name] == count)
    if probe == "points":
        return {"order": "random"}
    if probe in ("hotpotqa", "labelled-text"):
        return conditions[0]
    if probe == "natural-text":
        return next((c for c in conditions if c["after"] == condition["after"] and c["count"] == 0), None)
    return None


def nearest_first(conditions: Sequence[Condition]) -> list[Condition]:
    """Conditions with one question position, by the distance of their block from the question."""
    places = [int(c["location"]) for c in conditions]  # type: ignore[arg-type]
    asked_at = {"left": min(places), "middle": (min(places) + max(places)) / 2}.get(
        str(conditions[0].get("question")), max(places)
    )
    return sorted(conditions, key=lambda c: abs(int(c["location"]) - asked_at))  # type: ignore[arg-type]


# Scores


def mask_tax(records: Sequence[Record]) -> Score:
    counts = sorted({record["condition"]["masks"] for record in records})
    more = [column for column, k in enumerate(counts) if k > 2]
    if 2 not in counts or not more:
        return null_score()
    two = counts.index(2)

    def tax(accuracy: np.ndarray) -> np.ndarray:
        return _over((accuracy[:, [two]] - accuracy[:, more]).mean(1), accuracy[:, two] - CHANCE)

    return bootstrapped(tables(records, [{"masks": k} for k in counts]), tax)


def degradation(records: Sequence[Record]) -> Score:
    counts = sorted({record["condition"]["masks"] for record in records})
    if len(counts) < 2:
        return null_score()
    return bootstrapped(tables(records, [{"masks": k} for k in counts]), relative_loss)


def relative_loss(accuracy: np.ndarray) -> np.ndarray:
    """(max - min) / max over C conditions, [n, C] -> [n]; nan where even the best has too little skill."""
    best = accuracy.max(1)
    return np.where(best - CHANCE >= LEAST_SKILL, (best - accuracy.min(1)) / np.maximum(best, LEAST_SKILL), np.nan)


def locality(records: Sequence[Record]) -> Score:
    """Of question right and left where both were asked; the location probe has the question right."""
    conditions = {condition_text(record["condition"]): record["condition"] for record in records}.values()
    ends: list[Condition] = []
    for side in ("right", "left"):
        same = nearest_first(asked) if (asked := [c for c in conditions if c.get("question", "right") == side]) else []
        if len(same) > 1:
            ends += [same[0], same[-1]]
    if not ends:
        return null_score()

    def preference(accuracy: np.ndarray) -> np.ndarray:
        near, far = accuracy[:, ::2], accuracy[:, 1::2]
        return _over(near - far, near - CHANCE).mean(1)

    return bootstrapped(tables(records, ends), preference)


def tables(records: Sequence[Record], conditions: Sequence[Condition]) -> Tables:
    """The points that were asked under all of these conditions, by task."""
    columns = {condition_text(condition): column for column, condition in enumerate(conditions)}
    rows: dict[tuple[str, int], list[float]] = defaultdict(lambda: [np.nan] * len(conditions))
    for record in records:
        column = columns.get(condition_text(record["condition"]))
        if column is not None:
            rows[record["task"], record["point"]][column] = record["correct"]
    by_task: dict[str, list[list[float]]] = defaultdict(list)
    for (task, _), row in sorted(rows.items()):
        if not np.isnan(row).any():
            by_task[task].append(row)
    return [np.array(rows) for rows in by_task.values()]


def bootstrapped(by_task: Tables, formula: Callable[[np.ndarray], np.ndarray]) -> Score:
    """formula maps accuracies [n, C] to scores [n], nan where undefined. The interval is a bootstrap over tasks, where
    that tells nothing over points, conditions paired; resamples in which the score is undefined are left out.

    Where no answer differs the score is 0 from 0 to 0; another score that no resample changes has no interval.
    """
    if not by_task:
        return null_score()
    means = np.stack([table.mean(0) for table in by_task])
    value = float(formula(means.mean(0)[None])[0])
    if np.isnan(value):
        return null_score()
    for units in (means, np.concatenate(by_task)):
        drawn = np.random.default_rng(0).multinomial(len(units), [1 / len(units)] * len(units), size=RESAMPLES)
        found = formula(drawn @ units / len(units)).round(DIGITS)
        low, high = np.nanquantile(found, widened_tails(len(units)))
        if low < high:
            return {"value": value, "low": float(low), "high": float(high)}
    nothing = 0.0 if round(value, DIGITS) == 0 else None
    return {"value": value if nothing is None else 0.0, "low": nothing, "high": nothing}


def _over(part: np.ndarray, skill: np.ndarray) -> np.ndarray:
    """part / skill, nan where there is too little skill to divide by."""
    return np.where(skill >= LEAST_SKILL, part / np.maximum(skill, LEAST_SKILL), np.nan)


def null_score() -> Score:
    return {"value": None, "low": None, "high": None}
