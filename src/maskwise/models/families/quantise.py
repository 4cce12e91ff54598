"""Weight quantisation of the layers' linear maps at opening: fp8 for speed on recent GPUs, int4 for memory.

fp8: E4M3 numbers with a scale per output, times rows rounded the same way with a scale each (torch's row-wise scaled
product). int4: 4-bit numbers with a scale and an offset per group of 64 inputs, dequantised before a product.
Embeddings, norms and the output head keep their precision. On a CPU fp8 is computed from the rounded numbers in
float32: the same result, and no faster. On CUDA small batches use kernels/small_batch_linear.py where it works.
"""

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from maskwise.kernels.gate import HALF, SMALL_BATCH, TRITON, close, problem, warn_of_fallback
from maskwise.models.checkpoints.locations import NOT_FOR_EXPERTS
from maskwise.models.peft_access import in_a_layer
from maskwise.support.errors import UserError, UserNotice

FLOAT8, LARGEST = torch.float8_e4m3fn, 448.0  # its largest number
GROUP = 64
TRIED_ROWS = (1, 32, 33, SMALL_BATCH + 1)  # every size of the kernels' tiles, 16, 32 and 64 rows, and torch's product
KERNELS = TRITON  # switched off for the rest of the process where they fail and torch's own operators do not (`works`)
LEAST_ROWS = 16  # fewer are padded: kernels for scaled products take no less
NEEDS = {"fp8": (8, 9), "int4": (8, 0)}  # compute capability
CARDS = {"fp8": "Ada or Hopper, such as L40S, H100", "int4": "Ampere, such as A100, RTX 30"}
TOLERANCE = 5e-2  # between a product and its reference, relative: fp8 products add up in few bits


class QuantisedLinear(nn.Module):
    """Quantised linear layer; gradients flow to the input through the rounded weight."""

    def __init__(self, weight: Tensor, scale: Tensor, bias: Tensor | None, shape: tuple[int, int]) -> None:
        super().__init__()
        self.weight, self.scale = nn.Parameter(weight, requires_grad=False), nn.Parameter(scale, requires_grad=False)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=False)
        self.out_features, self.in_features = shape

    def forward(self, x: Tensor) -> Tensor:
        """x [.., in] -> [.., out]."""
        rows = x.flatten(0, -2)
        needs_gradient = torch.is_grad_enabled() and x.requires_grad
        out = _Through.apply(rows, self) if needs_gradient else self.product(rows)
        out = out if self.bias is None else out + self.bias
        return out.unflatten(0, x.shape[:-1])

    @abstractmethod
    def product(self, rows: Tensor) -> Tensor:
        """rows [n, in] -> [n, out], without the bias."""

    @abstractmethod
    def written_out(self, dtype: torch.dtype) -> Tensor:
        """The rounded weight, [out, in]."""


class _Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, one: QuantisedLinear) -> Tensor:
        ctx.one = one
        return one.product(rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] @ ctx.one.written_out(gradients[0].dtype), None


class Float8Linear(QuantisedLinear):
    """weight [out, in] in E4M3, scale [out] in float32."""

    @staticmethod
    def of(weight: Tensor, bias: Tensor | None) -> "Float8Linear":
        rows, scale = rounded_rows(weight)
        return Float8Linear(rows, scale[:, 0].contiguous(), bias, (len(weight), weight.shape[1]))

    def product(self, rows: Tensor) -> Tensor:
        return float8_product(rows, self.weight, self.scale)

    def written_out(self, dtype: torch.dtype) -> Tensor:
        return (self.weight.float() * self.scale[:, None]).to(dtype)


class Float8Weights(NamedTuple):
    """Weights of several maps packed into one."""

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
    few = len(rows) < LEAST_ROWS
    # Compiled it is one GPU kernel instead of six, which would dominate a short pass.
    rounded = _rounded_in_one() if KERNELS and not torch.compiler.is_compiling() else rounded_rows
    given, row_scale = rounded(F.pad(rows, (0, 0, 0, LEAST_ROWS - len(rows))) if few else rows)
    out = torch._scaled_mm(given, weight.t(), row_scale, scale[None], out_dtype=rows.dtype, use_fast_accum=True)
    return out[: len(rows)] if few else out


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


