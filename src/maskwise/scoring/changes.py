"""What differs between two conditions, or two runs that asked the same questions. Points are paired.

degradation   (max - min) / max of the accuracy over mask counts
reduction     1 - degradation after / degradation before; null where there was too little to reduce
"""

from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from maskwise.errors import UserError
from maskwise.records.folder import Run
from maskwise.records.record import Condition, Record, condition_text
from maskwise.scoring.intervals import mean_over_tasks
from maskwise.scoring.scores import Score, Tables, bootstrapped, null_score, relative_loss, score, tables

LEAST_LOSS = 0.02  # of degradation before, for its reduction to mean anything
TOO_LITTLE_LOSS = "too little degradation to reduce"
SAME_QUESTIONS = ("seeds", "seed", "relevant", "distractors", "held_out", "words", "chat")


def paired_difference(group: Sequence[Record], baseline: Sequence[Record]) -> dict[str, float]:
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


def check_pairs(before: Run, after: Run) -> None:
    """Refuses runs whose test points are not the same questions."""
    for name in SAME_QUESTIONS:
        old, new = before.manifest["settings"].get(name), after.manifest["settings"].get(name)
        if old != new:
            raise UserError(
                f"{before.folder} and {after.folder} asked different questions: {name} is {old} in one and {new} in "
                "the other; run both with the same settings"
            )


def of_probe(run: Run, probe: str) -> list[Record]:
    return [record for record in run.records if record["probe"] == probe]


def reduction(before: Sequence[Record], after: Sequence[Record], group: str | None = None) -> Score:
    """How much of the degradation over mask counts is gone. With a `group` ("steps"), of the mean over its values."""
    conditions = common_conditions(before, after)
    groups: dict[object, list[int]] = {}
    for column, condition in enumerate(conditions):
        groups.setdefault(condition[group] if group else None, []).append(column)
    if not conditions or min(map(len, groups.values())) < 2:
        return null_score()

    def share_gone(accuracy: np.ndarray) -> np.ndarray:
        then, now = np.split(accuracy, 2, axis=1)
        losses = [np.mean([relative_loss(side[:, c]) for c in groups.values()], axis=0) for side in (then, now)]
        return np.where(losses[0] >= LEAST_LOSS, 1 - losses[1] / np.maximum(losses[0], LEAST_LOSS), np.nan)

    return bootstrapped(paired_tables(before, after, conditions), share_gone, TOO_LITTLE_LOSS)


def accuracy_change(before: Sequence[Record], after: Sequence[Record], keep: Callable[[Condition], bool]) -> Score:
    """Accuracy after less accuracy before, mean over the conditions kept."""
    conditions = [condition for condition in common_conditions(before, after) if keep(condition)]
    if not conditions:
        return null_score()

    def change(accuracy: np.ndarray) -> np.ndarray:
        then, now = np.split(accuracy, 2, axis=1)
        return (now - then).mean(1)

    return bootstrapped(paired_tables(before, after, conditions), change)


def mean_change(before: Sequence[Record], after: Sequence[Record], field: str) -> Score:
    """Mean change of a measure (nll, confidence, entropy) over the records both runs hold, Student's interval over
    tasks (of one task: over its points).

    Null where the answers differ: then the two were not asked the same, for instance with different tokenizers.
    """
    then = {(r["task"], r["point"], condition_text(r["condition"])): r for r in before}
    pairs = [(then[key], r) for r in after if (key := (r["task"], r["point"], condition_text(r["condition"]))) in then]
    if len(pairs) < 2:
        return null_score()
    if any(old["answer"] != new["answer"] for old, new in pairs):
        return null_score("the two were not asked the same")
    middle, low, high = mean_over_tasks((new["task"], new[field] - old[field]) for old, new in pairs)
    return score(middle, low, high)


def common_conditions(before: Sequence[Record], after: Sequence[Record]) -> list[Condition]:
    """The conditions both were asked under."""
    asked = {condition_text(record["condition"]) for record in after}
    found = {condition_text(record["condition"]): record["condition"] for record in before}
    return [condition for text, condition in sorted(found.items()) if text in asked]


def paired_tables(before: Sequence[Record], after: Sequence[Record], conditions: Sequence[Condition]) -> Tables:
    """Points answered in both runs under all conditions: [points, 2C], before first."""
    sides = [
        record | {"condition": {**record["condition"], "side": side}}
        for side, records in enumerate((before, after))
        for record in records
    ]
    return tables(sides, [{**condition, "side": side} for side in (0, 1) for condition in conditions])
