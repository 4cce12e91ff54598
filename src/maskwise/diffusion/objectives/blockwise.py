"""Blockwise training: a clean prefix, one partly masked block, masks after it.

A block diffusion model sees nothing after a block, so that the masks after it are left out there: that is the exact
NELBO of such a model (Arriola et al., Block Diffusion, arXiv 2503.09573).
"""

from typing import TYPE_CHECKING

from maskwise.diffusion.noised import Noised
from maskwise.diffusion.objective import Noising, Objective

if TYPE_CHECKING:
    from torch import Generator, Tensor


def blockwise(
    ids: "Tensor",
    mask_id: int,
    block: int,
    generator: "Generator",
    start: int = 0,
    which: int | None = None,
    places: "Tensor | None" = None,
    weighted: bool = True,
) -> Noised:
    """One draw of the exact blockwise NELBO of ids[start:], cut into blocks of `block` tokens (the last may be short).

    A block b is drawn uniformly (times their number K), l ~ U{1..B} of its tokens are masked, all later blocks are
    masked, and the loss falls on b alone with weight K * B / l. `which` selects the block instead. `places` and
    `weighted` are those of `nelbo`; blocks are cut from the places.
    """
    import torch

    places = torch.arange(start, len(ids)) if places is None else places
    count = -(-len(places) // block)
    chosen = int(torch.randint(count, (), generator=generator)) if which is None else which
    active, later = places[chosen * block : (chosen + 1) * block], places[(chosen + 1) * block :]
    masked, weight = _mask_block(len(active), generator)
    rows = active[masked]
    noised = ids.clone()
    noised[rows] = mask_id
    noised[later] = mask_id
    return Noised(noised, rows, ids[rows], torch.full((len(rows),), count * weight if weighted else 1.0))


def block_diffusion(
    ids: "Tensor",
    mask_id: int,
    block: int,
    generator: "Generator",
    places: "Tensor | None" = None,
    weighted: bool = True,
) -> Noised:
    """One draw of the exact NELBO of a model whose tokens see no block after their own, counted from position 0.

    Of the K blocks that hold places, one is drawn, l ~ U{1..n} of its n places are masked, and the loss has weight
    K * n / l. Earlier blocks are clean, and later ones are left out, since no token sees them. `places` and `weighted`
    are those of `nelbo`.
    """
    import torch

    places = torch.arange(len(ids)) if places is None else places
    owner = places // block
    blocks = owner.unique()
    chosen = blocks[torch.randint(len(blocks), (), generator=generator)]
    active = places[owner == chosen]
    masked, weight = _mask_block(len(active), generator)
    rows = active[masked]
    noised = ids[: (int(chosen) + 1) * block].clone()
    noised[rows] = mask_id
    return Noised(noised, rows, ids[rows], torch.full((len(rows),), len(blocks) * weight if weighted else 1.0))


def _mask_block(size: int, generator: "Generator") -> "tuple[Tensor, float]":
    """Places to mask in a block of `size` tokens, and the weight of their cross-entropies."""
    import torch

    amount = int(torch.randint(1, size + 1, (), generator=generator))
    return torch.randperm(size, generator=generator)[:amount], size / amount


def noise_one_block(ids: "Tensor", places: "Tensor | None", noising: Noising) -> Noised:
    """`blockwise` with the blocks of the run, or `block_diffusion` with those of a block diffusion model."""
    mask_id, generator, weighted = noising.mask_id, noising.generator, noising.settings.weighted
    if noising.model_block is not None:
        return block_diffusion(ids, mask_id, noising.model_block, generator, places, weighted)
    assert noising.settings.block is not None
    return blockwise(ids, mask_id, noising.settings.block, generator, places=places, weighted=weighted)


BLOCKWISE = Objective(
    name="blockwise",
    title="a clean prefix, one partly masked block, masks after it",
    noise=noise_one_block,
    # The paper names the strategy; the objective is our reading of it.
    paper="Sun, Wen and Wang, Why mask diffusion does not work, arXiv 2510.03289",
    takes=("block",),
    block_models=True,
)
