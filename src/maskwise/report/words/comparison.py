"""A comparison of models as a person reads it: a row for each measure, with the change from the first model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from maskwise.report.words.task_skill import limit
from maskwise.scoring.experiment_results import Changes, ComparedModel
from maskwise.scoring.numbers import NBSP, between, number, percent, points, signed
from maskwise.scoring.scores import Score, null_score

Show = Callable[[float], str]


@dataclass(frozen=True)
class Row:
    """A measure: its meaning, its value for each model, and the change from the first to each other."""

    name: str
    meaning: str
    values: tuple[str, ...]
    changes: tuple[str, ...]


# Each loss: the low ends of its intervals, then the fields of a model and of a change that are emptied.
LOSSES: tuple[tuple[Callable[[ComparedModel], list[float | None]], dict[str, Any], dict[str, Any]], ...] = (
    (lambda found: found.intervals["degradation"][:1], {"degradation": None}, {"reduction": null_score()}),
    (
        lambda found: [score.low for score in found.few_steps.values()],
        {"few_steps": {}, "few_steps_degradation": None},
        {"few_steps": {}, "few_steps_reduction": null_score()},
    ),
    (lambda found: found.intervals["mask_tax"][:1], {"mask_tax": None, "mask_loss": None}, {"mask_loss": null_score()}),
)


def without_losses(
    models: Mapping[str, ComparedModel], changes: Mapping[str, Changes]
) -> tuple[Mapping[str, ComparedModel], Mapping[str, Changes]]:
    """Empties the losses of models that cannot show one; as in `limit_of_score`, a task is too easy for a model unless
    the loss of another is significant."""
    limited = {label: skill for label, found in models.items() if (skill := limit(found.skill or None)) is not None}
    first = next(iter(models))
    for lows, own, changed in LOSSES:
        lost = any(low is not None and low > 0 for found in models.values() for low in lows(found))
        unable = {label for label, skill in limited.items() if not (skill.shown and lost)}
        models = {label: found.changed(**own) if label in unable else found for label, found in models.items()}
        changes = {
            label: found.changed(**changed) if unable & {label, first} else found for label, found in changes.items()
        }
    return models, changes


def rows_of(models: Mapping[str, ComparedModel], changes: Mapping[str, Changes]) -> list[Row]:
    """The comparison as a table, from what `maskwise compare --json` prints.

    The losses of a model that cannot show any are left out.
    """
    models, changes = without_losses(models, changes)

    def row(name: str, meaning: str, key: str, show: Show, change: str = "", show_change: Show = signed) -> Row:
        own = [getattr(found, key) for found in models.values()]
        values = tuple("–" if value is None else show(value) for value in own)
        changed = [
            change_in_words(getattr(found, change), show_change) if change else "–" for found in changes.values()
        ]
        return Row(name, meaning, values, tuple(changed))

    most = {found.most_masks for found in models.values()} - {None}

    def with_most(name: str, meaning: str, key: str, show: Show, show_change: Show) -> Row:
        """Each value says with how many masks, where that is not the same for all models."""
        if len(most) < 2:
            return row(name.format(*most or ["most"]), meaning, key, show, key, show_change)
        plain = row(name.format("most"), meaning, key, show, key, show_change)
        values = (
            value if getattr(found, key) is None else f"{value} ({found.most_masks}{NBSP}masks)"
            for value, found in zip(plain.values, models.values(), strict=True)
        )
        return replace(plain, values=tuple(values))

    counts = {tuple(found.mask_counts) for found in models.values()} - {()}
    over = f"over {', '.join(map(str, *counts))} masks" if len(counts) == 1 else "each over its own mask counts"
    steps = list(dict.fromkeys(count for found in models.values() for count in found.few_steps))
    nothing = null_score()
    few = []
    for count in steps:
        values = tuple(percent(found.few_steps.get(count, nothing).value, 1) for found in models.values())
        changed = [change_in_words(found.few_steps.get(count, nothing), share_gone) for found in changes.values()]
        decoded = "the same, decoded in that many steps in random order"
        few.append(Row(f"Degradation in {count} steps", decoded, values, tuple(changed)))
    return [
        row("Accuracy, 2 masks", "k = 2", "accuracy_k2", tenths, "accuracy_k2", points),
        with_most("Accuracy, {} masks", "at the most masks", "accuracy_most_masks", tenths, points),
        with_most("Lost to {} masks", "accuracy with 2 masks less that with the most; change: share of the first "
                  "model's loss that is recovered with the most", "mask_loss", in_points, share_recovered),
        row("NLL, 2 masks", "negative log-likelihood of the right answer, nats; lower is better", "nll_k2", number,
            "nll_k2"),
        with_most("NLL, {} masks", "the same at the most masks", "nll_most_masks", number, signed),
        row("Degradation", f"from the best to the worst number of masks, of the best accuracy, {over}",
            "degradation", tenths, "reduction", share_gone),
        *few,
        row("Degradation, mean of these", "over the numbers of steps", "few_steps_degradation", tenths,
            "few_steps_reduction", share_gone),
        row("Multi-step accuracy", "mean over those steps and masks", "multi_step_accuracy", tenths,
            "multi_step_accuracy", points),
        row("Mask tax", f"share of its skill lost to masks beyond the second, {over}", "mask_tax", tenths),
        row("Locality", "share of its skill lost when the examples stand far", "locality", tenths),
        row("Recall, 2 masks", "of pairs, mean over distances", "recall", tenths, "recall", points),
        row("Held-out NELBO", "nats per token of prose; lower is better", "nelbo", number, "nelbo"),
        row("Confidence", f"mean probability of its answers, {over}", "confidence", number, "confidence"),
        row("Entropy", f"mean, nats, {over}", "entropy", number, "entropy"),
    ]  # fmt: skip


def tenths(value: float) -> str:
    return percent(value, 1)


def in_points(value: float) -> str:
    return points(value).removeprefix("+")


def change_in_words(score: Score, show: Show) -> str:
    if score.value is None:
        return "–"
    if score.low is None or score.high is None:
        return show(score.value)
    if show in (share_gone, share_recovered):  # "20 % more" with the interval of how much more
        low, high = (score.low, score.high) if score.value >= 0 else (-score.high, -score.low)
        return f"{show(score.value)} ({between(low, high)})"
    ends = " to ".join(show(end).removesuffix(f"{NBSP}points") for end in (score.low, score.high))
    unchanged = "; nothing changed" if score.differed == 0 else ""
    return f"{show(score.value)} ({ends}{unchanged})"


def share_recovered(value: float) -> str:
    """(a_most after - a_most before) / (a_2 before - a_most before)"""
    return f"{percent(abs(value))} {'recovered' if value >= 0 else 'more lost'}"


def share_gone(value: float) -> str:
    """A reduction: how much less of it there is."""
    return f"{percent(abs(value))} {'less' if value >= 0 else 'more'}"
