"""Experts around their grouped products, as Triton kernels: the choice, the rows sorted by expert, the gate, the sums.

Each reads and writes every number once. Of the 5.2 ms of a compiled layer of LLaDA2-mini with 20,040 tokens on an H200,
torch's own operations took .82 for the first three (it gathers a token's row anew for each of its experts, and its topk
reads the scores many times), and before that 1.3 for the sums, whose shares it recomputed for every number.
All are without gradients. Imported on CUDA only; the tests hold the kernels against PyTorch in Triton's
interpreter. `experts.py` tries them before they are used, and holds what they do in PyTorch's operations.
"""

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor


class Tiles(NamedTuple):
    """Of one program: numbers at a time (a power of two), as whole rows, at least one; and warps."""

    numbers: int
    warps: int

    def rows(self, width: int) -> int:
        return max(1, self.numbers // triton.next_power_of_2(width))


CHOOSE = Tiles(256, 1)  # one warp: the largest of a row is found without shared memory
SPREAD = Tiles(2048, 4)
GATE = Tiles(2048, 4)
LEAST: tl.constexpr = tl.constexpr(-(2**31))  # below the keys of all numbers


@torch.library.custom_op("maskwise::choose_experts", mutates_args=())
def choose_experts(
    logits: Tensor, bias: Tensor | None, count: int, groups: int, kept: int, normalised: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """logits [T, E] -> float32 shares and int64 numbers of the chosen experts, [T, count] each, as `routing.choice`.

    Of equal ones the first is chosen.
    """
    logits, bias = logits.contiguous(), None if bias is None else bias.contiguous()
    tokens, experts = logits.shape
    share, chosen = _room_for_choice(logits, count)
    group, size = triton.next_power_of_2(groups), triton.next_power_of_2(experts // groups)
    rows = CHOOSE.rows(group * size)
    if tokens:
        with torch.cuda.device_of(logits):  # Triton launches on the current device
            _choose[(triton.cdiv(tokens, rows),)](
                logits, bias, share, chosen, tokens, scale, COUNT=count, GROUPS=groups, IN_GROUP=experts // groups,
                KEPT=kept, NORMALISED=normalised, ROWS=rows, GROUP=group, SIZE=size,
                LANES=triton.next_power_of_2(count), num_warps=CHOOSE.warps,
            )  # fmt: skip
    return share, chosen


@choose_experts.register_fake
def _(
    logits: Tensor, bias: Tensor | None, count: int, groups: int, kept: int, normalised: bool, scale: float
) -> tuple[Tensor, Tensor]:
    return _room_for_choice(logits, count)


def _room_for_choice(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    shape = len(logits), count
    return logits.new_empty(shape, dtype=torch.float32), logits.new_empty(shape, dtype=torch.int64)


@triton.jit(do_not_specialize=["tokens"])
def _choose(
    logits, bias, share, chosen, tokens, scale,
    COUNT: tl.constexpr, GROUPS: tl.constexpr, IN_GROUP: tl.constexpr, KEPT: tl.constexpr, NORMALISED: tl.constexpr,
    ROWS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr, LANES: tl.constexpr,
):  # fmt: skip
    """GROUP, SIZE and LANES: powers of two from the groups, the experts in one and those that are chosen."""
    EXPERTS: tl.constexpr = GROUPS * IN_GROUP
    SPAN: tl.constexpr = GROUP * SIZE
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    place = tl.arange(0, SPAN)[None, :]
    expert = place // SIZE * IN_GROUP + place % SIZE
    there = (place % SIZE < IN_GROUP) & (place // SIZE < GROUPS)
    logit = tl.load(logits + row * EXPERTS + expert, mask=(row < tokens) & there, other=float("-inf")).to(tl.float32)
    if bias is None:
        largest = tl.max(logit, 1)[:, None]
        total = tl.sum(tl.exp(logit - largest), 1)[:, None]
        key = _key(tl.exp(logit - largest) / total)
    else:
        key = _key(_sigmoid(logit) + tl.load(bias + expert, mask=there, other=0.0).to(tl.float32))
    key = tl.where(there, key, LEAST)
    if KEPT < GROUPS:
        key = _in_best_groups(key, GROUPS, KEPT, ROWS, GROUP, SIZE)
    lane = tl.arange(0, LANES)[None, :]
    picks = tl.zeros((ROWS, LANES), tl.int32)
    for number in tl.static_range(COUNT):
        best = _first_of_the_best(key, place, SPAN)[:, None]
        picks = tl.where(lane == number, best // SIZE * IN_GROUP + best % SIZE, picks)
        key = tl.where(place == best, LEAST, key)
    used = (row < tokens) & (lane < COUNT)
    logit = tl.load(logits + row * EXPERTS + picks, mask=used, other=float("-inf")).to(tl.float32)
    score = tl.exp(logit - largest) / total if bias is None else _sigmoid(logit)
    if NORMALISED:
        score = score / (tl.sum(tl.where(used, score, 0.0), 1)[:, None] + 1e-20)
    tl.store(share + row * COUNT + lane, score * scale, mask=used)
    tl.store(chosen + row * COUNT + lane, picks.to(tl.int64), mask=used)


@triton.jit
def _in_best_groups(
    key, GROUPS: tl.constexpr, KEPT: tl.constexpr, ROWS: tl.constexpr, GROUP: tl.constexpr, SIZE: tl.constexpr
):
    """key [ROWS, GROUP * SIZE], with the least outside the KEPT groups whose two best sum to most."""
    key = tl.reshape(key, (ROWS, GROUP, SIZE))
    lane, group = tl.arange(0, SIZE)[None, None, :], tl.arange(0, GROUP)[None, :]
    best = tl.max(key, 2)
    first = tl.min(tl.where(key == best[:, :, None], lane, SIZE), 2)
    second = tl.max(tl.where(lane == first[:, :, None], LEAST, key), 2)
    worth = tl.where(group < GROUPS, _key(_number(best) + _number(second)), LEAST)
    kept = tl.zeros((ROWS, GROUP), tl.int32)
    for _ in tl.static_range(KEPT):
        taken = group == _first_of_the_best(worth, group, GROUP)[:, None]
        kept = tl.where(taken, 1, kept)
        worth = tl.where(taken, LEAST, worth)
    return tl.reshape(tl.where(kept[:, :, None] == 1, key, LEAST), (ROWS, GROUP * SIZE))


@triton.jit
def _first_of_the_best(key, place, SPAN: tl.constexpr):
    """key [rows, SPAN] -> [rows]."""
    return tl.min(tl.where(key == tl.max(key, 1)[:, None], place, SPAN), 1)


@triton.jit
def _key(x):
    """Integers in the order of float32 numbers, NaN above all, as topk has it: whatever comes, experts are chosen."""
    bits = x.to(tl.int32, bitcast=True)
    return tl.where(x == x, bits ^ ((bits >> 31) & 0x7FFFFFFF), 0x7FFFFFFF)


@triton.jit
def _number(key):
    return (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def _sigmoid(x):
    return 1 / (1 + tl.exp(-x))


@torch.library.custom_op("maskwise::spread_rows", mutates_args=())
def spread_rows(x: Tensor, place: Tensor) -> Tensor:
    """x [T, d], place [T * k] -> [T * k, d], where row place[t * k + j] is x[t]: each is read once."""
    x, place = x.contiguous(), place.contiguous()
    tokens, width = x.shape
    out = x.new_empty(len(place), width)
    rows = SPREAD.rows(width)
    if tokens:
        with torch.cuda.device_of(x):
            _spread[(triton.cdiv(tokens, rows),)](
                x, place, out, tokens, width, COPIES=len(place) // tokens, ROWS=rows,
                SIZE=triton.next_power_of_2(width), num_warps=SPREAD.warps,
            )  # fmt: skip
    return out


@spread_rows.register_fake
def _(x: Tensor, place: Tensor) -> Tensor:
    return x.new_empty(len(place), x.shape[1])


@triton.jit(do_not_specialize=["tokens"])
def _spread(x, place, out, tokens, width, COPIES: tl.constexpr, ROWS: tl.constexpr, SIZE: tl.constexpr):
    token = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    lane = tl.arange(0, SIZE)[None, :]
    inside = (token < tokens)[:, None] & (lane < width)
    row = tl.load(x + token[:, None] * width + lane, mask=inside)
    for number in tl.static_range(COPIES):
        to = tl.load(place + token * COPIES + number, mask=token < tokens, other=0).to(tl.int64)
        tl.store(out + to[:, None] * width + lane, row, mask=inside)


@torch.library.custom_op("maskwise::gated", mutates_args=())
def gated(both: Tensor) -> Tensor:
    """both [n, 2 * inner], a gate beside its up -> silu(gate) * up [n, inner], rounded in between as PyTorch does."""
    both = both.contiguous()
    count, inner = len(both), both.shape[1] // 2
    out = both.new_empty(count, inner)
    rows = GATE.rows(inner)
    if count:
        with torch.cuda.device_of(both):
            _gate[(triton.cdiv(count, rows),)](
                both, out, count, inner, ROWS=rows, SIZE=triton.next_power_of_2(inner), num_warps=GATE.warps
            )
    return out


@gated.register_fake
def _(both: Tensor) -> Tensor:
    return both.new_empty(len(both), both.shape[1] // 2)


@triton.jit(do_not_specialize=["count"])
def _gate(both, out, count, inner, ROWS: tl.constexpr, SIZE: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)[:, None]
    lane = tl.arange(0, SIZE)[None, :]
    inside = (row < count) & (lane < inner)
    gate = tl.load(both + row * 2 * inner + lane, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(both + row * 2 * inner + inner + lane, mask=inside, other=0.0).to(tl.float32)
    kind: tl.constexpr = out.dtype.element_ty
    opened = (gate / (1 + tl.exp(-gate))).to(kind).to(tl.float32)
    tl.store(out + row * inner + lane, (opened * up).to(kind), mask=inside)


@torch.library.custom_op("maskwise::expert_sums", mutates_args=())
def expert_sums(said: Tensor, place: Tensor, share: Tensor, dtype: torch.dtype, beside: list[Tensor]) -> Tensor:
    """said [T * k, d], place [T * k] of each token's rows in it, share [T, k] -> [T, d] in `dtype`.

    Products are rounded to the type of the shares and added in float32, in the order of the choice; then the sum is
    rounded to `dtype`, and again with each of `beside` added, at most two of [T, d].
    """
    said, place, share = said.contiguous(), place.contiguous(), share.contiguous()
    first, second = [one.contiguous() for one in beside] + [None] * (2 - len(beside))
    tokens, width = len(share), said.shape[1]
    out = said.new_empty(tokens, width, dtype=dtype)
    if tokens:
        with torch.cuda.device_of(said):
            _sums[(tokens,)](
                said, place, share, first, second, out, width,
                COUNT=share.shape[1], SIZE=triton.next_power_of_2(width), num_warps=4,
            )  # fmt: skip
    return out


@expert_sums.register_fake
def _(said: Tensor, place: Tensor, share: Tensor, dtype: torch.dtype, beside: list[Tensor]) -> Tensor:
    return said.new_empty(len(share), said.shape[1], dtype=dtype)


@triton.jit
def _sums(said, place, share, first, second, out, width, COUNT: tl.constexpr, SIZE: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, SIZE)
    inside = lane < width
    total = tl.zeros((SIZE,), tl.float32)
    for number in tl.static_range(COUNT):
        row = tl.load(place + token * COUNT + number)
        weight = tl.load(share + token * COUNT + number)
        part = tl.load(said + row * width + lane, mask=inside, other=0.0).to(tl.float32) * weight.to(tl.float32)
        total += part.to(share.dtype.element_ty).to(tl.float32)
    kind: tl.constexpr = out.dtype.element_ty
    if first is not None:
        total = total.to(kind).to(tl.float32) + tl.load(first + token * width + lane, mask=inside).to(tl.float32)
    if second is not None:
        total = total.to(kind).to(tl.float32) + tl.load(second + token * width + lane, mask=inside).to(tl.float32)
    tl.store(out + token * width + lane, total.to(kind), mask=inside)
