"""Attention layouts of a batch: the kernel, the padding and the mask, chosen from lengths, cache, dtype and device."""

from dataclasses import replace

import torch
from torch import Tensor

from maskwise.kernels import gate
from maskwise.models.attention.block_attention import block_places
from maskwise.models.attention.ragged import KeyValues, Layout, block_reach, grid_places
from maskwise.models.batch import Batch

FEW_SEQUENCES = 4  # the heads of more of them fill a card: on an H200 with 8 torch's own kernel takes .74 of ours' time


def layout_of(
    batch: Batch,
    cache: KeyValues | None,
    block: int | None,
    causal: bool,
    half: bool,
    weights_asked: bool,
) -> Layout:
    """The attention layout of a batch.

    block: size of the blocks of block-causal attention. half: on CUDA in half precision, for which there are kernels
    for ragged batches. weights_asked: the attention weights of this pass are read.
    """
    k_offsets, longest_k = (batch.offsets, batch.longest) if cache is None else (cache.offsets, cache.longest)
    k_total = batch.tokens if cache is None else cache.total
    sequences = len(batch.offsets) - 1
    # Equal lengths are a dense grid already, and SDPA takes it as it is.
    q_even, k_even = batch.tokens == sequences * batch.longest, k_total == sequences * longest_k
    tokenwise = block == 1 and cache is None  # plain causal attention, which the kernels know
    flash = half and not (q_even and k_even) and (block is None or tokenwise)
    first = torch.zeros_like(batch.starts[:1]) if cache is None and not batch.placed else batch.starts
    blocks = None
    # Gradients do not flow through the sums between which the two parts of this attention are weighted.
    in_parts = half and cache is None and not (weights_asked or torch.is_grad_enabled())
    if block is not None and not tokenwise and in_parts:
        blocks = block_places(batch.offsets, first.expand(sequences), block, batch.tokens)
        flash = True
    split = block is None and batch.longest <= gate.SMALL_BATCH and sequences <= FEW_SEQUENCES and half
    split = split and cache is not None and _can_split(cache.layers[0][0])
    slots = None
    if cache is not None:
        shift = cache.offsets[:-1] + batch.starts - batch.offsets[:-1]
        slots = torch.arange(batch.tokens, device=shift.device) + shift[batch.owner]
    sizes, kinds = (batch.offsets, k_offsets, batch.longest, longest_k), (causal or tokenwise, flash and not split)
    layout = Layout(*sizes, *kinds, cache=cache, slots=slots, blocks=blocks, split=split)
    if flash or split:
        return layout
    place = torch.arange(longest_k, device=k_offsets.device)
    seen = None if k_even else (place < k_offsets.diff()[:, None])[:, None, None, :]
    if block is not None and not tokenwise:  # made once, for all layers
        keys = place if cache is not None else first[:, None] + place
        queries = first[:, None] + torch.arange(batch.longest, device=place.device)
        reach = block_reach(queries, keys, block)[:, None]
        seen = reach if seen is None else seen & reach
    return replace(
        layout,
        pad_q=None if q_even else grid_places(batch.offsets, batch.longest, batch.tokens),
        pad_k=None if k_even else grid_places(k_offsets, longest_k, k_total),
        key_mask=seen,
    )


def _can_split(keys: Tensor) -> bool:
    """True if `split_attention` may be used over a cache whose layers hold keys [tokens, heads, width] like these."""
    width = keys.shape[2]
    # It has no backward pass, and its tiles are powers of two.
    fits = keys.is_cuda and keys.dtype in gate.HALF and width >= 16 and not width & (width - 1)
    fits = fits and not torch.is_grad_enabled()
    return fits and gate.kernel("split_attention", keys.device, keys.dtype, width) is not None
