"""Evaluation on held-out examples: CE, TV, and the accuracy with few and with many masks appended."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from maskwise.diffusion import Views, compare_views, mask_agnostic_call
from maskwise.models.model import Model
from maskwise.support.terminal import counted, one_line
from maskwise.training.training_settings import SharedSettings

PAIRS_PER_PASS = 8


def masks_used(views: Sequence[Views], settings: SharedSettings) -> dict[str, int]:
    """The numbers of appended masks: few, and the largest and smallest "many", if not all of them fit."""
    many = [settings.few + len(view.second) - len(view.first) for view in views] or [settings.many]
    return {"few": settings.few, "many": max(many), "many_least": min(many)}


def many_masks(masks: dict[str, int]) -> str:
    """The number of many masks in words."""
    most = masks["many"]
    least = masks.get("many_least", most)
    return str(most) if least == most else f"{least} to {most}"


def measure(model: Model, call_model: Callable[..., Any], views: Sequence[Views]) -> dict[str, float]:
    """Means over masked content tokens; `call_model` is the model or the DDP or FSDP2 wrapper around it."""
    ce_few, ce_many, tv, hit_few, hit_many = mean_scores(model, call_model, views)
    return {
        "ce": (ce_few + ce_many) / 2,
        "tv": tv,
        "accuracy_few": hit_few,
        "accuracy_many": hit_many,
        "gap": hit_few - hit_many,
    }


@torch.no_grad()
def mean_scores(model: Model, call_model: Callable[..., Any], views: Sequence[Views]) -> list[float]:
    """`ViewScores`, each as its mean over masked answer tokens."""
    parts = []
    for start in range(0, len(views), PAIRS_PER_PASS):
        some = views[start : start + PAIRS_PER_PASS]
        call = mask_agnostic_call(model, some)
        targets = torch.cat([view.targets for view in some]).to(model.device)

        def loss(hidden: Tensor, head_weight: Tensor, targets: Tensor = targets) -> Any:
            first, second = hidden.chunk(2)
            return compare_views(first, second, head_weight, targets, model.mask_id)

        parts.append(call_model(call.batch, call.index, loss))
    columns = [torch.cat(column).double() for column in zip(*parts, strict=True)]
    return [float(column.mean()) for column in columns]


def summary(result: dict[str, Any], used: str, held_out: str, labels: dict[str, str], following: str) -> list[str]:
    """The lines printed at the end of a run: the examples `used`, the measures before and after, the next command."""
    return [
        f"{counted(result['steps'], 'step')} on {used}",
        *before_and_after(result, held_out, labels),
        f"written to {one_line(result['out'])}",
        f"next: maskwise {following}",
    ]


def before_and_after(result: dict[str, Any], where: str, labels: dict[str, str]) -> list[str]:
    """The lines of a table of the measures before and after; no line where nothing was held out."""
    before, after = result["before"], result["after"]
    if not before:
        return []
    labels = {key: label for key, label in labels.items() if key in before}
    width = max(28, *map(len, labels.values()))
    rows = [f"{label:{width}} {before[key]:8.4f} {after[key]:8.4f}" for key, label in labels.items()]
    return [f"{'on ' + where:{width}} {'before':>8} {'after':>8}", *rows]
