"""LLaDA2.0 and 2.1 (Ant Group): blocks of 32 tokens see themselves and those before; experts in groups, one shared.

Parameter names and arithmetic are those of the published checkpoints (LLaDA2.0-mini, 16B with 1.4B active). The logits
of position i predict position i.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from maskwise.models.attention.ragged import Layout, Store, attend
from maskwise.models.families import layers
from maskwise.models.families.dream import DreamBody, DreamConfig
from maskwise.models.families.experts import Experts, ExpertsBody, ExpertsModel, with_residual
from maskwise.models.families.routing import Router
from maskwise.models.families.shapes import ConfigFields
from maskwise.models.forward import float_product
from maskwise.support.errors import UserError
from maskwise.support.removed import removed

# Fields of the original configuration that its code reads, and the one value of each that is written here.
ONLY: ConfigFields = {"hidden_act": "silu", "moe_router_enable_expert_bias": True, "norm_head": False}
ONLY |= {"norm_softmax": False, "norm_topk_prob": True, "score_function": "sigmoid", "use_bias": False}
ONLY |= {"use_qk_norm": True, "use_qkv_bias": False, "use_rmsnorm": True, "use_sliding_window": False}
ONLY |= {"using_split_qkv_in_self_attention": False}


class LLaDA2Config(DreamConfig):
    model_type = "llada2_moe"
    family = "LLaDA2"
    default_theta = 6e5
    block_field = "block_size"

    vocab_size: int = 157184
    hidden_size: int = 2048
    intermediate_size: int = 5120
    num_hidden_layers: int = 20
    num_attention_heads: int = 16
    num_key_value_heads: Any = 4
    head_dim: Any = 128
    max_position_embeddings: int = 32768
    partial_rotary_factor: float = 0.5
    moe_intermediate_size: int = 512
    num_experts: int = 256
    num_experts_per_tok: int = 8
    num_shared_experts: int = 1
    n_group: int = 8
    topk_group: int = 4
    routed_scaling_factor: float = 2.5
    first_k_dense_replace: int = 1
    block_size: int = 32

    def inverse_frequencies(self) -> tuple[Tensor, float]:
        """Frequencies of partial rotary embedding: only the first part of each head is rotated."""
        turned = int(self.head_dim * self.partial_rotary_factor)
        return layers.default_inverse_frequencies(self.rope_parameters["rope_theta"], turned), 1.0

    def refuse_unsupported(self) -> None:
        if getattr(self, "expert_capacity", None) is not None:  # experts that the tokens of a block choose from
            raise UserError(removed("family", "LLaDA2.2"))
        layers.refuse_other_arithmetic(self, ONLY, self.family)
        if self.rope_parameters["rope_type"] != "default":
            raise UserError("LLaDA2 with scaled rotary positions is not supported: open one of the published shape")
        turned = int(self.head_dim * self.partial_rotary_factor)
        if turned % 2 or not 2 <= turned <= self.head_dim:
            raise UserError(
                f"partial_rotary_factor {self.partial_rotary_factor} turns {turned} of {self.head_dim} numbers a head, "
                "which must be even: download config.json again"
            )
        in_group, kept = self.num_experts // self.n_group, self.topk_group * self.num_experts // self.n_group
        if self.num_experts % self.n_group or in_group < 2 or not self.num_experts_per_tok <= kept <= self.num_experts:
            raise UserError(
                f"{self.num_experts_per_tok} experts a token out of {self.topk_group} of {self.n_group} groups of "
                f"{self.num_experts} experts: download config.json again"
            )


class GroupRouter(Router):
    """Sigmoid scores in float32. A bias takes part in the choice of groups and experts, and not in their shares.
    A group is worth the sum of its two best biased scores; the experts are chosen within the best groups."""

    def __init__(self, config: LLaDA2Config) -> None:
        super().__init__(config.hidden_size, config.num_experts, config.num_experts_per_tok)
        self.groups, self.groups_kept = config.n_group, config.topk_group
        self.scale = config.routed_scaling_factor
        self.expert_bias: Tensor
        self.register_buffer("expert_bias", torch.zeros(config.num_experts))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [T, d] -> shares in float32 and numbers of the chosen experts, [T, k] each."""
        logits = float_product(x, self.weight)
        return self.choose(logits, self.expert_bias, self.groups, self.groups_kept, self.at_once > 1, self.scale)


