"""Attention of few queries over many keys, with the keys split over the card.

A decoding step with a cache has some 32 queries over a thousand keys or more. Kernels made for as many queries as keys
give each head to one program, which leaves most of the card idle. Here each program takes a part of the keys of one
head, and a second kernel combines the parts. The sequences of a batch may differ in length. Up to 10,240 keys all parts
have one size, so a sequence's result does not depend on the others.
"""

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from maskwise.kernels.gate import close, has_large_tiles

OTHERWISE = "attention of few rows: left to PyTorch"
TOLERANCE = 2e-2  # relative, in half precision
PART = 320  # keys per program: with 32 heads four parts fill the 132 multiprocessors of an H200
MOST_PARTS = 32  # each is as large as the output and in float32; beyond that they grow
KEYS, MOST_ROWS = 64, 64  # at a time
WARPS, STAGES, STAGES_SMALL = 4, 3, 2
LOG2_E = 1.4426950408889634
HEADS = 8  # per program of the kernel that combines the parts


@torch.library.custom_op("maskwise::split_attention", mutates_args=())
def split_attention(
    q: Tensor, k: Tensor, v: Tensor, q_offsets: Tensor, k_offsets: Tensor, longest_q: int, longest_k: int, scale: float
) -> Tensor:
    """q [T, H, D], k and v [K, G, D], offsets [S+1]: every query sees all keys of its sequence -> [T, H, D]."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    tokens, heads, width = q.shape
    groups, size = k.shape[1], max(PART, KEYS * triton.cdiv(longest_k, MOST_PARTS * KEYS))
    parts = triton.cdiv(longest_k, size)
    rows = longest_q * (heads // groups)
    tile = min(MOST_ROWS, max(16, triton.next_power_of_2(rows)))
    tiles = triton.cdiv(rows, tile)
    out = q.new_empty(parts, tokens, heads, width, dtype=torch.float32 if parts > 1 else q.dtype)
    sums = q.new_empty(parts, tokens, heads, dtype=torch.float32)
    with torch.cuda.device_of(q):  # Triton launches on the current device
        tensors = q, k, v, q_offsets, k_offsets, out, sums
        shape = {"HEADS": heads, "GROUPS": groups, "WIDTH": width, "ROWS": tile, "KEYS": KEYS}
        stages = STAGES if has_large_tiles(q) else STAGES_SMALL
        grid = parts, groups * tiles, len(q_offsets) - 1
        _attend_to_part[grid](
            *tensors, scale * LOG2_E, tokens, tiles, size, **shape, num_warps=WARPS, num_stages=stages
        )
        if parts == 1:
            return out[0]
        combined = torch.empty_like(q)
        _combine[(tokens, triton.cdiv(heads, HEADS))](
            out, sums, combined, tokens, parts, ALL=heads, HEADS=HEADS, WIDTH=width, num_warps=4
        )
    return combined


@split_attention.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, q_offsets: Tensor, k_offsets: Tensor, longest_q: int, longest_k: int, scale: float
) -> Tensor:
    return torch.empty_like(q, memory_format=torch.contiguous_format)


@triton.jit(do_not_specialize=["tokens", "tiles", "size"])
def _attend_to_part(
    q,
    k,
    v,
    q_offsets,
    k_offsets,
    out,
    sums,
    scale,
    tokens,
    tiles,
    size,
    HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    KEYS: tl.constexpr,
):
    """Attention to one part of a sequence's keys [parts, T, H, D] and log2 of its sum of exponentials [parts, T, H]."""
    SHARING: tl.constexpr = HEADS // GROUPS  # heads that read the same keys
    part, sequence = tl.program_id(0), tl.program_id(2)
    group, tile = tl.program_id(1) // tiles, tl.program_id(1) % tiles
    first, last = tl.load(q_offsets + sequence), tl.load(q_offsets + sequence + 1)
    row = tile * ROWS + tl.arange(0, ROWS)  # token by token, of each the heads that share keys
    token, head = first + row // SHARING, group * SHARING + row % SHARING
    known = token < last
    place = (tl.minimum(token, tokens - 1) * HEADS + head).to(tl.int64)
    lane = tl.arange(0, WIDTH)
    queries = tl.load(q + place[:, None] * WIDTH + lane[None, :])

    start = tl.load(k_offsets + sequence)
    end = tl.load(k_offsets + sequence + 1)
    begin = start + part * size
    end = tl.minimum(end, begin + size)
    largest = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    output = tl.zeros((ROWS, WIDTH), tl.float32)
    for some in range(begin, end, KEYS):
        key = some + tl.arange(0, KEYS)
        inside = key < end
        there = (tl.minimum(key, end - 1).to(tl.int64) * GROUPS + group) * WIDTH
        keys = tl.load(k + there[None, :] + lane[:, None])
        values = tl.load(v + there[:, None] + lane[None, :])
        scores = tl.where(inside[None, :], tl.dot(queries, keys) * scale, float("-inf"))
        new = tl.maximum(largest, tl.max(scores, 1))
        kept = tl.exp2(largest - new)
        weights = tl.exp2(scores - new[:, None])
        total = total * kept + tl.sum(weights, 1)
        output = tl.dot(weights.to(values.dtype), values, output * kept[:, None])
        largest = new
    seen = begin < end  # a shorter sequence has fewer parts
    output = output / tl.where(seen, total, 1.0)[:, None]
    at = part * tokens * HEADS + place
    tl.store(out + at[:, None] * WIDTH + lane[None, :], output.to(out.dtype.element_ty), mask=known[:, None])
    tl.store(sums + at, largest + tl.log2(total), mask=known)


