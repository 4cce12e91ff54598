"""Linear maps of small batches, with weights in 16 and 8 bits.

A decoding step multiplies the few rows of a block with every weight, so it takes as long as reading the weights does.
Library kernels are made for many rows and leave most of the card idle. Here the weight is the left side of the product,
so that few rows fill its tiles, and the inner dimension is split over programs. Their partial sums are added by a
second kernel, or in a compiled layer by the kernel that reads them, always in the same order: the same input gives the
same bits. Triton launches on the current device, so each launch first selects the device of its tensors.
"""

from functools import reduce
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from maskwise.kernels.gate import SMALL_BATCH, close, has_large_tiles

OTHERWISE = "products of few rows: left to PyTorch"
TOLERANCE = 2e-2  # relative, in half precision


class Tiles(NamedTuple):
    """The work of one program: outputs, inputs per step; over how many programs the inner dimension is split."""

    out: int
    inner: int
    split: int
    warps: int
    stages: int


BLOCK = 1024


# The fastest, or within 3 % of it, of those measured on an H200 (132 multiprocessors) for the shapes of LLaDA-8B.


def half_tiles(outer: int, inner: int) -> Tiles:
    return Tiles(64, 128, _split(outer, 64, inner // 128, programs=264), warps=4, stages=4)


def fp8_tiles(outer: int, inner: int) -> Tiles:
    return Tiles(64, 128, _split(outer, 64, inner // 128, programs=264), warps=4, stages=6)


def _split(outer: int, out: int, steps: int, programs: int) -> int:
    return max(1, min(programs // triton.cdiv(outer, out), steps))


def _stages(tiles: Tiles, like: Tensor) -> int:
    """Steps fetched ahead: fewer on cards with less shared memory than Hopper."""
    return tiles.stages if has_large_tiles(like) else min(tiles.stages, 3)


def rounded_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """rows [n, d] as E4M3 numbers, and a float32 scale per row [n, 1], as models/families/quantise.py makes them."""
    rows = rows.contiguous()
    n, width = rows.shape
    out, scale = torch.empty_like(rows, dtype=torch.float8_e4m3fn), rows.new_empty(n, 1, dtype=torch.float32)
    warps = 8 if width <= 8192 else 16
    with torch.cuda.device_of(rows):
        _round[(n,)](rows, out, scale, width, SIZE=triton.next_power_of_2(width), num_warps=warps)
    return out, scale


@triton.jit
def _round(rows, out, scale, width, SIZE: tl.constexpr):
    row, lane = tl.program_id(0), tl.arange(0, SIZE)
    inside = lane < width
    x = tl.load(rows + row * width + lane, mask=inside, other=0.0).to(tl.float32)
    # Without their sign the bits of floats are in the order of the floats, and NaN, which tl.max would drop, above all.
    bits = x.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    largest = tl.max(bits, 0).to(tl.float32, bitcast=True)
    size = tl.div_rn(tl.maximum(largest, 1e-12, propagate_nan=tl.PropagateNan.ALL), 448.0)
    tl.store(scale + row, size)
    kept = tl.maximum(tl.div_rn(x, size), -448.0, propagate_nan=tl.PropagateNan.ALL)
    kept = tl.minimum(kept, 448.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + row * width + lane, kept.to(out.dtype.element_ty), mask=inside)


def small_batch_linear(rows: Tensor, weight: Tensor) -> Tensor:
    """rows [n, in] and weight [out, in] in one type, bf16 or float16 -> [n, out]."""
    return _added(half_partial_sums(rows, weight), rows.dtype)


@torch.library.custom_op("maskwise::small_batch_linear", mutates_args=())
def half_partial_sums(rows: Tensor, weight: Tensor) -> Tensor:
    """-> [split, n, out], whose sum is the product."""
    return _partial_sums_of(rows, None, weight, None, half_tiles(len(weight), rows.shape[1]), rows.dtype)


@half_partial_sums.register_fake
def _(rows: Tensor, weight: Tensor) -> Tensor:
    return _empty_parts(rows, half_tiles(len(weight), rows.shape[1]).split, len(weight), rows.dtype)


def small_batch_linear_fp8(
    rows: Tensor, row_scale: Tensor, weight: Tensor, scale: Tensor, dtype: torch.dtype
) -> Tensor:
    """rows [n, in] and weight [out, in] in E4M3, row_scale [n, 1] and scale [out] in float32 -> [n, out]."""
    return _added(fp8_partial_sums(rows, row_scale, weight, scale, dtype), dtype)


@torch.library.custom_op("maskwise::small_batch_linear_fp8", mutates_args=())
def fp8_partial_sums(rows: Tensor, row_scale: Tensor, weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    """-> [split, n, out], whose sum is the product."""
    return _partial_sums_of(rows, row_scale, weight, scale, fp8_tiles(len(weight), rows.shape[1]), dtype)


@fp8_partial_sums.register_fake
def _(rows: Tensor, row_scale: Tensor, weight: Tensor, scale: Tensor, dtype: torch.dtype) -> Tensor:
    return _empty_parts(rows, fp8_tiles(len(weight), rows.shape[1]).split, len(weight), dtype)


def _partial_sums_of(
    rows: Tensor, row_scale: Tensor | None, weight: Tensor, scale: Tensor | None, tiles: Tiles, dtype: torch.dtype
) -> Tensor:
    rows, weight = rows.contiguous(), weight.contiguous()
    n, inner = rows.shape
    outer = len(weight)
    parts = _empty_parts(rows, tiles.split, outer, dtype)
    with torch.cuda.device_of(rows):
        _partial_sums[(triton.cdiv(outer, tiles.out), tiles.split)](
            *(rows, row_scale, weight, scale, parts),
            *(n, outer, inner, tiles.split),
            ROWS=max(16, triton.next_power_of_2(n)),
            OUT=tiles.out,
            IN=tiles.inner,
            EVEN=inner % tiles.inner == 0,
            SCALED=scale is not None,
            num_warps=tiles.warps,
            num_stages=_stages(tiles, rows),
        )
    return parts


@triton.jit(do_not_specialize=["n", "split"])
def _partial_sums(
    rows,
    row_scale,
    weight,
    scale,
    parts,
    n,
    outer,
    inner,
    split,
    ROWS: tl.constexpr,
    OUT: tl.constexpr,
    IN: tl.constexpr,
    EVEN: tl.constexpr,
    SCALED: tl.constexpr,
):
    """The part of the inner sum of one program's outputs. -> parts [split, n, outer]."""
    part = tl.program_id(1)
    column = tl.program_id(0) * OUT + tl.arange(0, OUT)
    row, lane = tl.arange(0, ROWS), tl.arange(0, IN)
    # Past the last output or row the last one is read again, and nothing is written.
    of_weight, of_rows = tl.minimum(column, outer - 1).to(tl.int64), tl.minimum(row, n - 1)
    weights = weight + of_weight[:, None] * inner + lane[None, :]
    inputs = rows + of_rows[None, :] * inner + lane[:, None]
    total = tl.zeros((OUT, ROWS), tl.float32)
    steps = tl.cdiv(inner, IN)
    for step in range(part * steps // split, (part + 1) * steps // split):
        if EVEN:
            w = tl.load(weights + step * IN, eviction_policy="evict_first")
            x = tl.load(inputs + step * IN, eviction_policy="evict_last")
        else:
            inside = step * IN + lane < inner
            w = tl.load(weights + step * IN, mask=inside[None, :], other=0.0)
            x = tl.load(inputs + step * IN, mask=inside[:, None], other=0.0)
        total = tl.dot(w, x, total)
    if SCALED:
        total = total * tl.load(row_scale + of_rows)[None, :] * tl.load(scale + of_weight)[:, None]
    place = (part * n + row)[None, :] * outer + column[:, None]
    tl.store(parts + place, total.to(parts.dtype.element_ty), mask=(row < n)[None, :] & (column < outer)[:, None])


def _empty_parts(rows: Tensor, split: int, outer: int, dtype: torch.dtype) -> Tensor:
    """[split, n, outer] in float32, or in `dtype` where one part is the whole sum."""
    return rows.new_empty(split, len(rows), outer, dtype=torch.float32 if split > 1 else dtype)


def _added(parts: Tensor, dtype: torch.dtype) -> Tensor:
    """[split, n, outer] -> [n, outer]."""
    split, n, outer = parts.shape
    if split == 1:
        return parts[0]
    if torch.compiler.is_compiling():
        return reduce(torch.add, parts.unbind()).to(dtype)
    out = parts.new_empty(n, outer, dtype=dtype)
    with torch.cuda.device_of(parts):
        _add[(triton.cdiv(n * outer, BLOCK),)](parts, out, n * outer, SPLIT=split, SIZE=BLOCK, num_warps=4)
    return out


@triton.jit
def _add(parts, out, numbers, SPLIT: tl.constexpr, SIZE: tl.constexpr):
    place = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = place < numbers
    total = tl.zeros((SIZE,), tl.float32)
    for part in tl.static_range(SPLIT):
        total += tl.load(parts + part * numbers + place, mask=inside, other=0.0)
    tl.store(out + place, total.to(out.dtype.element_ty), mask=inside)


# The trial of the 16-bit product; models/families/quantise.py tries that of fp8, for each shape of weight


def agrees(device: torch.device, dtype: torch.dtype) -> bool:
    """Compares it with torch's own product, for tiles of 16, 32 and 64 rows."""

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0])).to(device, dtype)

    weight = drawn(200, 520)
    batches = [drawn(count, 520) for count in (1, 32, SMALL_BATCH)]
    return all(close(small_batch_linear(x, weight), x.float() @ weight.float().t(), TOLERANCE) for x in batches)
