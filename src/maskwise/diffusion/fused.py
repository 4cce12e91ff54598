"""The output head, cross-entropy and total variation in one pass over the rows, without ever holding [N, V] logits.

A row's loss needs its logits twice, for the value and for the gradient, and both have closed forms. So a chunk of
rows makes its logits once, turns them in place into the gradient with respect to the logits, multiplies that by the
weight, and is forgotten. What lives at any time is one chunk of logits and the gradients of the inputs.

On the CPU the logits are float64: as tuning succeeds the two views draw together, and the sign of p1 - p2 drowns in
float32 rounding (at a relative distance of 1e-3 between the views the gradient is off by 1 %). The products with the
gradients need no such care and stay float32. On CUDA bfloat16 factors are multiplied as they are and summed in float32.
Under bfloat16 autocast the cross-entropy of one view rounds its factors to it, as every other product does; two views,
whose difference is wanted, keep their precision.

With p = softmax(z), a target t and s = sign(p1 - p2):

    d CE / dz       = p - onehot(t)
    d sum|p1-p2| / dz1 =  p1 * (s - <s, p1>)
    d sum|p1-p2| / dz2 = -p2 * (s - <s, p2>)        with <s, p2> = <s, p1> - sum|p1 - p2|
"""

from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from maskwise.kernels import gate
from maskwise.support.errors import UserError

LOGIT_BYTES = {"cpu": 64 << 20, "cuda": 256 << 20}
VOCABULARY_SLICE = 8192


class LinearCeTv(NamedTuple):
    """loss = ce + tv carries the gradient; ce and tv are detached. All three are scalars."""

    loss: Tensor
    ce: Tensor
    tv: Tensor


class ViewScores(NamedTuple):
    """Scores of two views of the same rows, each [N]: cross-entropies, sum_v |p1 - p2|, whether the argmax is right."""

    ce1: Tensor
    ce2: Tensor
    tv: Tensor
    hit1: Tensor
    hit2: Tensor


def linear_ce_tv(
    h1: Tensor,
    h2: Tensor,
    weight: Tensor,
    targets: Tensor,
    ce_weights: Tensor,
    tv_weights: Tensor,
    mask_id: int | None = None,
    chunk: int | None = None,
) -> LinearCeTv:
    """sum ce_weights * (CE1 + CE2) / 2  +  sum tv_weights * sum_v |p1 - p2|, of two views of the same N rows.

    h1, h2 [N, d] are the hidden states, weight [V, d] the output head, targets [N] the right tokens; the two weights
    [N] carry every factor of the objective. The column `mask_id` gets no probability. `chunk` rows are done at a time.
    Rows whose two views are identical have a variation and a variation gradient of exactly zero.
    """
    _check_rows(chunk, targets, h1, h2, ce_weights, tv_weights)
    loss, ce, tv = _FusedHead.apply(
        weight, targets, ce_weights, tv_weights, mask_id, chunk, torch.is_grad_enabled(), h1, h2
    )
    return LinearCeTv(loss, ce, tv)


def linear_ce(
    h: Tensor, weight: Tensor, targets: Tensor, weights: Tensor, mask_id: int | None = None, chunk: int | None = None
) -> Tensor:
    """sum weights * CE of N rows, shapes as in `linear_ce_tv`; a scalar that carries the gradient."""
    _check_rows(chunk, targets, h, weights)
    loss, _, _ = _FusedHead.apply(weight, targets, weights, None, mask_id, chunk, torch.is_grad_enabled(), h)
    return loss


@torch.no_grad()
def compare_views(
    h1: Tensor, h2: Tensor, weight: Tensor, targets: Tensor, mask_id: int | None = None, chunk: int | None = None
) -> ViewScores:
    """Per-row scores of two views, for evaluation; shapes as in `linear_ce_tv`, no gradient, the same chunks."""
    _check_rows(chunk, targets, h1, h2)
    factor = _factor(weight, h1)
    step = chunk or _rows_per_chunk(factor, 2)
    parts = []
    for start in range(0, len(targets), step):
        rows, wanted = slice(start, start + step), targets[start : start + step]
        with _full_precision(weight):
            z1, z2 = _logits(torch.cat([h1[rows], h2[rows]]), factor, mask_id).chunk(2)
        hit1, hit2 = z1.argmax(1) == wanted, z2.argmax(1) == wanted
        log1, log2 = z1.log_softmax(1), z2.log_softmax(1)
        ce1, ce2 = (-log.gather(1, wanted[:, None])[:, 0] for log in (log1, log2))
        parts.append(ViewScores(ce1, ce2, (log1.exp_() - log2.exp_()).abs_().sum(1), hit1, hit2))
    if not parts:
        nothing = torch.zeros(0, device=h1.device)
        return ViewScores(nothing, nothing, nothing, nothing.bool(), nothing.bool())
    return ViewScores(*(torch.cat(column) for column in zip(*parts, strict=True)))


