"""What tuning changes, measured on held-out pairs: CE, TV, and the accuracy with few and with many masks appended."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from maskwise.diffusion import Draw, Views, compare_views, draw_noise, mask_agnostic, mask_agnostic_call
from maskwise.models.model import Model
from maskwise.support.randomness import torch_generator
from maskwise.training.data.pairs import Pair
from maskwise.training.settings import RunSettings, TuneSettings

PAIRS_PER_PASS = 8


def held_out_views(pairs: Sequence[Pair], settings: TuneSettings, mask_id: int) -> list[Views]:
    """One fixed noise per pair; the first view ends with few masks, the second with many (or as many as fit).

    What is measured are the masked content tokens, of which there is at least one. The end token that closes every
    answer is masked as often as the others but not counted: where an answer is short it would be a large share of what
    is measured, and it is the easiest. A pair that leaves room for no more than the few masks has nothing to compare
    and is left out.
    """
    views = []
    for number, pair in enumerate(pairs):
        room = settings.context - pair.length
        if room <= settings.few:
            continue
        chance = torch_generator("held out", settings.seed, number)
        noise = draw_noise(len(pair.answer) - 1, 1, chance, settings.mask_low, settings.mask_high)
        masked = torch.cat([noise.masked, torch.rand(1, generator=chance) < noise.p])
        draw = Draw(noise.p, masked, settings.few, min(settings.many, room))
        view = mask_agnostic(torch.tensor(pair.prompt), torch.tensor(pair.answer), draw, mask_id)
        views.append(_without_row(view, pair.length - 1))
    return views


def masks_used(views: Sequence[Views], settings: RunSettings) -> dict[str, int]:
    """How many masks are appended: few, and the most and the least that many are where not all of them fit."""
    many = [settings.few + len(view.second) - len(view.first) for view in views] or [settings.many]
    return {"few": settings.few, "many": max(many), "many_least": min(many)}


def many_masks(masks: dict[str, int]) -> str:
    """The number of many masks in words."""
    most = masks["many"]
    least = masks.get("many_least", most)
    return str(most) if least == most else f"{least} to {most}"


def _without_row(view: Views, row: int) -> Views:
    """The same inputs, that row not measured."""
    kept = view.rows != row
    per_row = {name: getattr(view, name)[kept] for name in ("rows", "targets", "ce_weights", "tv_weights")}
    return replace(view, **per_row)


def measure(model: Model, call_model: Callable[..., Any], views: Sequence[Views]) -> dict[str, float]:
    """Means over masked content tokens; `call_model` is the model itself or what DDP or FSDP2 put around it."""
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
