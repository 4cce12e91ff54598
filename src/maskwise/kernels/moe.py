"""Kernels of a mixture of experts around its grouped products: routing, rows sorted by expert, gate, weighted sums.

Each reads and writes every number once. Of the 5.2 ms of a compiled layer of LLaDA2-mini with 20,040 tokens on an H200,
torch's own operations took 0.82 ms for the first three (it gathers a token's row once per expert, and its topk reads
the scores many times), and 1.3 ms for the sums, for which it recomputed the weights for every number. None has a
backward pass. models/families/experts.py and routing.py have the plain forms.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch import Tensor

from maskwise.kernels.gate import close

OTHERWISE = "experts are chosen, gated and added up by PyTorch"
TOLERANCE = 1e-2  # relative: bf16 has 8 bits


class RowTiles(NamedTuple):
    """The work of one program: numbers at a time (a power of two), as whole rows, at least one; and its warps."""

    numbers: int
    warps: int

    def rows(self, width: int) -> int:
        return max(1, self.numbers // triton.next_power_of_2(width))


CHOOSE = RowTiles(256, 1)  # one warp: the maximum of a row needs no shared memory
SPREAD = RowTiles(2048, 4)
GATE = RowTiles(2048, 4)
LEAST: tl.constexpr = tl.constexpr(-(2**31))  # below the keys of all numbers


@torch.library.custom_op("maskwise::choose_experts", mutates_args=())
def choose_experts(
    logits: Tensor, bias: Tensor | None, count: int, groups: int, kept: int, normalised: bool, scale: float
) -> tuple[Tensor, Tensor]:
    """MoE routing: logits [T, E] -> weights (float32) and indices (int64) of the chosen experts, [T, count] each.
    The same as `choice` of models/families/routing.py; of equal experts the first is chosen."""
    logits, bias = logits.contiguous(), None if bias is None else bias.contiguous()
    tokens, experts = logits.shape
    share, chosen = _empty_choice(logits, count)
    group, size = triton.next_power_of_2(groups), triton.next_power_of_2(experts // groups)
    rows = CHOOSE.rows(group * size)
    if tokens:
        with torch.cuda.device_of(logits):  # Triton launches on the current device
            _choose[(triton.cdiv(tokens, rows),)](
                *(logits, bias, share, chosen, tokens, scale),
                COUNT=count,
                GROUPS=groups,
                IN_GROUP=experts // groups,
                KEPT=kept,
                NORMALISED=normalised,
                ROWS=rows,
                GROUP=group,
                SIZE=size,
                LANES=triton.next_power_of_2(count),
                num_warps=CHOOSE.warps,
            )
    return share, chosen


@choose_experts.register_fake
def _(
    logits: Tensor, bias: Tensor | None, count: int, groups: int, kept: int, normalised: bool, scale: float
) -> tuple[Tensor, Tensor]:
    return _empty_choice(logits, count)


def _empty_choice(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    shape = len(logits), count
    return logits.new_empty(shape, dtype=torch.float32), logits.new_empty(shape, dtype=torch.int64)


@triton.jit(do_not_specialize=["tokens"])
def _choose(
    logits,
    bias,
    share,
    chosen,
    tokens,
    scale,
    COUNT: tl.constexpr,
    GROUPS: tl.constexpr,
    IN_GROUP: tl.constexpr,
    KEPT: tl.constexpr,
    NORMALISED: tl.constexpr,
    ROWS: tl.constexpr,
    GROUP: tl.constexpr,
    SIZE: tl.constexpr,
    LANES: tl.constexpr,
):
    """GROUP, SIZE and LANES: the groups, the experts of a group and the chosen experts, rounded up to powers of two."""
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
    """key [ROWS, GROUP * SIZE], with LEAST outside the KEPT groups that have the largest sums of their two best."""
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
    """Integers in the order of float32 numbers, NaN above all as in topk, so that experts are chosen for any input."""
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
    """x [T, d], place [T * k] -> [T * k, d], where row place[t * k + j] is x[t]; each row is read once."""
    x, place = x.contiguous(), place.contiguous()
    tokens, width = x.shape
    out = x.new_empty(len(place), width)
    rows = SPREAD.rows(width)
    if tokens:
        with torch.cuda.device_of(x):
            grid, copies, size = (triton.cdiv(tokens, rows),), len(place) // tokens, triton.next_power_of_2(width)
            _spread[grid](x, place, out, tokens, width, COPIES=copies, ROWS=rows, SIZE=size, num_warps=SPREAD.warps)
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
    """SwiGLU: both [n, 2 * inner], gate and up projections -> silu(gate) * up [n, inner], rounded as PyTorch does."""
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
def expert_sums(outputs: Tensor, place: Tensor, share: Tensor, dtype: torch.dtype, added: list[Tensor]) -> Tensor:
    """Weighted sums of the experts' outputs [T * k, d], of which token t's rows are place [T * k]; share [T, k].

    -> [T, d] in `dtype`. Products are rounded to the type of the shares and added in float32, in the order of the
    choice; the sum is rounded to `dtype`, and again after each of `added`, at most two tensors of [T, d].
    """
    outputs, place, share = outputs.contiguous(), place.contiguous(), share.contiguous()
    first, second = [one.contiguous() for one in added] + [None] * (2 - len(added))
    tokens, width = len(share), outputs.shape[1]
    out = outputs.new_empty(tokens, width, dtype=dtype)
    if tokens:
        with torch.cuda.device_of(outputs):
            tensors, size = (outputs, place, share, first, second, out), triton.next_power_of_2(width)
            _sums[(tokens,)](*tensors, width, COUNT=share.shape[1], SIZE=size, num_warps=4)
    return out


@expert_sums.register_fake
def _(outputs: Tensor, place: Tensor, share: Tensor, dtype: torch.dtype, added: list[Tensor]) -> Tensor:
    return outputs.new_empty(len(share), outputs.shape[1], dtype=dtype)


@triton.jit
def _sums(outputs, place, share, first, second, out, width, COUNT: tl.constexpr, SIZE: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, SIZE)
    inside = lane < width
    total = tl.zeros((SIZE,), tl.float32)
    for number in tl.static_range(COUNT):
        row = tl.load(place + token * COUNT + number)
        weight = tl.load(share + token * COUNT + number)
        part = tl.load(outputs + row * width + lane, mask=inside, other=0.0).to(tl.float32) * weight.to(tl.float32)
        total += part.to(share.dtype.element_ty).to(tl.float32)
    kind: tl.constexpr = out.dtype.element_ty
    if first is not None:
        total = total.to(kind).to(tl.float32) + tl.load(first + token * width + lane, mask=inside).to(tl.float32)
    if second is not None:
        total = total.to(kind).to(tl.float32) + tl.load(second + token * width + lane, mask=inside).to(tl.float32)
    tl.store(out + token * width + lane, total.to(kind), mask=inside)


def agrees(device: torch.device, dtype: torch.dtype) -> bool:
    """Compares each kernel with PyTorch, for experts that compute in `dtype`.
    Widths are multiples of 16, as models have them, and less than the next power of two; so are groups."""
    draws = torch.Generator().manual_seed(0)
    tokens, count, width, experts = 33, 4, 2000, 60

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draws).to(device, dtype)

    place = torch.randperm(tokens * count, generator=draws).to(device)
    # Far from ties, where either expert would be right: steps of a sixtieth, and a bias of one or none.
    logits = torch.stack([torch.randperm(experts, generator=draws) / experts for _ in range(tokens)]).to(device)
    bias = torch.zeros(experts, device=device)
    bias[::7] = 1

    def spreads(x: Tensor) -> bool:
        return torch.equal(spread_rows(x, place)[place], x.repeat_interleave(count, dim=0))

    def adds(share: torch.dtype, out: torch.dtype, *added: Tensor) -> bool:
        shares = torch.rand(tokens, count, generator=draws).to(device, share)
        given = drawn(tokens * count, width), place, shares, out, list(added)
        return close(expert_sums(*given), _plain_sums(*given), TOLERANCE)

    both, others = drawn(tokens, 2 * 240), [drawn(tokens, width) for _ in range(2)]
    gate, up = both.chunk(2, dim=-1)
    return (
        _chooses(logits, None, count, 1, 1, True, 1.0)
        and _chooses(logits, bias, count, 5, 2, True, 2.5)
        and all(spreads(drawn(tokens, width).to(kind)) for kind in {dtype, torch.float32})
        and close(gated(both), F.silu(gate) * up, TOLERANCE)
        and adds(dtype, dtype)
        and adds(torch.float32, dtype, *others)
        and adds(torch.float32, torch.float32, *others[:1])
    )


def _chooses(logits: Tensor, *given: Any) -> bool:
    choices = choose_experts(logits, *given), _plain_choice(logits, *given)
    found, expected = (torch.zeros_like(logits).scatter(1, chosen, share) for share, chosen in choices)
    return close(found, expected, TOLERANCE)


def _plain_choice(
    logits: Tensor, bias: Tensor | None, count: int, groups: int, kept: int, normalised: bool, scale: float
) -> tuple[Tensor, Tensor]:
    scores = logits.softmax(dim=-1) if bias is None else logits.sigmoid()
    by_group = (scores if bias is None else scores + bias).unflatten(-1, (groups, -1))  # [T, groups, experts]
    best = by_group.topk(2, dim=-1).values.sum(dim=-1).topk(kept, dim=-1).indices
    inside = torch.zeros(by_group.shape[:2], dtype=torch.bool, device=logits.device).scatter(1, best, True)
    chosen = by_group.masked_fill(~inside[..., None], float("-inf")).flatten(1).topk(count, dim=-1).indices
    share = scores.gather(1, chosen)
    return share / (share.sum(dim=-1, keepdim=True) if normalised else 1) * scale, chosen


def _plain_sums(outputs: Tensor, place: Tensor, share: Tensor, dtype: torch.dtype, added: list[Tensor]) -> Tensor:
    by_token = outputs[place].unflatten(0, share.shape)  # [T, k, d]
    return sum(added, (by_token.to(share.dtype) * share[..., None]).sum(dim=1).to(dtype))
