"""LLaDA-MoE (Zhu et al., arXiv 2509.24389): Dream's blocks with experts for the MLP and normed queries and keys.

Parameter names and arithmetic are those of the published checkpoints (LLaDA-MoE-7B-A1B Base and Instruct). Unlike
Dream's, its logits at position i predict position i.
"""

from typing import Any

from maskwise.models.families.dream import DreamConfig
from maskwise.models.families.experts import ExpertsBlock, ExpertsModel, refuse_too_few_experts
from maskwise.models.families.layers import register
from maskwise.support.errors import UserError


class LLaDAMoEConfig(DreamConfig):
    model_type = "lladamoe"
    family = "LLaDA-MoE"
    default_theta = 5e4
    only = {
        "attention_bias": False,
        "clip_qkv": None,
        "moe_router_enable_expert_bias": False,
        "partial_rotary_factor": 1,
        "qk_layernorm": True,
        "shared_expert_intermediate_size": None,
    } | DreamConfig.only

    vocab_size: int = 157184
    hidden_size: int = 2048
    num_hidden_layers: int = 16
    num_attention_heads: int = 16
    max_position_embeddings: int = 8192
    rms_norm_eps: float = 1e-5
    qkv_bias: bool = False
    qk_layernorm: bool = True
    expert_intermediate_size: int = 1024
    num_experts: int = 64
    num_experts_per_tok: int = 8
    moe_layer_freq: Any = None  # 1 for each layer that has experts

    def refuse_unsupported(self) -> None:
        if any(kind != 1 for kind in self.moe_layer_freq or []):
            raise UserError("LLaDA-MoE layers without experts are not supported: open one of the published shape")
        refuse_too_few_experts(self)
        super().refuse_unsupported()


class LLaDAMoEBlock(ExpertsBlock):
    inner, normalised = "expert_intermediate_size", False


class LLaDAMoEModelLM(ExpertsModel):
    config_class = LLaDAMoEConfig
    _no_split_modules = ["LLaDAMoEBlock"]  # noqa: RUF012
    block = LLaDAMoEBlock


register(LLaDAMoEConfig, LLaDAMoEModelLM)