class Int4Linear(QuantisedLinear):
    """weight [in / 64, out, 32], `paired`; scale [in / 64, out, 2]: a number q of 0..15 is (q - 8) s + z."""

    @staticmethod
    def of(weight: Tensor, bias: Tensor | None) -> "Int4Linear":
        numbers, scale = rounded_groups(weight)
        return Int4Linear(paired(numbers), scale, bias, (len(weight), weight.shape[1]))

    def product(self, rows: Tensor) -> Tensor:
        few = rows.is_cuda and len(rows) <= SMALL_BATCH
        if KERNELS and few and rows.dtype == self.scale.dtype and rows.dtype in HALF:
            from maskwise.kernels.small_batch_linear import small_batch_linear_int4

            return small_batch_linear_int4(rows, self.weight, self.scale)
        return F.linear(rows, self.written_out(rows.dtype))

    def written_out(self, dtype: torch.dtype) -> Tensor:
        compiled = KERNELS and self.weight.is_cuda and not torch.compiler.is_compiling()
        write = _written_in_one() if compiled else written_from_pairs
        return write(self.weight, self.scale).to(dtype)


def rounded_groups(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [n, k] -> numbers of 0..15 [n, k] int32, and each group's scale and offset [k / 64, n, 2]."""
    groups = weight.float().unflatten(1, (-1, GROUP))
    low, high = groups.aminmax(dim=-1)
    scale = ((high - low) / 15).clamp(min=1e-6)
    pairs = torch.stack((scale, low + 8 * scale), dim=-1).to(weight.dtype)  # [n, k / 64, 2]
    wide = pairs.float()[..., None]
    numbers = ((groups - wide[:, :, 1]) / wide[:, :, 0] + 8).round().clamp(0, 15)
    return numbers.flatten(1).to(torch.int32), pairs.transpose(0, 1).contiguous()


def from_groups(numbers: Tensor, scale: Tensor) -> Tensor:
    """Dequantises `rounded_groups`: [n, k] float32."""
    wide = scale.float().transpose(0, 1)[..., None]  # [n, k / 64, 2, 1]
    return ((numbers.unflatten(1, (-1, GROUP)).float() - 8) * wide[:, :, 0] + wide[:, :, 1]).flatten(1)


def paired(numbers: Tensor) -> Tensor:
    """Numbers of 0..15 [n, k] two a byte, [k / 64, n, 32]: number i of a group of 64 below, number i + 32 above.
    Group by group, so that a tile of the product, some outputs by one group, lies in one piece."""
    low, high = numbers.unflatten(1, (-1, GROUP)).transpose(0, 1).chunk(2, dim=-1)
    return (low | high << 4).to(torch.uint8).contiguous()


def unpaired(pairs: Tensor) -> Tensor:
    """Inverse of `paired`: the numbers [n, k]."""
    return torch.cat((pairs & 15, pairs >> 4), dim=-1).transpose(0, 1).flatten(1)


def written_from_pairs(pairs: Tensor, scale: Tensor) -> Tensor:
    """Dequantises paired numbers: the weight [n, k] in its scale's dtype."""
    return from_groups(unpaired(pairs), scale).to(scale.dtype)


@cache
def _written_in_one() -> Callable[[Tensor, Tensor], Tensor]:
    return torch.compile(written_from_pairs, dynamic=True)


def quantise(net: PreTrainedModel, kind: str, device: torch.device) -> None:
    """Replaces the layers' linear maps one by one and moves the network to the device, without a second full copy.
    Maps whose shape the product cannot take, or computes wrongly, keep their precision, and a warning says so."""
    refuse_unfit(kind, device)
    refuse_experts(kind, (name for name, _ in net.named_modules()))
    head = net.get_output_embeddings()
    maps = {name: one for name, one in net.named_modules() if type(one) is nn.Linear and in_a_layer(name)}
    able: dict[tuple[int, ...], bool] = {}
    for name, one in maps.items():
        if one is head:
            continue
        shape = tuple(one.weight.shape)
        one.to(device=device)
        if shape not in able:
            able[shape] = works(kind, one.weight)
        if able[shape]:
            parent, _, last = name.rpartition(".")
            setattr(net.get_submodule(parent), last, as_quantised(kind, one))
    nn.Module.to(net, device=device)
    left = [shape for shape, fine in able.items() if not fine]
    if len(left) == len(able):
        raise UserError(f"--weights {kind}: no map of this model has a shape the product takes: leave it out")
    if left:
        shapes = ", ".join(f"{inner} to {outer}" for outer, inner in left)
        warnings.warn(f"--weights {kind}: maps from {shapes} numbers keep their precision", UserNotice, stacklevel=3)


def refuse_unfit(kind: str, device: torch.device) -> None:
    if kind not in NEEDS:
        raise UserError(f"unknown weights {kind!r}: use {' or '.join(NEEDS)}")
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < NEEDS[kind]:
        found = ".".join(map(str, torch.cuda.get_device_capability(device)))
        least = ".".join(map(str, NEEDS[kind]))
        raise UserError(
            f"--weights {kind} needs compute capability {least} ({CARDS[kind]}), this card has {found}: leave it out"
        )
    if device.type not in ("cuda", "cpu"):
        raise UserError(f"--weights {kind} is for CUDA and CPU, not {device.type}: leave it out")


def refuse_experts(kind: str, names: Iterable[str]) -> None:
    """names: of a network's modules or weights."""
    if any("experts" in name.split(".") for name in names):
        raise UserError(NOT_FOR_EXPERTS.format(kind))


def as_quantised(kind: str, one: nn.Linear) -> QuantisedLinear:
    bias = None if one.bias is None else one.bias.detach()
    return (Float8Linear if kind == "fp8" else Int4Linear).of(one.weight.detach(), bias)


@torch.no_grad()
def works(kind: str, like: Tensor) -> bool:
    """True if products with weights of this shape, for one and several rows, are right on this device.

    Widths of packed maps (packing.py) are not tried: the kernels take them in more tiles of the same size (a sum that
    is not split is written in the output's type at once), and torch's product needs multiples of 16, which they are.
    """
    outer, inner = like.shape
    if outer % 16 or inner % (16 if kind == "fp8" else GROUP):
        return False
    draws = torch.Generator().manual_seed(0)
    one = nn.Linear(inner, outer, bias=False, device="meta")
    one.weight = nn.Parameter(torch.randn(outer, inner, generator=draws).to(like))
    rows = torch.randn(max(TRIED_ROWS), inner, generator=draws).to(like)

    def agree() -> bool:
        quantised = as_quantised(kind, one)
        several = [rows[:count] for count in TRIED_ROWS]
        return all(close(quantised.product(some), _expected(quantised, one, some), TOLERANCE) for some in several)

    return products_work(agree) if like.is_cuda else problem(agree) is None


def products_work(agree: Callable[[], bool]) -> bool:
    """True if products agree with their references; if that needs it, our kernels are switched off for good."""
    global KERNELS
    why = problem(agree)
    if why is None or not KERNELS:
        return why is None
    KERNELS = False
    if problem(agree) is None:
        warn_of_fallback("products of few rows go on without our kernels", why)
        return True
    KERNELS = True  # the kernels were not the reason
    return False


def _expected(quantised: QuantisedLinear, one: nn.Linear, rows: Tensor) -> Tensor:
    if isinstance(quantised, Float8Linear):
        return float8_reference(rows, quantised.weight, quantised.scale)
    return rows.float() @ from_groups(*rounded_groups(one.weight.detach())).t()


def parameter_count(net: nn.Module) -> int:
    """Number of parameters before quantisation."""
    quantised = [one for one in net.modules() if isinstance(one, QuantisedLinear)]
    inside = {id(weight) for one in quantised for weight in one.parameters()}
    plain = sum(weight.numel() for weight in net.parameters() if id(weight) not in inside)
    biases = sum(one.out_features for one in quantised if one.bias is not None)
    return plain + biases + sum(one.in_features * one.out_features for one in quantised)