def _full_precision(weight: Tensor) -> torch.autocast:
    """Under autocast what the products give would be rounded to half precision."""
    return torch.autocast(device_type=weight.device.type, enabled=False)


def _check_rows(chunk: int | None, targets: Tensor, *others: Tensor) -> None:
    """Refuses unequal lengths: the gradients of rows outside every chunk would be uninitialised memory."""
    if chunk is not None and chunk < 1:
        raise UserError(f"chunk {chunk} holds no row: give 1 or more, or leave it out")
    if any(len(other) != len(targets) for other in others):
        raise UserError(
            f"{len(targets)} targets, but {', '.join(str(len(other)) for other in others)} rows and weights"
        )


class _FusedHead(torch.autograd.Function):
    """One or two views. The forward pass already computes the gradients, so the backward pass only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        targets: Tensor,
        ce_weights: Tensor,
        tv_weights: Tensor | None,
        mask_id: int | None,
        chunk: int | None,
        grad_enabled: bool,
        *views: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        wants_weight = grad_enabled and ctx.needs_input_grad[0]
        wants_views = grad_enabled and any(ctx.needs_input_grad[7:])
        factor = _factor(weight, views[0], may_round=tv_weights is None)
        with _full_precision(weight):
            sums, view_grads, weight_grad = _sweep(
                views, factor, targets, ce_weights, tv_weights, mask_id, chunk, wants_views, wants_weight
            )
        ctx.view_grads = [g.to(v.dtype) if g is not None else None for g, v in zip(view_grads, views, strict=True)]
        ctx.weight_grad = weight_grad.to(weight.dtype) if weight_grad is not None else None
        ce, tv = (total.to(torch.promote_types(views[0].dtype, torch.float32)) for total in sums)
        ctx.mark_non_differentiable(ce, tv)
        return ce + tv, ce, tv

    @staticmethod
    def backward(ctx: Any, *output_grads: Tensor) -> tuple[Tensor | None, ...]:
        """Scales in place and lets go, for a copy would be as large as the inputs: so it runs once."""
        if ctx.view_grads is None:
            raise RuntimeError("the fused head runs backward once: compute the loss again")
        scale = output_grads[0]

        def scaled(grad: Tensor | None, wanted: bool) -> Tensor | None:
            return grad.mul_(scale.to(grad.dtype)) if wanted and grad is not None else None

        wanted = ctx.needs_input_grad
        views = [scaled(grad, want) for grad, want in zip(ctx.view_grads, wanted[7:], strict=True)]
        weight = scaled(ctx.weight_grad, wanted[0])
        ctx.view_grads = ctx.weight_grad = None
        return weight, None, None, None, None, None, None, *views


def _sweep(
    views: tuple[Tensor, ...],
    factor: Tensor,
    targets: Tensor,
    ce_weights: Tensor,
    tv_weights: Tensor | None,
    mask_id: int | None,
    chunk: int | None,
    wants_views: bool,
    wants_weight: bool,
) -> tuple[tuple[Tensor, Tensor], list[Tensor | None], Tensor | None]:
    """Walk over the rows; returns the two sums (float64), the gradient of each view and of the weight (float32)."""
    count = len(targets)
    step = chunk or _rows_per_chunk(factor, len(views))
    working = _logit_dtype(factor)
    sums = torch.zeros(2, dtype=torch.float64, device=factor.device)
    view_grads: list[Tensor | None] = [torch.empty_like(view) if wants_views else None for view in views]
    weight_grad = (
        torch.zeros(factor.shape, dtype=torch.promote_types(factor.dtype, torch.float32), device=factor.device)
        if wants_weight
        else None
    )
    ce_weights = ce_weights.to(working)
    if tv_weights is not None:
        # Equal rows must cancel exactly, in any order of summation of the matrix product.
        tv_weights = tv_weights.to(working).masked_fill((views[0] == views[1]).all(1), 0.0)
    for start in range(0, count, step):
        rows = slice(start, start + step)
        hidden = torch.cat([view[rows] for view in views]).to(factor.dtype)
        logits = _logits(hidden, factor, mask_id)
        if tv_weights is None:
            ce, grad = _ce_in_place(logits, targets[rows], ce_weights[rows], factor.dtype)
        else:
            ce, tv, grad = _ce_tv_in_place(logits, targets[rows], ce_weights[rows], tv_weights[rows], factor.dtype)
            sums[1] += tv.double().sum()
        sums[0] += ce.double().sum()
        del logits  # or two chunks of logits would be in memory at a time
        if wants_views:
            back = _product(grad, factor)
            for place, part in zip(view_grads, back.chunk(len(views)), strict=True):
                assert place is not None
                place[rows] = part
        if weight_grad is not None:
            weight_grad += _product(grad.t(), hidden)
        del grad
    return (sums[0], sums[1]), view_grads, weight_grad


def _ce_in_place(logits: Tensor, targets: Tensor, weights: Tensor, out: torch.dtype) -> tuple[Tensor, Tensor]:
    """Weighted cross-entropy [n] of `logits` [n, V], which become the gradient with respect to themselves."""
    if (kernel := _kernel(logits)) is not None:
        return kernel.ce(logits, targets, weights, out)
    log_sum, picked = _softmax_in_place(logits, targets)
    logits.mul_(weights[:, None])
    logits[torch.arange(len(targets), device=logits.device), targets] -= weights
    return weights * (log_sum - picked), logits.to(out)


def _ce_tv_in_place(
    logits: Tensor, targets: Tensor, ce_weights: Tensor, tv_weights: Tensor, out: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Weighted (CE1 + CE2)/2 and sum_v |p1 - p2|, each [n], of `logits` [2n, V], which become their own gradient."""
    if (kernel := _kernel(logits)) is not None:
        return kernel.ce_tv(logits, targets, ce_weights, tv_weights, out)
    half = ce_weights / 2
    log_sum, picked = _softmax_in_place(logits, targets.repeat(2))
    ce1, ce2 = (log_sum - picked).chunk(2)
    p1, p2 = logits.chunk(2)
    sign = p1 - p2
    variation = torch.linalg.vector_norm(sign, ord=1, dim=1)
    sign.sign_()
    lean1 = torch.linalg.vecdot(sign, p1)
    lean2 = lean1 - variation
    sign.mul_(tv_weights[:, None])
    p1.mul_(sign + (half - tv_weights * lean1)[:, None])
    p2.mul_(sign.neg_().add_((half + tv_weights * lean2)[:, None]))
    logits[torch.arange(len(logits), device=logits.device), targets.repeat(2)] -= half.repeat(2)
    return half * (ce1 + ce2), tv_weights * variation, logits.to(out)


