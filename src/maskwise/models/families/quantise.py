"""fp8 weights: the layers' linear maps are rounded at opening, for speed on recent GPUs.

E4M3 numbers with a scale per output, times rows rounded the same way with a scale each. Embeddings, norms and the
head keep their precision. On a CPU it is computed from the rounded numbers in float32: no faster. On CUDA small
batches use kernels/small_batch_linear.py where it works, and others torch's row-wise scaled product.
"""

import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from maskwise.kernels.gate import SMALL_BATCH, TRITON, close, problem, warn_of_fallback
from maskwise.models.peft_access import in_a_layer
from maskwise.support.errors import UserNotice

FLOAT8, LARGEST = torch.float8_e4m3fn, 448.0  # its largest number
TRIED_ROWS = (1, 32, 33, SMALL_BATCH + 1)  # every size of the kernels' tiles, 16, 32 and 64 rows, and torch's product
KERNELS = TRITON  # switched off for the rest of the process where they fail and torch's own operators do not (`works`)
LEAST_ROWS = 16  # fewer are padded: kernels for scaled products take no less
TOLERANCE = 5e-2  # between a product and its reference, relative: fp8 products add up in few bits


class Float8Linear(nn.Module):
    """weight [out, in] in E4M3, scale [out] in float32; gradients flow to the input through the rounded weight."""

    def __init__(self, one: nn.Linear) -> None:
        super().__init__()
        weight, scale = rounded_rows(one.weight.detach())
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.scale = nn.Parameter(scale[:, 0].contiguous(), requires_grad=False)
        bias: Tensor | None = one.bias
        self.bias = None if bias is None else nn.Parameter(bias.detach(), requires_grad=False)
        self.out_features, self.in_features = weight.shape

    def forward(self, x: Tensor) -> Tensor:
        """x [.., in] -> [.., out]."""
        rows = x.flatten(0, -2)
        trained = torch.is_grad_enabled() and x.requires_grad
        out = _Through.apply(rows, self) if trained else float8_product(rows, self.weight, self.scale)
        return (out if self.bias is None else out + self.bias).unflatten(0, x.shape[:-1])


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, one: Float8Linear) -> Tensor:
        ctx.one = one
        return float8_product(rows, one.weight, one.scale)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] @ (ctx.one.weight.float() * ctx.one.scale[:, None]).to(gradients[0].dtype), None


class Float8Weights(NamedTuple):  # of several maps packed into one
    weight: Tensor  # [out, in]
    scale: Tensor  # [out]


def float8_product(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """rows [n, in], weight [out, in] in E4M3, scale [out] -> [n, out] in the type of the rows."""
    if not rows.is_cuda:
        return float8_reference(rows, weight, scale)
    if KERNELS and len(rows) <= SMALL_BATCH:
        from maskwise.kernels import small_batch_linear as kernels

        # In a compiled layer rounding fuses with what comes before it.
        given, row_scale = rounded_rows(rows) if torch.compiler.is_compiling() else kernels.rounded_rows(rows)
        return kernels.small_batch_linear_fp8(given, row_scale, weight, scale, rows.dtype)
    # Compiled it is one GPU kernel instead of six, which would dominate a short pass.
    rounded = _rounded_in_one() if KERNELS and not torch.compiler.is_compiling() else rounded_rows
    given, row_scale = rounded(F.pad(rows, (0, 0, 0, LEAST_ROWS - len(rows))) if len(rows) < LEAST_ROWS else rows)
    out = torch._scaled_mm(given, weight.t(), row_scale, scale[None], out_dtype=rows.dtype, use_fast_accum=True)
    return out[: len(rows)]


def float8_reference(rows: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    """Reference of `float8_product` in float32."""
    given, row_scale = rounded_rows(rows)
    return ((given.float() @ weight.float().t()) * row_scale * scale).to(rows.dtype)


def rounded_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """x [n, d] as E4M3 numbers [n, d] and a float32 scale for each row [n, 1]: its largest number becomes 448."""
    wide = x.float()
    scale = wide.abs().amax(dim=-1, keepdim=True).clamp(min=1e-12) / LARGEST
    return (wide / scale).clamp(-LARGEST, LARGEST).to(FLOAT8), scale


@cache  # made when it is needed: the compiler takes a second to import
def _rounded_in_one() -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    return torch.compile(rounded_rows, dynamic=True)


def quantise(net: PreTrainedModel, device: torch.device) -> None:
    """Replaces the layers' linear maps one by one and moves the network to the device, without a second full copy.
    Maps whose shape the product cannot take, or computes wrongly, keep their precision, and a warning says so."""
    head, able = net.get_output_embeddings(), dict[torch.Size, bool]()
    maps = [name for name, one in net.named_modules() if type(one) is nn.Linear and one is not head]
    for name in filter(in_a_layer, maps):
        one = net.get_submodule(name).to(device)
        shape: torch.Size = one.weight.shape  # type: ignore[assignment]
        if shape not in able:
            able[shape] = works(one.weight)  # type: ignore[arg-type]
        if able[shape]:
            net.set_submodule(name, Float8Linear(one))  # type: ignore[arg-type]
    nn.Module.to(net, device=device)
    if not all(able.values()):
        shapes = ", ".join(f"{inner} to {outer}" for (outer, inner), fine in able.items() if not fine)
        warnings.warn(f"--weights fp8: maps from {shapes} numbers keep their precision", UserNotice, stacklevel=3)


@torch.no_grad()
def works(like: Tensor) -> bool:
    """True if products with weights of this shape, for one and several rows, are right on this device.

    Widths of packed maps (packing.py) are not tried: the kernels take them in more tiles of the same size (a sum that
    is not split is written in the output's type at once), and torch's product needs multiples of 16, which they are.
    """
    outer, inner = like.shape
    if outer % 16 or inner % 16:
        return False
    draws = torch.Generator().manual_seed(0)
    weight, scale = rounded_rows(torch.randn(outer, inner, generator=draws).to(like))
    rows = torch.randn(max(TRIED_ROWS), inner, generator=draws).to(like)

    def agree() -> bool:
        tried = [(rows[:count], weight, scale[:, 0].contiguous()) for count in TRIED_ROWS]
        return all(close(float8_product(*one), float8_reference(*one), TOLERANCE) for one in tried)

    return products_work(agree)


def products_work(agree: Callable[[], bool]) -> bool:
    """True if products agree with their references; if that needs it, our kernels are switched off for good."""
    global KERNELS
    why = problem(agree)
    if why is not None and KERNELS:
        KERNELS = False
        if problem(agree) is None:
            warn_of_fallback("products of few rows go on without our kernels", why)
            return True
        KERNELS = True  # the kernels were not the reason
    return why is None
