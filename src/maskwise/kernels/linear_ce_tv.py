"""Kernels of `linear_ce_tv` and `linear_ce`: cross-entropy and total variation of logits, with their gradients.

Plain PyTorch passes over the logits about a dozen times (maximum, subtract, exp, sum, divide, difference, sign...),
which on CUDA costs a good part of the matrix products. Here each row's logits are read three times (two for
cross-entropy alone) and written once, without temporaries. diffusion/fused.py has the plain forms.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from maskwise.kernels.gate import close

OTHERWISE = "cross-entropy is left to PyTorch"
TOLERANCE = 1e-4
BLOCK = 4096
FLOOR = tl.constexpr(-3.0e38)  # below every logit, yet finite: -inf minus -inf would be nan


def ce_tv(
    logits: Tensor, targets: Tensor, ce_weights: Tensor, tv_weights: Tensor, out: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits [2n, V] float32 of n rows in two views -> weighted CE [n], weighted TV [n], the gradient [2n, V] in `out`.
    The gradient overwrites the logits where the types agree."""
    rows, width = len(targets), logits.shape[1]
    targets, ce_weights, tv_weights = targets.contiguous(), ce_weights.contiguous(), tv_weights.contiguous()
    grad = logits if out == logits.dtype else torch.empty_like(logits, dtype=out)
    entropy, variation = (torch.empty(rows, dtype=torch.float32, device=logits.device) for _ in range(2))
    block = min(BLOCK, triton.next_power_of_2(width))
    with torch.cuda.device_of(logits):  # Triton launches on the current device
        tensors = logits, grad, targets, ce_weights, tv_weights, entropy, variation
        _ce_tv_rows[(rows,)](*tensors, rows, width, BLOCK_SIZE=block, num_warps=8)
    return entropy, variation, grad


def ce(logits: Tensor, targets: Tensor, weights: Tensor, out: torch.dtype) -> tuple[Tensor, Tensor]:
    """Logits [n, V] float32 -> weighted cross-entropy [n] and the gradient [n, V] in `out`, as in `ce_tv`."""
    rows, width = logits.shape
    targets, weights = targets.contiguous(), weights.contiguous()
    grad = logits if out == logits.dtype else torch.empty_like(logits, dtype=out)
    entropy = torch.empty(rows, dtype=torch.float32, device=logits.device)
    block = min(BLOCK, triton.next_power_of_2(width))
    with torch.cuda.device_of(logits):
        _ce_rows[(rows,)](logits, grad, targets, weights, entropy, width, BLOCK_SIZE=block, num_warps=8)
    return entropy, grad


@triton.jit
def _ce_rows(logits, grad, targets, weights, ce, width, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK_SIZE)
    target, weight = tl.load(targets + row), tl.load(weights + row)
    picked = tl.load(logits + row * width + target)

    # Read 1: as in `_ce_tv_rows`.
    top = tl.full((BLOCK_SIZE,), FLOOR, tl.float32)
    sums = tl.zeros((BLOCK_SIZE,), tl.float32)
    for start in range(0, width, BLOCK_SIZE):
        column = start + lanes
        z = tl.load(logits + row * width + column, mask=column < width, other=-float("inf"))
        higher = tl.maximum(top, z)
        sums = sums * tl.exp(top - higher) + tl.exp(z - higher)
        top = higher
    largest = tl.max(top, 0)
    total = tl.sum(sums * tl.exp(top - largest), 0)
    tl.store(ce + row, weight * (tl.log(total) - (picked - largest)))

    # Read 2: the gradient.
    for start in range(0, width, BLOCK_SIZE):
        column = start + lanes
        inside = column < width
        p = tl.exp(tl.load(logits + row * width + column, mask=inside, other=-float("inf")) - largest) / total
        tl.store(grad + row * width + column, weight * (p - tl.where(column == target, 1.0, 0.0)), mask=inside)


