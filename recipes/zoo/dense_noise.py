"""Noise on a dense grid of rows, drawn on the device: for training loops that must not synchronise with the host.

Each function takes clean ids [B, L] and gives noised ids and weights, both [B, L], weights 0 where no loss falls.
The weighted sum of cross-entropies has the objective's nats per token as its expectation: the weights of `nelbo_grid`
and `blockwise_grid` sum to 1 on average, as `nelbo` and `blockwise` of each row over all B * L tokens.
"""

import torch
from torch import Tensor


def stratified(rows: int, draws: torch.Generator, device: torch.device) -> Tensor:
    """One draw from each of `rows` equal parts of 0..1, in random order: [rows, 1], each uniform in 0..1."""
    order = torch.randperm(rows, generator=draws, device=device)
    return ((order + torch.rand(rows, generator=draws, device=device)) / rows)[:, None]


def nelbo_grid(ids: Tensor, mask_id: int, draws: torch.Generator, least: float = 1e-3) -> tuple[Tensor, Tensor]:
    """The NELBO under the linear schedule, LLaDA's objective: t from least..1, stratified over rows; weight 1/t."""
    t = least + (1 - least) * stratified(len(ids), draws, ids.device)
    masked = torch.rand(ids.shape, generator=draws, device=ids.device) < t
    return torch.where(masked, mask_id, ids), masked / t / ids.numel()


def blockwise_grid(
    ids: Tensor, mask_id: int, block: int, draws: torch.Generator, in_order: bool = False
) -> tuple[Tensor, Tensor]:
    """The blockwise NELBO: a clean prefix, one block with l of its tokens masked, masks after it; weight K B / l.

    `block` divides L. Loss falls on the block alone. The l tokens are random, or the block's last ones (`in_order`:
    as where tokens are unmasked from left to right).
    """
    rows, length = ids.shape
    count = length // block
    if count * block != length:
        raise ValueError(f"rows of {length} tokens are no whole number of blocks of {block}")
    device = ids.device
    chosen = (stratified(rows, draws, device) * count).long().clamp(max=count - 1)  # [B, 1]
    amount = torch.randint(1, block + 1, (rows, 1), generator=draws, device=device)
    number = torch.arange(length, device=device) // block  # [L]
    inside, later = number == chosen, number > chosen
    if in_order:
        masked = inside & (torch.arange(length, device=device) % block >= block - amount)
    else:  # the l smallest of a block's own random numbers
        chance = torch.rand(rows, length, generator=draws, device=device).masked_fill(~inside, 2.0)
        masked = inside & (chance.argsort(dim=1).argsort(dim=1) < amount)
    weights = masked * (count * block / amount) / ids.numel()
    return torch.where(masked | later, mask_id, ids), weights
