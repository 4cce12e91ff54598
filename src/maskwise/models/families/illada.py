"""iLLaDA (Nie et al., arXiv 2606.25331): LLaDA again, with grouped keys and values and a head tied to the embedding.

Parameter names are Llama's, not LLaDA's, as in the published checkpoints (iLLaDA-8B Base and Instruct). Every token
sees every other, and the logits of position i predict position i. Neither config.json nor the tokenizer names the mask,
which is token 5. The base of the rotary positions and the norms' epsilon stand in config.json; the defaults here are
LLaDA's.
"""

from typing import Any

from maskwise.models.families.dream import DreamConfig, DreamModel
from maskwise.models.families.layers import register


class ILLaDAConfig(DreamConfig):
    model_type = "illada"
    family = "iLLaDA"
    default_theta = 5e5
    only = {"attention_bias": False, "mlp_bias": False, "layer_norm_eps": None} | DreamConfig.only

    vocab_size: int = 155136
    hidden_size: int = 4096
    intermediate_size: int = 14336
    num_hidden_layers: int = 32
    num_attention_heads: int = 32
    num_key_value_heads: Any = 8
    max_position_embeddings: int = 8192
    rms_norm_eps: float = 1e-5
    qkv_bias: bool = False
    tie_word_embeddings: bool = True


class ILLaDAForCausalLM(DreamModel):
    config_class = ILLaDAConfig


register(ILLaDAConfig, ILLaDAForCausalLM)
