"""The output head and the divergence from an anchor in one pass over the rows, without ever holding [N, V] logits.

As in fused.py the gradient has a closed form: with p = softmax(z) and the anchor's q, d KL(q || p) / dz = p - q.
"""

from typing import Any

import torch
from torch import Tensor

from maskwise.diffusion.fused import _check_rows, _factor, _full_precision, _product, _rows_per_chunk


def linear_kl(
    h: Tensor,
    weight: Tensor,
    anchor_h: Tensor,
    anchor_weight: Tensor,
    weights: Tensor,
    mask_id: int | None = None,
    chunk: int | None = None,
) -> Tensor:
    """sum weights * KL(anchor || model) of N rows; a scalar that carries the gradient to h and weight.

    h [N, d], weight [V, d]; anchor_h [N, d'], anchor_weight [V, d']. The column `mask_id` gets no probability.
    """
    _check_rows(chunk, weights, h, anchor_h)
    return _FusedKl.apply(weight, h, anchor_h, anchor_weight, weights, mask_id, chunk, torch.is_grad_enabled())


class _FusedKl(torch.autograd.Function):
    """The forward pass already computes the gradients, so the backward pass only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        h: Tensor,
        anchor_h: Tensor,
        anchor_weight: Tensor,
        weights: Tensor,
        mask_id: int | None,
        chunk: int | None,
        grad_enabled: bool,
    ) -> Tensor:
        wants_weight, wants_h = (grad_enabled and wanted for wanted in ctx.needs_input_grad[:2])
        with _full_precision(weight):
            factor, anchor = _factor(weight, h), _factor(anchor_weight, anchor_h)
            wide = torch.promote_types(factor.dtype, torch.float32)
            h_grad = torch.empty_like(h) if wants_h else None
            weight_grad = torch.zeros(factor.shape, dtype=wide, device=h.device) if wants_weight else None
            total = torch.zeros((), dtype=torch.float64, device=h.device)
            step = chunk or _rows_per_chunk(factor, 4)  # logits and probabilities of both
            for start in range(0, len(h), step):
                rows = slice(start, start + step)
                hidden = h[rows].to(factor.dtype)
                divergence, grad = _kl(
                    _logits(hidden, factor, mask_id), _logits(anchor_h[rows], anchor, mask_id), weights[rows]
                )
                total += divergence.double().sum()
                grad = grad.to(factor.dtype)
                if h_grad is not None:
                    h_grad[rows] = _product(grad, factor).to(h.dtype)
                if weight_grad is not None:
                    weight_grad += _product(grad.t(), hidden)
        ctx.grads = (None if weight_grad is None else weight_grad.to(weight.dtype), h_grad)
        return total.to(torch.promote_types(h.dtype, torch.float32))

    @staticmethod
    def backward(ctx: Any, *output_grads: Tensor) -> tuple[Tensor | None, ...]:
        scale, (weight_grad, h_grad) = output_grads[0], ctx.grads
        return (
            None if weight_grad is None else weight_grad * scale.to(weight_grad.dtype),
            None if h_grad is None else h_grad * scale.to(h_grad.dtype),
            *[None] * 6,
        )


def _logits(hidden: Tensor, factor: Tensor, mask_id: int | None) -> Tensor:
    """[n, V] in float32: unlike the difference of two views, p - q is as large as what is left to learn."""
    logits = _product(hidden.to(factor.dtype), factor.t())
    if mask_id is not None:
        logits[:, mask_id] = -torch.inf
    return logits


def _kl(logits: Tensor, anchor: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted divergences [n], and the gradient [n, V] with respect to `logits`; anchor [n, V]."""
    log_p, log_q = logits.log_softmax(dim=-1), anchor.log_softmax(dim=-1)
    q, weights = log_q.exp(), weights.to(logits.dtype)
    divergence = torch.where(q > 0, q * (log_q - log_p), 0.0).sum(dim=-1)
    return weights * divergence, (log_p.exp() - q) * weights[:, None]
