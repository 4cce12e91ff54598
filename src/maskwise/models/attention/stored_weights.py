"""CPU attention that stores its weights for the backward pass.

Torch's own kernel recomputes the weights in the backward pass, a quarter more arithmetic. Plain tensor operations that
store them allocate four times their memory, which costs as much again. Here the scores become the weights in place, and
the backward pass goes head by head through one buffer.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class KeptAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        """Full attention: q [N, Q, D], k and v [N, K, D] -> [N, Q, D] with N = sequences x heads."""
        q = q * scale
        weights = torch.bmm(q, k.transpose(1, 2))
        for rows in weights:
            torch.softmax(rows, dim=-1, out=rows)
        ctx.save_for_backward(q, k, v, weights)
        ctx.scale = scale
        return torch.bmm(weights, v)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        (of_out,) = gradients
        q, k, v, weights = ctx.saved_tensors
        of_q, of_k = torch.empty_like(q), torch.empty_like(k)
        of_v = torch.bmm(weights.transpose(1, 2), of_out)
        scores = torch.empty_like(weights[0])
        for n, seen in enumerate(weights):
            torch.mm(of_out[n], v[n].T, out=scores)
            torch.ops.aten._softmax_backward_data.out(scores, seen, -1, scores.dtype, grad_input=scores)
            torch.mm(scores, k[n], out=of_q[n])
            torch.mm(scores.T, q[n], out=of_k[n])
        return of_q.mul_(ctx.scale), of_k, of_v, None
