"""Soft masks: a mask shown as a mixture of its own embedding and those of the tokens that were predicted for it.

Hersche et al., Soft-Masked Diffusion Language Models, arXiv 2510.17206.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from maskwise.models.forward import float_product

MIXED_TOKENS = 3
ROWS_AT_ONCE = 1024


class SoftShape(NamedTuple):
    """The predicted tokens' share of the mixture: scale * sigmoid(steepness * (-H - offset)), H in nats."""

    scale: float = 0.5
    steepness: float = 2.0
    offset: float = -1.0


def soft_share(entropy: Tensor, shape: SoftShape) -> Tensor:
    """Of predictions with these entropies."""
    return shape.scale * torch.sigmoid(shape.steepness * (-entropy - shape.offset))


def predicted_tokens(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest tokens and their probabilities among themselves, both [.., k]."""
    found = logits.softmax(dim=-1).topk(min(MIXED_TOKENS, logits.shape[-1]), dim=-1)
    return found.indices, found.values / found.values.sum(dim=-1, keepdim=True)


@torch.no_grad()
def likeliest(hidden: Tensor, head_weight: Tensor, mask_id: int, shape: SoftShape) -> tuple[Tensor, Tensor]:
    """Of hidden rows [n, d] the tokens of their mixtures and each one's share, both [n, k]; logits in chunks."""
    parts = []
    for rows in hidden.split(ROWS_AT_ONCE):
        with torch.autocast(rows.device.type, enabled=False):
            logits = float_product(rows, head_weight)
        logits[:, mask_id] = -torch.inf
        tokens, among = predicted_tokens(logits)
        log_p = logits.log_softmax(dim=-1)
        entropy = -torch.where(log_p > -torch.inf, log_p.exp() * log_p, 0.0).sum(dim=-1)
        parts.append((tokens, soft_share(entropy, shape)[:, None] * among))
    return torch.cat([tokens for tokens, _ in parts]), torch.cat([shares for _, shares in parts])
