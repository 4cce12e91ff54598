"""The mask-agnostic loss: two views of a noised pair that differ in the number of masks at their end must agree.

Piskorz et al., Masks Can Be Distracting, arXiv 2511.21338. `anchored_call` is ours: the tuned model learns to predict
with appended masks what the untuned model predicts without them, so that tuning changes nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from maskwise.diffusion.fused import LinearCeTv, linear_ce, linear_ce_tv
from maskwise.diffusion.fused_kl import linear_kl
from maskwise.diffusion.training_call import Call
from maskwise.models.batch import Batch
from maskwise.models.model import Model


@dataclass(frozen=True)
class Views:
    """Two inputs that share everything but the number of masks at their end; m masked answer tokens carry the loss."""

    first: Tensor  # [n + l1]
    second: Tensor  # [n + l2]
    rows: Tensor  # [m]
    targets: Tensor  # [m]
    ce_weights: Tensor  # [m]
    tv_weights: Tensor  # [m]


@dataclass(frozen=True)
class Draw:
    """The noise of one pair: the masking probability, which answer tokens are masked [n_a], the two mask counts."""

    p: float
    masked: Tensor
    l1: int
    l2: int


def draw_noise(
    answer_length: int, most_masks: int, generator: torch.Generator, low: float = 0.2, high: float = 0.8
) -> Draw:
    """p ~ U(low, high), each answer token masked with probability p (at least one), l1 != l2 in 0..most_masks."""
    p = low + (high - low) * float(torch.rand((), generator=generator, dtype=torch.float64))
    masked = torch.zeros(answer_length, dtype=torch.bool)
    while not masked.any():  # drawing again keeps every non-empty pattern as likely as it was
        masked = torch.rand(answer_length, generator=generator) < p
    l1, l2 = torch.randperm(most_masks + 1, generator=generator)[:2].tolist()
    return Draw(p, masked, l1, l2)


def mask_agnostic(
    prompt: Tensor, answer: Tensor, draw: Draw, mask_id: int, alpha: float = 0.1, beta: float = 1.0
) -> Views:
    """The two views of a pair and the weights of their rows: CE gets alpha / (p n_m), TV beta * p / n_m.
    alpha = 0 is TV alone, beta = 0 CE alone."""
    noised = torch.cat([prompt, torch.where(draw.masked, mask_id, answer)])
    places = draw.masked.nonzero()[:, 0]
    first, second = (torch.cat([noised, noised.new_full((masks,), mask_id)]) for masks in (draw.l1, draw.l2))
    amount = len(places)
    ce, tv = (torch.full((amount,), one) for one in (alpha / (draw.p * amount), beta * draw.p / amount))
    return Views(first, second, len(prompt) + places, answer[places], ce, tv)


def pad_visibly(views: Sequence[Views], token: int) -> list[Views]:
    """Every input filled up with a visible token (the paper: EOS) to the length of the longest."""
    longest = max(len(ids) for view in views for ids in (view.first, view.second))

    def padded(ids: Tensor) -> Tensor:
        return torch.cat([ids, ids.new_full((longest - len(ids),), token)])

    return [replace(view, first=padded(view.first), second=padded(view.second)) for view in views]


def mask_agnostic_call(model: Model, views: Sequence[Views], one_branch: bool = False) -> Call:
    """Both views of all pairs as one ragged batch; the loss returns `LinearCeTv`, means over the pairs.
    `one_branch` stops the gradient at the second view's hidden states."""
    batch = Batch.pack([view.first for view in views] + [view.second for view in views], model.device)
    index = model.locate_all(batch, [view.rows for view in views] * 2)
    targets, ce_weights, tv_weights = _loss_rows(views, model.device)

    def loss(hidden: Tensor, head_weight: Tensor) -> LinearCeTv:
        first, second = hidden.chunk(2)
        second = second.detach() if one_branch else second
        return linear_ce_tv(first, second, head_weight, targets, ce_weights, tv_weights, model.mask_id)

    return Call(batch, index, loss)


def anchored_call(model: Model, call_model: Callable[..., Any], views: Sequence[Views]) -> Call:
    """sum ce_weights * CE + sum tv_weights * KL(anchor || model) of the first views, means over the pairs.

    The anchor is the untuned model's prediction for the second views: the adapter is switched off for a pass without
    gradient. `call_model` is the model or its DDP or FSDP2 wrapper. The loss returns (loss, CE, KL).
    """
    anchored = Batch.pack([view.second for view in views], model.device)
    rows = [view.rows for view in views]
    with torch.no_grad(), model.net.disable_adapter():  # type: ignore[operator]
        anchor = call_model(anchored, model.locate_all(anchored, rows), lambda hidden, head_weight: hidden)
    batch = Batch.pack([view.first for view in views], model.device)
    targets, ce_weights, kl_weights = _loss_rows(views, model.device)

    def loss(hidden: Tensor, head_weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ce = linear_ce(hidden, head_weight, targets, ce_weights, model.mask_id)
        kl = linear_kl(hidden, head_weight, anchor, head_weight.detach(), kl_weights, model.mask_id)
        return ce + kl, ce.detach(), kl.detach()

    return Call(batch, model.locate_all(batch, rows), loss)


def _loss_rows(views: Sequence[Views], device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Targets and both weights of all pairs' rows, each [m]; the weights for a mean over the pairs."""
    targets, ce_weights, tv_weights = (
        torch.cat([getattr(view, name) for view in views]).to(device)
        for name in ("targets", "ce_weights", "tv_weights")
    )
    return targets, ce_weights / len(views), tv_weights / len(views)
