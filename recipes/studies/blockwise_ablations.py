"""Ablations of blockwise training, none of them the exact NELBO that `maskwise.diffusion.blockwise` draws.

    suffix            masks the last l tokens of the block instead of l random ones
    drop-later        leaves the later blocks out instead of masking them
    forced, clipped   draw a Bernoulli rate u instead of l, with weight 1/u, and mask one token where none was drawn;
                      the second keeps u >= 1/B

`last_to_first` is the curriculum that trains the last block first: pass its block as `which`.
"""

from typing import Literal

import torch
from torch import Tensor

from maskwise.diffusion import Noised

BlockAblation = Literal["suffix", "drop-later", "forced", "clipped"]


def ablated_blockwise(
    ids: Tensor, mask_id: int, block: int, generator: torch.Generator, ablation: BlockAblation, which: int | None = None
) -> Noised:
    """One draw of ids [n], cut into blocks of `block` tokens (the last may be short); `which` selects the block."""
    count = -(-len(ids) // block)
    chosen = int(torch.randint(count, (), generator=generator)) if which is None else which
    first, after = chosen * block, min((chosen + 1) * block, len(ids))
    masked, weight = _mask_block(after - first, generator, ablation)
    rows = first + masked
    noised = ids.clone()
    noised[rows] = mask_id
    noised[after:] = mask_id
    if ablation == "drop-later":
        noised = noised[:after]
    return Noised(noised, rows, ids[rows], torch.full((len(rows),), count * weight))


def _mask_block(size: int, generator: torch.Generator, ablation: BlockAblation) -> tuple[Tensor, float]:
    """Places to mask in a block of `size` tokens, and the weight of their cross-entropies."""
    if ablation in ("forced", "clipped"):
        rate = 1 - float(torch.rand((), generator=generator, dtype=torch.float64))
        rate = max(rate, 1 / size) if ablation == "clipped" else rate
        masked = (torch.rand(size, generator=generator) < rate).nonzero()[:, 0]
        if len(masked) == 0:
            masked = torch.randint(size, (1,), generator=generator)
        return masked, 1 / rate
    amount = int(torch.randint(1, size + 1, (), generator=generator))
    if ablation == "suffix":
        return torch.arange(size - amount, size), size / amount
    return torch.randperm(size, generator=generator)[:amount], size / amount


def last_to_first(progress: float, count: int) -> int:
    """The curriculum over blocks: which of `count` blocks to train at `progress` in [0, 1), the last one first."""
    return count - 1 - int(progress * count)
