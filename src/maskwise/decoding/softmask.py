"""Soft masking: an open mask is shown as a mixture of its own embedding and those of the likeliest tokens.

Hersche et al., Soft-Masked Diffusion Language Models, arXiv 2510.17206.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from maskwise.decoding.sampling import entropy
from maskwise.diffusion.objectives.soft_mask import SoftMask, predicted_tokens, soft_share
from maskwise.models.model import Model


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
        tokens, among = predicted_tokens(logits)
        predicted = (among[..., None] * model.embed(tokens).float()).sum(dim=-2)
        assert model.mask_id is not None
        mask = model.embed(torch.full_like(places, model.mask_id)).float()
        weight = soft_share(entropy(logits), soft)[..., None]
        self.embeds[places] = ((1 - weight) * mask + weight * predicted).to(self.embeds.dtype)
        self.ready[places] = True