class SharedExperts(Experts):
    """Routed experts plus shared experts, which process every token."""

    def __init__(self, config: LLaDA2Config) -> None:
        inner = config.moe_intermediate_size
        super().__init__(
            GroupRouter(config), [layers.GatedMLP(config.hidden_size, inner) for _ in range(config.num_experts)]
        )
        self.shared_experts = layers.GatedMLP(config.hidden_size, inner * config.num_shared_experts)

    def forward(self, x: Tensor, *added: Tensor) -> Tensor:
        return super().forward(x, self.shared_experts(x), *added)


class LLaDA2Attention(nn.Module):
    def __init__(self, config: LLaDA2Config) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.counts = [config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads]
        self.query_key_value = nn.Linear(config.hidden_size, sum(self.counts) * self.head_dim, bias=False)
        self.query_layernorm = layers.RMSNorm(self.head_dim, config.rms_norm_eps)
        self.key_layernorm = layers.RMSNorm(self.head_dim, config.rms_norm_eps)
        self.dense = nn.Linear(config.num_attention_heads * self.head_dim, config.hidden_size, bias=False)

    def forward(self, x: Tensor, rotary: layers.Rotary, layout: Layout, store: Store | None) -> Tensor:
        q, k, v = self.query_key_value(x).unflatten(-1, (-1, self.head_dim)).split(self.counts, dim=-2)
        q, k = rotary.turn(self.query_layernorm(q)), rotary.turn(self.key_layernorm(k))
        return self.dense(attend(q, k, v, layout, self.head_dim**-0.5, store).flatten(1))


class LLaDA2Block(GradientCheckpointingLayer):
    def __init__(self, config: LLaDA2Config, dense: bool) -> None:
        super().__init__()
        self.attention = LLaDA2Attention(config)
        self.mlp = layers.GatedMLP(config.hidden_size, config.intermediate_size) if dense else SharedExperts(config)
        self.input_layernorm = layers.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = layers.RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(self, x: Tensor, rotary: layers.Rotary, layout: Layout, store: Store | None) -> Tensor:
        """x [T, d] -> [T, d]."""
        x = x + self.attention(self.input_layernorm(x), rotary, layout, store)
        return with_residual(self.mlp, self.post_attention_layernorm(x), x)


class LLaDA2Body(ExpertsBody):
    """Dream's body with other parameter names; the first layers have no experts."""

    def __init__(self, config: LLaDA2Config) -> None:
        nn.Module.__init__(self)
        self.config = config
        self.frequencies = layers.Frequencies(config.inverse_frequencies)
        self.word_embeddings = layers.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            LLaDA2Block(config, number < config.first_k_dense_replace) for number in range(config.num_hidden_layers)
        )
        self.norm = layers.RMSNorm(config.hidden_size, config.rms_norm_eps)

    def embed(self, ids: Tensor) -> Tensor:
        return self.word_embeddings(ids)


class LLaDA2MoeModelLM(ExpertsModel):
    config_class = LLaDA2Config
    _no_split_modules = ["LLaDA2Block"]  # noqa: RUF012
    _input_embed_layer = "word_embeddings"
    _tied_weights_keys = {"lm_head.weight": "model.word_embeddings.weight"}  # noqa: RUF012

    def make_body(self, config: Any) -> DreamBody:
        return LLaDA2Body(config)


layers.register(LLaDA2Config, LLaDA2MoeModelLM)
