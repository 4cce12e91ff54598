"""What follows the forward pass of a decoding step, as Triton kernels: each in the place of a dozen small ones.

At batch 1 such a step reads 15 GB of weights in 3.4 ms, and seventy small kernels after it would take another .3 ms.
Imported on CUDA only, by end_of_step.py, which has the same in PyTorch's operations; the tests hold the two together in
Triton's interpreter.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

TOKENS = 8192  # of a vocabulary, for each program: with 32 rows of 126,464 tokens there are 512 programs
SMALLEST = 64  # rows are padded to so many, and beyond to powers of two: each size is compiled anew
FLIPS = 128  # rows of a program that writes
LOWEST: tl.constexpr = tl.constexpr(torch.finfo(torch.float32).min)


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """logits [.., V] float32 -> the first of the largest [..] int64, and its log-probability [..], not finite where the
    row is not."""
    shape, vocab = logits.shape[:-1], logits.shape[-1]
    count, parts = logits.numel() // vocab, triton.cdiv(vocab, TOKENS)
    logits = logits.contiguous()
    tops, others = logits.new_empty(2, count, parts)
    places = logits.new_empty(count, parts, dtype=torch.int64)
    tokens, sure = places.new_empty(shape), tops.new_empty(shape)
    with torch.cuda.device_of(logits):  # Triton launches on the current device
        _largest_of_a_part[(count, parts)](logits, tops, places, others, vocab, parts, SIZE=TOKENS, num_warps=8)
        _largest[(count,)](tops, places, others, tokens, sure, parts, SIZE=triton.next_power_of_2(parts), num_warps=1)
    return tokens, sure


@triton.jit
def _largest_of_a_part(logits, tops, places, others, vocab, parts, SIZE: tl.constexpr):
    """The largest of SIZE logits, the first place that holds it, and the others' sum of exp(logit - largest)."""
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lane = tl.arange(0, SIZE)
    token = part * SIZE + lane
    values = tl.load(logits + row * vocab + token, mask=token < vocab, other=float("-inf"))
    top = tl.max(values, 0)
    where = tl.minimum(tl.min(tl.where(values == top, lane, SIZE), 0), SIZE - 1)  # NaN equals nothing
    weights = tl.exp(values - tl.where(top == float("-inf"), 0.0, top))
    at = row * parts + part
    tl.store(tops + at, top)
    tl.store(places + at, tl.minimum(part * SIZE + where, vocab - 1).to(tl.int64))
    tl.store(others + at, tl.sum(tl.where(lane == where, 0.0, weights), 0))


