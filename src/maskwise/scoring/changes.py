"""Differences between two conditions, or between two runs with the same questions. Points are paired.

degradation   (max - min) / max of the accuracy over mask counts
reduction     1 - degradation after / degradation before; null where there was too little to reduce
loss recovered  (a_most after - a_most before) / (a_2 before - a_most before), a_k the accuracy with k masks; likewise
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Annotated

import numpy as np
from msgspec import Meta, structs

from maskwise.records.folder import RunOnDisk
from maskwise.records.groups import GroupedRecords, as_group, conditions_of, groups_of, paired
from maskwise.records.record import Condition, Record, condition_text
from maskwise.scoring.claims import judged, p_value
from maskwise.scoring.intervals import by_task, paired_share, rules_ends, stratified_mean, variances_of
from maskwise.scoring.scores import LIKELIHOODS, Score, Tables, bootstrapped, null_score, relative_loss, score, tables
from maskwise.support.errors import UserError
from maskwise.support.typed import Typed

LEAST_LOSS = 0.02  # of degradation before, for its reduction to mean anything
TOO_LITTLE_LOSS = "too little degradation to reduce"
SAME_QUESTIONS = ("seeds", "seed", "relevant", "distractors", "held_out", "words", "chat")


class Difference(Typed, frozen=True, kw_only=True):
    """A paired difference in accuracy, mean over tasks, with both intervals.

    Where no answer became right or wrong, low and high are the exact bound of the share that may have.
    """

    difference: Annotated[float, Meta(description="in accuracy")]
    low: Annotated[float | None, Meta(description="lower end of the 95 % interval")]
    high: Annotated[float | None, Meta(description="upper end")]
    rules_low: Annotated[float | None, Meta(description="lower end of the interval over new word rules")]
    rules_high: Annotated[float | None, Meta(description="upper end")]
    n: Annotated[int, Meta(description="points asked under both")]
    differed: Annotated[int, Meta(description="of these, answers that became right or wrong")]
    p: Annotated[float | None, Meta(description="two-sided p-value of no difference, tested as claims are")] = None


class NatsDifference(Typed, frozen=True, kw_only=True):
    """The same of a negative log-likelihood, in nats."""

    difference: float
    low: float | None
    high: float | None
    rules_low: float | None
    rules_high: float | None


def paired_difference(group: Sequence[Record], baseline: Sequence[Record]) -> Difference:
    """The difference in accuracy over the points that both were asked."""
    strata = paired_values(group, baseline, "correct")
    if not strata:
        return Difference(difference=0.0, low=None, high=None, rules_low=None, rules_high=None, n=0, differed=0)
    found = paired_share(strata, variances_of(strata))
    assert found.value is not None
    rules_low, rules_high = rules_ends(strata, (-1.0, 1.0))
    return Difference(
        difference=found.value,
        low=found.low,
        high=found.high,
        rules_low=rules_low,
        rules_high=rules_high,
        n=sum(map(len, strata.values())),
        differed=int(sum(np.count_nonzero(change) for change in strata.values())),
        p=p_value(judged("", "", "", strata, "points", bounds=(-1.0, 1.0)), 0.0),
    )


def paired_nats(group: Sequence[Record], baseline: Sequence[Record]) -> dict[str, NatsDifference]:
    """The same for the negative log-likelihood of the right answer and its two parts, in nats."""
    found = {}
    here, before = as_group(group), as_group(baseline)
    for field in (field for field in LIKELIHOODS if here.has(field) and before.has(field)):
        if strata := paired_values(here, before, field):
            difference, low, high = stratified_mean(strata)
            rules = dict(zip(("rules_low", "rules_high"), rules_ends(strata), strict=True))
            found[field] = NatsDifference(difference=difference, low=low, high=high, **rules)
    return found


def paired_values(group: Sequence[Record], baseline: Sequence[Record], field: str) -> dict[str, np.ndarray]:
    """The value of each point minus its value under the baseline, by task."""
    tables = paired([as_group(group), as_group(baseline)], field)
    return {task: table[:, 0] - table[:, 1] for task, table in tables.items()}


def check_pairs(before: RunOnDisk, after: RunOnDisk) -> None:
    """Refuses runs whose test points are not the same questions."""
    for name in SAME_QUESTIONS:
        old, new = getattr(before.manifest.settings, name), getattr(after.manifest.settings, name)
        if old != new:
            raise UserError(
                f"{before.folder} and {after.folder} asked different questions: {name} is {old} in one and {new} in "
                "the other; run both with the same settings"
            )


def of_probe(run: RunOnDisk, probe: str) -> Sequence[Record]:
    return run.by_probe.get(probe, [])


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


def loss_recovered(before: Sequence[Record], after: Sequence[Record]) -> Score:
    """The share of the accuracy lost to the most masks, compared with 2, that is recovered with the most masks.

    The accuracy with 2 masks after does not count, so that lowering it is no gain. "ends" has all four accuracies.
    """
    conditions = common_conditions(before, after)
    counts = [condition["masks"] for condition in conditions]
    if 2 not in counts or max(counts) == 2:
        return null_score()
    two, most, many = counts.index(2), counts.index(max(counts)), len(conditions)
    return recovered_share(paired_tables(before, after, conditions), (two, most, many + two, many + most))


def recovered_share(by_task: Tables, columns: tuple[int, int, int, int] = (0, 1, 2, 3)) -> Score:
    """(a_most' - a_most) / (a_few - a_most) of tables [points, C]. columns: few and most masks before, then after."""

    def share(accuracy: np.ndarray) -> np.ndarray:
        few, most, _, cured = (accuracy[:, column] for column in columns)
        lost = few - most
        return np.where(lost >= LEAST_LOSS, (cured - most) / np.maximum(lost, LEAST_LOSS), np.nan)

    found = bootstrapped(by_task, share, TOO_LITTLE_LOSS)
    if not by_task:
        return found
    means = np.mean([table.mean(0) for table in by_task.values()], axis=0)
    few, most, few_after, most_after = (float(means[column]) for column in columns)
    return structs.replace(found, ends={"before": [few, most], "after": [few_after, most_after]})


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
    """Mean change of a measure (nll, confidence, entropy) over the records both runs hold, with both intervals. What a
    point gave under several conditions is averaged first: the point is what is drawn.

    Null where the answers differ: then the two were not asked the same, for instance with different tokenizers.
    """
    then = {(r.task, r.point, condition_text(r.condition)): r for r in before}
    pairs = [(then[key], r) for r in after if (key := (r.task, r.point, condition_text(r.condition))) in then]
    if len(pairs) < 2 or any(getattr(one, field) is None for pair in pairs for one in pair):
        return null_score()
    if any(old.answer != new.answer for old, new in pairs):
        return null_score("the two were not asked the same")
    of_point: dict[tuple[str, int], list[float]] = defaultdict(list)
    for old, new in pairs:
        of_point[new.task, new.point].append(getattr(new, field) - getattr(old, field))
    strata = by_task((task, float(np.mean(changes))) for (task, _), changes in of_point.items())
    middle, low, high = stratified_mean(strata)
    return score(middle, low, high, rules_ends(strata), len(of_point))


def common_conditions(before: Sequence[Record], after: Sequence[Record]) -> list[Condition]:
    """The conditions both were asked under."""
    asked = set(map(condition_text, conditions_of(after)))
    found = {condition_text(condition): condition for condition in conditions_of(before)}
    return [condition for text, condition in sorted(found.items()) if text in asked]


def paired_tables(before: Sequence[Record], after: Sequence[Record], conditions: Sequence[Condition]) -> Tables:
    """Points answered in both runs under all conditions: [points, 2C], before first."""
    sides = [
        group.under({**group.condition, "side": side})
        for side, records in enumerate((before, after))
        for group in groups_of(records)
    ]
    return tables(GroupedRecords(sides), [{**condition, "side": side} for side in (0, 1) for condition in conditions])
