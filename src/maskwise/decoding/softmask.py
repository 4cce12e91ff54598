"""Soft masking: a mask that is still open is shown as a mixture of its own embedding and the likeliest tokens' ones."""

from dataclasses import dataclass

import torch
from torch import Tensor

from maskwise.decoding.sampling import entropy
from maskwise.models.base import Model

MIXED_TOKENS = 3


@dataclass(frozen=True)
class SoftMask:
    """The prediction's share of the mixture is scale * sigmoid(steepness * (-H - offset)); the rest is the mask's.

    H is the entropy (nats) of the row's prediction in the step before.
    """

    scale: float = 0.5
    steepness: float = 2.0
    offset: float = -1.0

    def share(self, logits: Tensor) -> Tensor:
        """[.., V] -> [..]"""
        return self.scale * torch.sigmoid(self.steepness * (-entropy(logits) - self.offset))


@dataclass(frozen=True)
class SoftSheet:
    """The mixtures, one for each place of a canvas sheet, changed in place."""

    embeds: Tensor  # [T+1, d]
    ready: Tensor  # [T+1] bool

    @staticmethod
    def blank(model: Model, places: int) -> "SoftSheet":
        width = model.head_weight.shape[1]
        embeds = torch.zeros(places, width, dtype=model.dtype, device=model.device)
        return SoftSheet(embeds, torch.zeros(places, dtype=torch.bool, device=model.device))

    def show(self, model: Model, ids: Tensor, index: Tensor) -> Tensor:
        """Embeddings of the tokens at `index` [T], mixtures where a mask already has one. -> [T, d]."""
        mixed = self.ready[index] & (ids == model.mask_id)
        return torch.where(mixed[:, None], self.embeds[index], model.embed(ids))

    def mix(self, model: Model, soft: SoftMask, logits: Tensor, places: Tensor) -> None:
        """Takes in the predictions of these places. logits [S, W, V], places [S, W]."""
        likeliest = logits.softmax(dim=-1).topk(min(MIXED_TOKENS, logits.shape[-1]), dim=-1)
        weights = likeliest.values / likeliest.values.sum(dim=-1, keepdim=True)
        predicted = (weights[..., None] * model.embed(likeliest.indices).float()).sum(dim=-2)
        assert model.mask_id is not None
        mask = model.embed(torch.full_like(places, model.mask_id)).float()
        share = soft.share(logits)[..., None]
        self.embeds[places] = ((1 - share) * mask + share * predicted).to(self.embeds.dtype)
        self.ready[places] = True