@triton.jit
def _largest(tops, places, others, tokens, sure, parts, SIZE: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.arange(0, SIZE)
    inside = part < parts
    there = tl.load(tops + row * parts + part, mask=inside, other=float("-inf"))
    top = tl.max(there, 0)
    winner = tl.minimum(tl.min(tl.where(there == top, part, SIZE), 0), parts - 1)
    share = tl.exp(there - top)
    rest = tl.load(others + row * parts + part, mask=inside, other=0.0) * share
    rest = tl.sum(rest + tl.where(part == winner, 0.0, share), 0)
    # log(1 + rest) for a rest that 1 + rest would lose: the model is sure of many tokens to nine digits.
    whole = 1.0 + rest
    log = tl.where(whole == 1.0, rest, tl.log(whole) * (rest / tl.where(whole == 1.0, 1.0, whole - 1.0)))
    tl.store(tokens + row, tl.load(places + row * parts + winner))
    tl.store(sure + row, -log)


def best_rows(score: Tensor, open: Tensor, count: Tensor) -> Tensor:
    """score [S, W] float32, open [S, W], count [S] -> [S, W], True at the `count` best open rows, ties to the left."""
    sequences, width = open.shape
    flip = torch.empty_like(open, memory_format=torch.contiguous_format)
    with torch.cuda.device_of(open):
        _best_rows[(sequences * width,)](
            score.expand_as(open).contiguous(), open.contiguous(), count.contiguous(), flip, width,
            SIZE=_padded(width), num_warps=1,
        )  # fmt: skip
    return flip


@triton.jit(do_not_specialize=["width"])
def _best_rows(score, open, count, flip, width, SIZE: tl.constexpr):
    sequence, row = tl.program_id(0) // width, tl.program_id(0) % width
    lane = tl.arange(0, SIZE)
    there = tl.load(open + sequence * width + lane, mask=lane < width, other=0) != 0
    value = _ordered(tl.load(score + sequence * width + lane, mask=there, other=0.0))
    mine = _ordered(tl.load(score + sequence * width + row))
    before = there & ((value > mine) | ((value == mine) & (lane < row)))
    ahead = tl.sum(before.to(tl.int64), 0)
    chosen = (tl.load(open + sequence * width + row) != 0) & (ahead < tl.load(count + sequence))
    tl.store(flip + sequence * width + row, chosen)


@triton.jit
def _ordered(score):
    """Scores that can be compared: NaN as plus infinity, minus infinity as the lowest finite number."""
    return tl.where(score == score, tl.maximum(score, LOWEST), float("inf"))


def turn(
    ids: Tensor, order: Tensor, places: Tensor, tokens: Tensor, flip: Tensor, open: Tensor, step: Tensor, mask_id: int
) -> Tensor:
    """Writes to the sheet ids and order [T+1] where rows [S, W] flip; step [S, 1]. -> open after it, [S, W]."""
    step = step.expand(len(places), 1).contiguous()
    after = torch.empty_like(places, dtype=torch.bool, memory_format=torch.contiguous_format)
    with torch.cuda.device_of(ids):
        _turn[(triton.cdiv(places.numel(), FLIPS),)](
            ids, order, places.contiguous(), tokens.expand_as(places).contiguous(),
            flip.expand_as(places).contiguous(), open.expand_as(places).contiguous(), step, after,
            mask_id, len(ids) - 1, places.shape[1], places.numel(), SIZE=FLIPS, num_warps=1,
        )  # fmt: skip
    return after


@triton.jit(do_not_specialize=["mask_id", "spare", "width", "total"])
def _turn(ids, order, places, tokens, flip, open, step, after, mask_id, spare, width, total, SIZE: tl.constexpr):
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = row < total
    place = tl.load(places + row, mask=inside, other=0)
    turned = (tl.load(flip + row, mask=inside, other=0) != 0) & (place < spare) & inside  # padding stays
    masked = tl.load(open + row, mask=inside, other=0) != 0
    token, now = tl.load(tokens + row, mask=inside, other=0), tl.load(step + row // width, mask=inside, other=0)
    tl.store(ids + place, tl.where(masked, token, mask_id), mask=turned)
    tl.store(order + place, tl.where(masked, now, -1), mask=turned)
    tl.store(after + row, masked != turned, mask=inside)


def narrowed(places: Tensor, positions: Tensor, open: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """All [S, W]: the open rows moved to the front, in their order, the others after them, cut to `width` columns."""
    sequences, columns = open.shape
    new = places.new_empty(2, sequences, width)
    kept = open.new_empty(sequences, width)
    with torch.cuda.device_of(open):
        _narrowed[(sequences,)](
            places.contiguous(), positions.contiguous(), open.contiguous(), new[0], new[1], kept, columns, width,
            SIZE=_padded(columns), num_warps=1,
        )  # fmt: skip
    return new[0], new[1], kept


@triton.jit(do_not_specialize=["columns", "width"])
def _narrowed(places, positions, open, new_places, new_positions, kept, columns, width, SIZE: tl.constexpr):
    sequence, lane = tl.program_id(0), tl.arange(0, SIZE)
    inside = lane < columns
    at = sequence * columns + lane
    masked = tl.load(open + at, mask=inside, other=0) != 0
    first = tl.cumsum(masked.to(tl.int32), 0)
    closed = tl.cumsum((inside & ~masked).to(tl.int32), 0)
    column = tl.where(masked, first, tl.sum(masked.to(tl.int32), 0) + closed) - 1
    fits = inside & (column < width)
    to = sequence * width + column
    tl.store(new_places + to, tl.load(places + at, mask=inside, other=0), mask=fits)
    tl.store(new_positions + to, tl.load(positions + at, mask=inside, other=0), mask=fits)
    tl.store(kept + to, masked, mask=fits)


def _padded(width: int) -> int:
    return max(SMALLEST, triton.next_power_of_2(width))
