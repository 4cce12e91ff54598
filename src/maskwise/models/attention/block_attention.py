"""Block-causal attention as causal flash attention plus attention to the later tokens of the same block.

It needs no [longest, longest] mask and reads only visible keys. Each part returns its output and its log-sum-exp, by
which the two outputs are weighted.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from maskwise.models.batch import owners


@dataclass(frozen=True)
class Blocks:
    """Indices of flat tokens in a grid of blocks, [count * size], one block of a sequence per line."""

    places: Tensor  # [T] int64
    size: int
    count: int


def block_places(offsets: Tensor, first: Tensor, size: int, total: int) -> Blocks:
    """offsets [S+1]; first [S]: the position of each sequence's first token. Blocks are counted from position 0."""
    lengths, skipped = offsets.diff().long(), first // size
    owner = owners(offsets, total)
    counts = ((first + lengths - 1) // size - skipped + 1) * (lengths > 0)
    position = torch.arange(total, device=offsets.device) + (first - offsets[:-1])[owner]
    line = (counts.cumsum(0) - counts - skipped)[owner] + position // size
    # The largest possible number of lines: the actual number would need a host synchronisation.
    return Blocks(line * size + position % size, size, total // size + 2 * len(lengths))


def later_in_block(q: Tensor, k: Tensor, v: Tensor, blocks: Blocks, scale: float) -> tuple[Tensor, Tensor]:
    """Attention to the later tokens of the own block alone. q [T, H, D], k and v [T, G, D] -> [T, H, D] and [T, H].
    The last token of a block sees none: zeros, and minus infinity."""
    size, lines, heads, groups = blocks.size, blocks.count, q.shape[1], k.shape[1]

    def grid(x: Tensor) -> Tensor:
        """[T, h, D] -> [lines, G, h / G * size, D]."""
        whole = x.new_zeros(lines * size, *x.shape[1:]).index_copy(0, blocks.places, x)
        return whole.view(lines, size, groups, x.shape[1] // groups, -1).permute(0, 2, 3, 1, 4).flatten(2, 3)

    queries, keys, values = grid(q), grid(k), grid(v)
    scores = _float_product(queries.flatten(0, 1), keys.flatten(0, 1)) * scale
    real = torch.zeros(lines * size, dtype=torch.bool, device=q.device).index_fill(0, blocks.places, True)
    place = torch.arange(size, device=q.device)
    seen = (place[None, :] > place[:, None]) & real.view(lines, 1, 1, 1, size)
    scores = scores.view(lines, groups, -1, size, size).masked_fill(~seen, float("-inf"))
    sums = scores.logsumexp(dim=-1)  # [lines, G, H / G, size]
    weights = (scores - sums.clamp(min=-1e30)[..., None]).exp().to(v.dtype)
    out = (weights.flatten(2, 3) @ values).unflatten(2, (-1, size)).permute(0, 3, 1, 2, 4)
    flat = out.reshape(lines * size, heads, -1)[blocks.places]
    return flat, sums.permute(0, 3, 1, 2).reshape(lines * size, heads)[blocks.places]


def _float_product(queries: Tensor, keys: Tensor) -> Tensor:
    """Float32 scores: [n, a, D], [n, b, D] -> [n, a, b]."""
    if queries.is_cuda and queries.dtype != torch.float32:
        return torch.bmm(queries, keys.transpose(1, 2), out_dtype=torch.float32)
    return queries.float() @ keys.float().transpose(1, 2)


def merged(one: Tensor, one_sums: Tensor, other: Tensor, other_sums: Tensor) -> Tensor:
    """Merges two attention outputs over disjoint keys by their log-sum-exps [T, H]: [T, H, D]."""
    share = (other_sums - one_sums).sigmoid()[..., None]
    return (one.float() * (1 - share) + other.float() * share).to(one.dtype)