@triton.jit(do_not_specialize=["tokens", "parts"])
def _combine(parted, sums, out, tokens, parts, ALL: tl.constexpr, HEADS: tl.constexpr, WIDTH: tl.constexpr):
    """Adds the parts, each weighted by its share of the sum of exponentials. -> out [T, H, D]."""
    token, lane = tl.program_id(0).to(tl.int64), tl.arange(0, WIDTH)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    inside = head < ALL
    place = token * ALL + tl.minimum(head, ALL - 1)
    largest = tl.load(sums + place)  # the first part of any sequence has keys
    for part in range(1, parts):
        here = tl.load(sums + part * tokens * ALL + place)
        largest = tl.maximum(largest, here)
    total = tl.zeros((HEADS,), tl.float32)
    output = tl.zeros((HEADS, WIDTH), tl.float32)
    for part in range(parts):
        at = part * tokens * ALL + place
        share = tl.exp2(tl.load(sums + at) - largest)
        total += share
        output += share[:, None] * tl.load(parted + at[:, None] * WIDTH + lane[None, :])
    output = output / total[:, None]
    tl.store(out + place[:, None] * WIDTH + lane[None, :], output.to(out.dtype.element_ty), mask=inside[:, None])


def agrees(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Compares it with SDPA: fewer heads of keys than of queries, one part and several, full tiles and others."""
    return all(_agrees(device, dtype, width, *sizes) for sizes in ((1, 20, 2, 2), (33, 700, 6, 2)))


def _agrees(
    device: torch.device, dtype: torch.dtype, width: int, rows: int, keys: int, heads: int, groups: int
) -> bool:
    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0])).to(device, dtype)

    q, k, v = drawn(rows, heads, width), drawn(keys, groups, width), drawn(keys, groups, width)
    ends = [torch.tensor([0, count], dtype=torch.int32, device=device) for count in (rows, keys)]
    found = split_attention(q, k, v, *ends, rows, keys, width**-0.5)
    q, k, v = (x.repeat_interleave(heads // x.shape[1], dim=1).transpose(0, 1).float() for x in (q, k, v))
    return close(found, F.scaled_dot_product_attention(q, k, v).transpose(0, 1), TOLERANCE)
