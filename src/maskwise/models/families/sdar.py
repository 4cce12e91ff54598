"""SDAR (Cheng et al., arXiv 2510.06303), dense or with experts: Qwen3 in which a token sees its block and those before.

Parameter names and arithmetic are those of the published checkpoints (SDAR-1.7B, -4B, -8B and -30B-A3B, Base and Chat).
The logits of position i predict position i. The blocks have 4 tokens where config.json states no `block_size`.
"""

from typing import Any

from maskwise.models.families.dream import DreamBlock, DreamConfig, DreamModel, NormedAttention
from maskwise.models.families.experts import ExpertsBlock, ExpertsModel, refuse_too_few_experts
from maskwise.models.families.layers import register
from maskwise.support.errors import UserError


class SDARConfig(DreamConfig):
    model_type = "sdar"
    family = "SDAR"
    default_theta = 1e6
    block_field = "block_size"
    only = {"attention_bias": False} | DreamConfig.only

    vocab_size: int = 151936
    hidden_size: int = 4096
    intermediate_size: int = 12288
    num_hidden_layers: int = 36
    num_attention_heads: int = 32
    num_key_value_heads: Any = 8
    head_dim: Any = 128
    max_position_embeddings: int = 32768
    qkv_bias: bool = False
    attention_bias: bool = False
    block_size: int = 4


class SDARMoeConfig(SDARConfig):
    model_type = "sdar_moe"
    only = {"norm_topk_prob": True, "decoder_sparse_step": 1} | SDARConfig.only

    hidden_size: int = 2048
    intermediate_size: int = 6144
    num_hidden_layers: int = 48
    num_key_value_heads: Any = 4
    moe_intermediate_size: int = 768
    num_experts: int = 128
    num_experts_per_tok: int = 8
    norm_topk_prob: bool = True
    decoder_sparse_step: int = 1
    mlp_only_layers: Any = None

    def refuse_unsupported(self) -> None:
        if self.mlp_only_layers:
            raise UserError("SDAR layers without experts are not supported: open one of the published shape")
        refuse_too_few_experts(self)
        super().refuse_unsupported()


class SDARBlock(DreamBlock):
    attention = NormedAttention


class SDARForCausalLM(DreamModel):
    config_class = SDARConfig
    _no_split_modules = ["SDARBlock"]  # noqa: RUF012
    block = SDARBlock


class SDARMoeBlock(ExpertsBlock):
    inner, normalised = "moe_intermediate_size", True


class SDARMoeForCausalLM(ExpertsModel):
    config_class = SDARMoeConfig
    _no_split_modules = ["SDARMoeBlock"]  # noqa: RUF012
    block = SDARMoeBlock


register(SDARConfig, SDARForCausalLM)
register(SDARMoeConfig, SDARMoeForCausalLM)
