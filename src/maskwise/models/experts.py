"""Mixtures of experts in the place of an MLP: a router chooses a few for each token and weighs what they say."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from maskwise.models.attention import Layout, Store
from maskwise.models.dream import DreamModel, NormedAttention
from maskwise.models.layers import GatedMLP, RMSNorm, Rotary


class Router(nn.Module):
    """The experts of largest softmax probability. Not a linear map by its class: adapters are put on those.

    Published names: `weight` [experts, width].
    """

    def __init__(self, width: int, experts: int, at_once: int, normalised: bool = False) -> None:
        super().__init__()
        self.at_once, self.normalised = at_once, normalised
        self.weight = nn.Parameter(torch.empty(experts, width))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, d] -> the shares of the chosen experts in x's type, and their numbers, [T, k] each."""
        chance, chosen = F.linear(x, self.weight).float().softmax(dim=-1).topk(self.at_once)
        if self.normalised:
            chance = chance / chance.sum(dim=-1, keepdim=True)
        return chance.to(x.dtype), chosen


class Experts(nn.Module):
    """Each token goes through the experts its router chose; their outputs are added in the precision of the shares."""

    def __init__(self, gate: nn.Module, experts: Sequence[nn.Module]) -> None:
        super().__init__()
        self.gate = gate
        self.experts = nn.ModuleList(experts)

    def forward(self, x: Tensor) -> Tensor:
        """x [T, d] -> [T, d]. Tokens are sorted by expert, so that each expert is one product over its own."""
        share, chosen = self.gate(x)  # [T, k] each
        order = chosen.flatten().argsort(stable=True)
        sizes = chosen.flatten().bincount(minlength=len(self.experts)).tolist()  # the host waits here, once a layer
        parts = x[order // chosen.shape[1]].split(sizes)
        # Experts nobody chose are asked about nothing: their gradient is zero, and every process has all of them.
        done = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        apart = done[order.argsort()].unflatten(0, chosen.shape)  # [T, k, d], as they were chosen
        return (apart.to(share.dtype) * share[..., None]).sum(dim=1).to(x.dtype)


class ExpertsBlock(GradientCheckpointingLayer):
    """Dream's block with normed queries and keys, and experts of so many inner numbers for the MLP."""

    def __init__(self, config: Any, inner: int, normalised: bool) -> None:
        super().__init__()
        self.self_attn = NormedAttention(config)
        gate = Router(config.hidden_size, config.num_experts, config.num_experts_per_tok, normalised)
        self.mlp = Experts(gate, [GatedMLP(config.hidden_size, inner) for _ in range(config.num_experts)])
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, rotary: Rotary, layout: Layout, store: Store | None) -> Tensor:
        """x [T, d] -> [T, d]."""
        x = x + self.self_attn(self.input_layernorm(x), rotary, layout, store)
        return x + self.mlp(self.post_attention_layernorm(x))


class ExpertsModel(DreamModel):
    """Random weights for the routers too."""

    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Router):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
