"""A random small DiffusionGemma of transformers' own class, with tiny-llada's tokenizer."""

import torch
from transformers import PreTrainedModel
from transformers.models.diffusion_gemma import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

from helpers.masked_lms import framing_tokenizer

TEXT = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "global_head_dim": 16,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 16,
    "sliding_window": 16,
    "layer_types": ["sliding_attention", "full_attention"],
    "max_position_embeddings": 2048,
}
VISION = {
    "model_type": "gemma4_vision",
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "position_embedding_size": 16,
}


def diffusion_gemma_net(seed: int = 0) -> PreTrainedModel:
    """All weights are drawn; those that the encoder shares with the decoder stay shared."""
    text = TEXT | {"vocab_size": len(framing_tokenizer())}
    net = DiffusionGemmaForBlockDiffusion(
        DiffusionGemmaConfig(text_config=text, vision_config=VISION, canvas_length=8)
    ).eval()
    net.generation_config.max_denoising_steps = 4
    draw = torch.Generator().manual_seed(seed)
    for parameter in net.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=draw) * (0.2 if parameter.dim() > 1 else 0.5))
    return net


def save_diffusion_gemma(folder):
    diffusion_gemma_net().save_pretrained(folder)
    tokenizer = framing_tokenizer()
    tokenizer.backend_tokenizer.post_processor = None
    tokenizer.save_pretrained(folder)
    return folder
