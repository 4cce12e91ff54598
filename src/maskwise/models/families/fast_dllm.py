"""Fast-dLLM v2 (Wu et al., arXiv 2509.26328): Qwen2.5 whose tokens see their own block of 32 and those before.

Parameter names and arithmetic are Qwen2's, as in the published checkpoints (1.5B and 7B); the logits of position i come
from hidden state i - 1.
"""

from maskwise.models.families.dream import DreamConfig, DreamModel
from maskwise.models.families.layers import register


class FastDLLMConfig(DreamConfig):
    model_type = "Fast_dLLM_Qwen"
    family = "Fast-dLLM v2"
    block_field = "bd_size"

    max_position_embeddings: int = 32768
    bd_size: int = 32


class Fast_dLLM_QwenForCausalLM(DreamModel):  # config.json names it so
    config_class = FastDLLMConfig


register(FastDLLMConfig, Fast_dLLM_QwenForCausalLM)
