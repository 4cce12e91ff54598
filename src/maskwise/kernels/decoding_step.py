"""Kernels of the end of a decoding step: argmax with its log-probability, best rows, commit, open rows to the front.

At batch 1 a step reads 15 GB of weights in 3.4 ms, and seventy small kernels after it would take another 0.3 ms.
decoding/end_of_step.py has the plain forms.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

OTHERWISE = "the end of a step is left to PyTorch"
TOLERANCE = 1e-4  # relative, between two ways to add up a row's probabilities
TOKENS = 8192  # of a vocabulary per program: 32 rows of 126,464 tokens make 512 programs
SMALLEST = 64  # rows are padded to this number, beyond it to powers of two: each size is compiled separately
FLIPS = 128  # rows per program of `commit`
LOWEST: tl.constexpr = tl.constexpr(torch.finfo(torch.float32).min)


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor]:
    """logits [.., V] float32 -> the first argmax [..] int64 and its log-probability [..], not finite where the row is
    not."""
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
    """The largest of SIZE logits, its first place, and the sum of exp(logit - largest) over the others."""
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
        rows = score.expand_as(open).contiguous(), open.contiguous()
        size = _padded(width)
        _best_rows[(sequences * width,)](*rows, count.contiguous(), flip, width, SIZE=size, num_warps=1)
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


def commit(
    ids: Tensor, order: Tensor, places: Tensor, tokens: Tensor, flip: Tensor, open: Tensor, step: Tensor, mask_id: int
) -> Tensor:
    """Writes to ids and order [T+1] where rows [S, W] flip; step [S, 1]. -> the rows open after it, [S, W]."""
    step = step.expand(len(places), 1).contiguous()
    after = torch.empty_like(places, dtype=torch.bool, memory_format=torch.contiguous_format)
    rows = [one.expand_as(places).contiguous() for one in (places, tokens, flip, open)]
    sizes = mask_id, len(ids) - 1, places.shape[1], places.numel()
    with torch.cuda.device_of(ids):
        grid = (triton.cdiv(places.numel(), FLIPS),)
        _commit[grid](ids, order, *rows, step, after, *sizes, SIZE=FLIPS, num_warps=1)
    return after


@triton.jit(do_not_specialize=["mask_id", "spare", "width", "total"])
def _commit(ids, order, places, tokens, flip, open, step, after, mask_id, spare, width, total, SIZE: tl.constexpr):
    row = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    inside = row < total
    place = tl.load(places + row, mask=inside, other=0)
    flips = (tl.load(flip + row, mask=inside, other=0) != 0) & (place < spare) & inside  # padding stays
    masked = tl.load(open + row, mask=inside, other=0) != 0
    token, now = tl.load(tokens + row, mask=inside, other=0), tl.load(step + row // width, mask=inside, other=0)
    tl.store(ids + place, tl.where(masked, token, mask_id), mask=flips)
    tl.store(order + place, tl.where(masked, now, -1), mask=flips)
    tl.store(after + row, masked != flips, mask=inside)


def narrowed(places: Tensor, positions: Tensor, open: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Moves the open rows to the front, in order, the others after them, cut to `width` columns. All [S, W]."""
    sequences, columns = open.shape
    new = places.new_empty(2, sequences, width)
    kept = open.new_empty(sequences, width)
    with torch.cuda.device_of(open):
        rows = places.contiguous(), positions.contiguous(), open.contiguous()
        size = _padded(columns)
        _narrowed[(sequences,)](*rows, new[0], new[1], kept, columns, width, SIZE=size, num_warps=1)
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


def agrees(device: torch.device, widest: int) -> bool:
    """Compares the kernels with plain results on rows with ties, padding, a vocabulary in parts, and `widest` rows."""
    return _likeliest_agree(device) and _rows_agree(device, widest)


def _likeliest_agree(device: torch.device) -> bool:
    logits = torch.randn(2, 3, TOKENS + 100, generator=torch.Generator().manual_seed(0))
    logits[1, 1, 5], logits[1, 2, -7] = 20.0, 30.0
    tokens, sure = likeliest(logits.to(device))
    expected = logits.double().log_softmax(dim=-1).max(dim=-1)
    near = (sure.cpu() / expected.values - 1).abs() < TOLERANCE
    return torch.equal(tokens.cpu(), expected.indices) and bool(near.all())


def _rows_agree(device: torch.device, widest: int) -> bool:
    """Chooses and writes rows; then re-masks a committed row, flips one that is padding, and narrows."""

    def of(rows: list[list[int]]) -> Tensor:
        return torch.tensor(rows, device=device)

    score = torch.tensor([[0.5, 2.0, 2.0, 9.0], [-torch.inf, 1.0, 3.0, 3.0]], device=device)
    open, places = of([[1, 1, 1, 0], [1, 0, 1, 1]]).bool(), of([[4, 0, 2, 6], [1, 6, 3, 5]])
    tokens, steps = of([[10, 11, 12, 13], [14, 15, 16, 17]]), of([[3], [4]])
    ids, order = of([[9] * 7])[0], of([[-1] * 7])[0]
    flip = best_rows(score, open, of([[2, 1]])[0])
    open = commit(ids, order, places, tokens, flip, open, steps, 8)
    fine = ids.tolist() == [11, 9, 12, 16, 9, 9, 9] and order.tolist() == [3, -1, 3, 4, -1, -1, -1]
    open = commit(ids, order, places, tokens, of([[0, 1, 0, 1], [0, 0, 0, 0]]).bool(), open, steps, 8)
    fine = fine and ids.tolist() == [8, 9, 12, 16, 9, 9, 9] and order.tolist() == [-1, -1, 3, 4, -1, -1, -1]
    moved = [one.tolist() for one in narrowed(places, tokens, open, 3)]
    wide = torch.arange(widest, device=device)[None]  # the largest size that is compiled
    chosen = best_rows(wide.float(), wide >= 0, of([[3]])[0])
    fine = fine and narrowed(wide, wide, chosen, 3)[0].tolist() == [[widest - 3, widest - 2, widest - 1]]
    kept = [[True, True, False], [True, True, False]]
    return fine and moved == [[[4, 0, 2], [1, 5, 6]], [[10, 11, 12], [14, 17, 15]], kept]
