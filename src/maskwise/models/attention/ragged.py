"""Attention over ragged batches: S concatenated sequences; a query attends to keys of its own sequence only."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwise.models.attention.block_attention import Blocks, later_in_block, merged
from maskwise.models.attention.stored_weights import KeptAttention
from maskwise.models.batch import owners

Store = tuple[Tensor, Tensor]  # keys and values of one layer, [sum of lengths, heads, head_dim] each


@dataclass(frozen=True)
class KeyValues:
    """Key-value cache of S canvases, per layer, filled by forward passes.

    A pass over whole canvases fills the store; a later pass over spans refreshes those positions and sees the rest
    as it was, which is what makes a cache approximate for bidirectional models.
    """

    offsets: Tensor  # [S+1] int32, boundaries of the canvases
    longest: int
    total: int
    layers: list[Store]


@dataclass
class Watch:
    """Records the attention weights of chosen queries, one [n, heads, longest] tensor per layer."""

    queries: Tensor  # [n] flat query indices
    seen: list[Tensor] = field(default_factory=list)


@dataclass(frozen=True)
class RowGroup:
    """Rows of a sequence and the keys they attend to, as indices into the flat batch.
    bias [m] is added to the attention scores of the keys, in every head and layer."""

    rows: Tensor  # [n] int64
    keys: Tensor  # [m] int64
    bias: Tensor | None = None


@dataclass(frozen=True)
class AttentionPart:
    """Row groups computed in one attention call: flat indices of their rows and keys, and the mask between them."""

    rows: Tensor  # [n] int64
    keys: Tensor  # [m] int64
    layout: "Layout"


@dataclass(frozen=True)
class Layout:
    """Attention layout: which keys each query sees. Queries and keys differ only over a cache of earlier keys.

    `pad_q`, `pad_k` say where each flat token goes in a padded [S * longest] grid; None where nothing needs padding.
    With `parts`, which together hold every row once, rows see the keys of their part only.
    `last` is the layout of the last layer if one row per sequence is needed: the same keys, and as queries only `rows`
    [S] of the batch.
    """

    q_offsets: Tensor  # [S+1] int32
    k_offsets: Tensor  # [S+1] int32
    longest_q: int
    longest_k: int
    causal: bool
    flash: bool
    pad_q: Tensor | None = None
    pad_k: Tensor | None = None
    # [S, 1, 1, longest_k] or [S, 1, longest_q, longest_k]: True where a key is seen; or floats added to the scores.
    key_mask: Tensor | None = None
    cache: KeyValues | None = None
    slots: Tensor | None = None  # [T] positions of the batch's tokens in the cache
    watch: Watch | None = None
    parts: tuple[AttentionPart, ...] = ()
    blocks: Blocks | None = None  # with flash: block-causal attention
    split: bool = False  # few queries over the many keys of a cache, which `split_attention` splits over the card
    rows: Tensor | None = None
    last: "Layout | None" = None

    def to(self, device: torch.device | int | str) -> "Layout":
        """The layout on another device, copied there once; accelerate calls it for layers on several devices."""
        place = torch.device(device)
        if place == self.q_offsets.device:
            return self
        copies: dict[torch.device, Layout] = self.__dict__.setdefault("_copies", {})  # no field: FSDP2 replaces fields
        if place not in copies:
            copies[place] = on_device(replace(self, cache=None), place)
        return copies[place]

    def of_layer(self, layer: int, layers: int) -> "Layout":
        return self.last if self.last is not None and layer == layers - 1 else self

    def picked(self, x: Tensor) -> Tensor:
        """Selects the computed rows of x [T, ..]."""
        return x if self.rows is None else x[self.rows]

    def store(self, layer: int) -> Store | None:
        """The cache of a layer. Layers do not know their own number, or torch would compile each of them separately."""
        return None if self.cache is None else self.cache.layers[layer]


def on_device(value: Any, device: torch.device) -> Any:
    """A copy with all tensors of a layout's fields on the device; what a `Watch` records stays in one list."""
    if isinstance(value, Tensor):
        return value.to(device)
    if isinstance(value, Watch):
        return Watch(value.queries.to(device), value.seen)
    if isinstance(value, tuple):
        return tuple(on_device(one, device) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(
            value, **{one.name: on_device(getattr(value, one.name), device) for one in fields(value) if one.init}
        )
    return value


def asking_rows(layout: Layout, rows: Tensor) -> Layout:
    """The layout whose last layer computes only rows [S], one per sequence in order, as flat indices.
    Unchanged if the queries of a sequence see different keys."""
    mask, between = layout.key_mask, layout.causal or layout.blocks is not None or bool(layout.parts)
    if between or layout.cache is not None or (mask is not None and mask.shape[2] > 1):
        return layout
    first = torch.arange(len(rows) + 1, dtype=torch.int32, device=rows.device)
    watch = None if layout.watch is None else Watch(first[:-1].long(), layout.watch.seen)
    last = replace(layout, q_offsets=first, longest_q=1, pad_q=None, watch=watch, rows=rows)
    return replace(layout, last=last)


def grid_places(offsets: Tensor, longest: int, total: int) -> Tensor:
    """Index of each flat token in a right-padded [S * longest] grid. offsets [S+1] -> [total] int64."""
    starts = offsets[:-1].long()
    owner = owners(offsets, total)
    return torch.arange(total, device=offsets.device) - starts[owner] + owner * longest


def grouped_parts(groups: Sequence[RowGroup], flash: bool) -> tuple[AttentionPart, ...]:
    """Row groups merged into the fewest attention calls without padding or a [rows, keys] mask.

    Varlen flash attention takes all groups in one call, as so many sequences; it takes no bias, and SDPA takes groups
    one by one.
    """
    together = [group for group in groups if flash and group.bias is None]
    alone = [group for group in groups if not flash or group.bias is not None]
    return (*([_ragged_part(together)] if together else []), *map(_dense_part, alone))


def _ragged_part(groups: Sequence[RowGroup]) -> AttentionPart:
    rows, keys = torch.cat([group.rows for group in groups]), torch.cat([group.keys for group in groups])
    row_counts, key_counts = [len(group.rows) for group in groups], [len(group.keys) for group in groups]
    q_offsets, k_offsets = (
        torch.tensor([0, *counts]).cumsum(0).to(torch.int32).to(rows.device) for counts in (row_counts, key_counts)
    )
    layout = Layout(q_offsets, k_offsets, max(row_counts), max(key_counts), causal=False, flash=True)
    return AttentionPart(rows, keys, layout)


def _dense_part(group: RowGroup) -> AttentionPart:
    rows, keys = len(group.rows), len(group.keys)
    q_offsets, k_offsets = (torch.tensor([0, n], dtype=torch.int32, device=group.rows.device) for n in (rows, keys))
    bias = None if group.bias is None else group.bias[None, None, None, :]
    return AttentionPart(group.rows, group.keys, Layout(q_offsets, k_offsets, rows, keys, False, False, key_mask=bias))


def attend(
    q: Tensor, k: Tensor, v: Tensor, layout: Layout, scale: float, store: Store | None = None, window: int | None = None
) -> Tensor:
    """q [T, H, D], k and v [T, G, D], G dividing H -> [T, H, D]; `window` limits a causal query to the last keys."""
    if layout.parts:
        out = torch.empty_like(q)
        for part in layout.parts:
            out[part.rows] = attend(q[part.rows], k[part.keys], v[part.keys], part.layout, scale)
        return out
    if store is not None:
        assert layout.slots is not None
        k, v = (kept.index_copy_(0, layout.slots, new.detach()) for kept, new in zip(store, (k, v), strict=True))
    if layout.watch is not None:
        layout.watch.seen.append(watched_weights(q.detach(), k.detach(), layout, scale, window))
    if layout.blocks is not None:
        from maskwise.models.attention.flash import causal_flash

        before = causal_flash(q, k, v, layout.q_offsets, layout.longest_q, scale)
        return merged(*before, *later_in_block(q, k, v, layout.blocks, scale))
    longest = layout.longest_q, layout.longest_k
    if layout.split:
        from maskwise.kernels.split_attention import split_attention

        return split_attention(q, k, v, layout.q_offsets, layout.k_offsets, *longest, scale)
    if layout.flash:
        from maskwise.models.attention.flash import flash

        return flash(q, k, v, layout.q_offsets, layout.k_offsets, longest, layout.causal, scale, window)
    return _padded(q, k, v, layout, scale, window)


def _repeat_heads(x: Tensor, heads: int) -> Tensor:
    """Repeats grouped key-value heads: [T, G, D] -> [T, heads, D]."""
    return x if x.shape[1] == heads else x.repeat_interleave(heads // x.shape[1], dim=1)


def _padded(q: Tensor, k: Tensor, v: Tensor, layout: Layout, scale: float, window: int | None) -> Tensor:
    sequences, heads = len(layout.q_offsets) - 1, q.shape[1]
    # In half precision on CUDA the kernels read grouped heads as they are; the others would form all scores for them.
    grouped = q.is_cuda and q.dtype != torch.float32 and layout.key_mask is None
    if not grouped:
        k, v = _repeat_heads(k, heads), _repeat_heads(v, heads)
    grid_q = _to_grid(q, layout.pad_q, sequences, layout.longest_q)
    grid_k = _to_grid(k, layout.pad_k, sequences, layout.longest_k)
    grid_v = _to_grid(v, layout.pad_k, sequences, layout.longest_k)
    band = None  # a causal query needs no key mask, because padding is on the right
    if layout.causal and window:
        place = torch.arange(layout.longest_k, device=q.device)
        distance = place[:, None] - place[None, :]
        band = (distance >= 0) & (distance < window)  # sliding window
    key_mask = layout.key_mask
    if key_mask is not None and key_mask.is_floating_point():
        key_mask = key_mask.to(q.dtype)  # as SDPA wants it
    if _pays_to_keep_weights(grid_q, grid_k) and not layout.causal and key_mask is None:
        flat_heads = (grid.flatten(0, 1).contiguous() for grid in (grid_q, grid_k, grid_v))
        out = KeptAttention.apply(*flat_heads, scale).unflatten(0, (sequences, heads))
    else:
        mask, plain = (band, band is None) if layout.causal else (key_mask, False)
        out = F.scaled_dot_product_attention(
            grid_q, grid_k, grid_v, attn_mask=mask, is_causal=plain, scale=scale, enable_gqa=grouped
        )
    flat = out.transpose(1, 2).reshape(sequences * layout.longest_q, heads, -1)
    return flat if layout.pad_q is None else flat[layout.pad_q]


def _pays_to_keep_weights(q: Tensor, k: Tensor) -> bool:
    """True if gradients are needed on a CPU: torch's kernel recomputes the weights for them, 35 % more work.
    q [S, H, Q, D], k [S, H, K, D]. At most 64 MiB of weights are kept a layer."""
    weights = q.shape[:-1].numel() * k.shape[-2]
    return q.requires_grad and q.device.type == "cpu" and q.dtype == torch.float32 and weights <= 2**24


def _to_grid(x: Tensor, places: Tensor | None, sequences: int, longest: int) -> Tensor:
    """[T, H, D] -> [S, H, longest, D]."""
    if places is not None:
        x = x.new_zeros(sequences * longest, *x.shape[1:]).index_copy(0, places, x)
    return x.view(sequences, longest, *x.shape[1:]).transpose(1, 2)


@dataclass(frozen=True)
class Reach:
    """Visible keys by position: all of them (block None), or none after the query's own block.
    Blocks have `block` tokens and are counted from position 0; blocks of 1 are causal attention."""

    block: int | None = None

    def end(self, position: int, length: int) -> int:
        """The number of the first `length` positions that a query at this position sees."""
        return length if self.block is None else min(length, (position // self.block + 1) * self.block)


def block_reach(queries: Tensor, keys: Tensor, block: int) -> Tensor:
    """Block-causal mask [..., q, k] from [..., q] and [..., k]: True for keys in the query's block or earlier."""
    return (queries // block)[..., :, None] >= (keys // block)[..., None, :]


def watched_weights(q: Tensor, k: Tensor, layout: Layout, scale: float, window: int | None) -> Tensor:
    """Attention weights of the watched queries, [n, H, longest_k] float32, zero past the sequence's end."""
    assert layout.watch is not None
    queries, heads = layout.watch.queries, q.shape[1]
    owner = torch.searchsorted(layout.q_offsets[1:].contiguous(), queries.to(torch.int32), right=True)
    place = torch.arange(layout.longest_k, device=q.device)
    key_index = layout.k_offsets[:-1].long()[owner][:, None] + place  # [n, longest_k]
    exists = place < layout.k_offsets.diff().long()[owner][:, None]
    keys = _repeat_heads(k, heads)[key_index.clamp(max=len(k) - 1)].float()  # [n, longest_k, H, D]
    scores = torch.einsum("nhd,nlhd->nhl", q[queries].float(), keys) * scale
    if layout.causal:
        distance = (queries - layout.q_offsets[:-1].long()[owner])[:, None] - place
        exists = exists & (distance >= 0)
        if window:
            exists = exists & (distance < window)
    elif layout.key_mask is not None and layout.key_mask.shape[2] > 1:  # who sees whom differs by query
        rows = queries - layout.q_offsets[:-1].long()[owner]
        exists = exists & layout.key_mask.expand(len(layout.q_offsets) - 1, -1, -1, -1)[owner, 0, rows]
    return scores.masked_fill(~exists[:, None, :], float("-inf")).softmax(dim=-1)