def _kernel(logits: Tensor) -> ModuleType | None:
    fits = logits.is_cuda and logits.dtype == torch.float32
    return gate.kernel("linear_ce_tv", logits.device) if fits else None


def _softmax_in_place(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """`logits` [n, V] become probabilities; returns log sum exp and the target's logit, both less the row's largest."""
    logits -= logits.amax(1, keepdim=True)
    picked = logits.gather(1, targets[:, None])[:, 0]
    total = logits.exp_().sum(1)
    logits /= total[:, None]
    return total.log(), picked


def _logits(hidden: Tensor, factor: Tensor, mask_id: int | None) -> Tensor:
    """[n, V] logits of hidden states [n, d], wide enough to subtract from one another."""
    if factor.is_cuda:
        logits = _product(hidden.to(factor.dtype), factor.t())
    else:
        # Slices of the vocabulary, so that the wide copy of the weight stays small.
        logits = torch.empty(len(hidden), len(factor), dtype=torch.float64)
        for start in range(0, len(factor), VOCABULARY_SLICE):
            part = factor[start : start + VOCABULARY_SLICE].double()
            torch.mm(hidden.double(), part.t(), out=logits[:, start : start + VOCABULARY_SLICE])
    if mask_id is not None:
        logits[:, mask_id] = -torch.inf
    return logits


def _product(left: Tensor, right: Tensor) -> Tensor:
    """A matrix product summed and returned in float32, or wider if the factors are."""
    if left.dtype == torch.bfloat16:
        return torch.mm(left, right, out_dtype=torch.float32)
    return torch.mm(left, right)


def _factor(weight: Tensor, hidden: Tensor, may_round: bool = False) -> Tensor:
    """The weight in the type of the products: on CUDA bfloat16 where both have it, or where autocast asks for it and
    the caller may round; else float32 or wider."""
    asked = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    rounds = may_round and asked and weight.dtype == torch.float32
    if weight.is_cuda and (rounds or weight.dtype == hidden.dtype == torch.bfloat16):
        return weight.to(torch.bfloat16)
    return weight.to(torch.promote_types(torch.promote_types(weight.dtype, hidden.dtype), torch.float32))


def _logit_dtype(factor: Tensor) -> torch.dtype:
    return torch.promote_types(factor.dtype, torch.float32) if factor.is_cuda else torch.float64


def _rows_per_chunk(factor: Tensor, views: int) -> int:
    """Rows whose logits fill the budget: the widest vocabulary gets fewer rows, never fewer than one."""
    budget = LOGIT_BYTES["cuda" if factor.is_cuda else "cpu"]
    rows = budget // (views * len(factor) * _logit_dtype(factor).itemsize)
    return rows - rows % 64 if rows > 64 else max(1, rows)  # whole tiles of the matrix product
