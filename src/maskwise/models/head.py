"""The output head's product: logits in float32, whatever the precision of the weights."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


class _FloatProduct(torch.autograd.Function):
    """Half-precision rows times weight, accumulated and returned in float32 on CUDA; a plain cast would return ties."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return torch.mm(rows, weight.t(), out_dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        gradient = gradients[0].to(rows.dtype)
        return (
            gradient @ weight if ctx.needs_input_grad[0] else None,
            gradient.t() @ rows if ctx.needs_input_grad[1] else None,
        )


def float_product(rows: Tensor, weight: Tensor) -> Tensor:
    """rows [n, d] x weight [V, d] -> float32 [n, V]."""
    if weight.dtype == torch.float32:
        return F.linear(rows.float(), weight)
    if rows.is_cuda:
        return _FloatProduct.apply(rows.to(weight.dtype), weight)
    return F.linear(rows.float(), weight.float())