@triton.jit
def _ce_tv_rows(logits, grad, targets, ce_weights, tv_weights, ce, tv, rows, width, BLOCK_SIZE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    first, second = row * width, (row + rows) * width
    lanes = tl.arange(0, BLOCK_SIZE)
    target = tl.load(targets + row)
    picked1, picked2 = tl.load(logits + first + target), tl.load(logits + second + target)
    half, variation_weight = tl.load(ce_weights + row) / 2, tl.load(tv_weights + row)

    # Read 1: the largest logit and the sum of exponentials, lane by lane, joined at the end.
    top1 = tl.full((BLOCK_SIZE,), FLOOR, tl.float32)
    top2 = tl.full((BLOCK_SIZE,), FLOOR, tl.float32)
    sum1 = tl.zeros((BLOCK_SIZE,), tl.float32)
    sum2 = tl.zeros((BLOCK_SIZE,), tl.float32)
    for start in range(0, width, BLOCK_SIZE):
        column = start + lanes
        inside = column < width
        z1 = tl.load(logits + first + column, mask=inside, other=-float("inf"))
        z2 = tl.load(logits + second + column, mask=inside, other=-float("inf"))
        higher1, higher2 = tl.maximum(top1, z1), tl.maximum(top2, z2)
        sum1 = sum1 * tl.exp(top1 - higher1) + tl.exp(z1 - higher1)
        sum2 = sum2 * tl.exp(top2 - higher2) + tl.exp(z2 - higher2)
        top1, top2 = higher1, higher2
    largest1, largest2 = tl.max(top1, 0), tl.max(top2, 0)
    total1 = tl.sum(sum1 * tl.exp(top1 - largest1), 0)
    total2 = tl.sum(sum2 * tl.exp(top2 - largest2), 0)

    # Read 2: sum |p1 - p2| and <sign(p1 - p2), p1>.
    distance = tl.zeros((BLOCK_SIZE,), tl.float32)
    lean = tl.zeros((BLOCK_SIZE,), tl.float32)
    for start in range(0, width, BLOCK_SIZE):
        column = start + lanes
        inside = column < width
        p1 = tl.exp(tl.load(logits + first + column, mask=inside, other=-float("inf")) - largest1) / total1
        p2 = tl.exp(tl.load(logits + second + column, mask=inside, other=-float("inf")) - largest2) / total2
        distance += tl.abs(p1 - p2)
        lean += tl.where(p1 > p2, p1, tl.where(p1 < p2, -p1, 0.0))
    variation = tl.sum(distance, 0)
    lean1 = tl.sum(lean, 0)
    constant1 = half - variation_weight * lean1
    constant2 = half + variation_weight * (lean1 - variation)
    tl.store(ce + row, half * (tl.log(total1) - (picked1 - largest1) + tl.log(total2) - (picked2 - largest2)))
    tl.store(tv + row, variation_weight * variation)

    # Read 3: the gradient, written over the logits or to a tensor of its own.
    for start in range(0, width, BLOCK_SIZE):
        column = start + lanes
        inside = column < width
        p1 = tl.exp(tl.load(logits + first + column, mask=inside, other=-float("inf")) - largest1) / total1
        p2 = tl.exp(tl.load(logits + second + column, mask=inside, other=-float("inf")) - largest2) / total2
        lifted = tl.where(p1 > p2, variation_weight, tl.where(p1 < p2, -variation_weight, 0.0))
        hot = tl.where(column == target, half, 0.0)
        tl.store(grad + first + column, p1 * (constant1 + lifted) - hot, mask=inside)
        tl.store(grad + second + column, p2 * (constant2 - lifted) - hot, mask=inside)


def agrees(device: torch.device) -> bool:
    """Compares both kernels with the closed forms in float64."""
    draws = torch.Generator().manual_seed(0)
    logits, weights = torch.randn(8, 500, generator=draws), torch.rand(4, generator=draws)
    targets = torch.randint(500, (4,), generator=draws)
    there, given = logits.to(device), (targets.to(device), weights.to(device))
    pairs = [
        *zip(ce(there[:4].clone(), *given, torch.float32), _plain(logits[:4], targets, weights), strict=True),
        *zip(ce_tv(there.clone(), *given, given[1], torch.float32), _plain(logits, targets, weights), strict=True),
    ]
    return all(close(found.cpu(), expected, TOLERANCE) for found, expected in pairs)


def _plain(logits: Tensor, targets: Tensor, weights: Tensor) -> list[Tensor]:
    """The weighted mean cross-entropy of one or two views, with two the weighted total variation, and the gradient."""
    views = [z.softmax(dim=-1) for z in logits.double().split(len(targets))]
    share, hot = weights / len(views), F.one_hot(targets, logits.shape[1])
    losses = [-share * sum(p.gather(1, targets[:, None])[:, 0].log() for p in views)]
    gradients = [share[:, None] * (p - hot) for p in views]
    if len(views) == 2:
        difference = views[0] - views[1]
        losses.append(weights * difference.abs().sum(dim=-1))
        for gradient, p, sign in zip(gradients, views, (difference.sign(), -difference.sign()), strict=True):
            gradient += weights[:, None] * p * (sign - (sign * p).sum(dim=-1, keepdim=True))
    return [*losses, torch.cat(gradients)]
