"""Small random models for tests: the real classes at toy size, float32, made from a seed."""

import json
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from maskwise.models import (
    DreamConfig,
    DreamModel,
    Fast_dLLM_QwenForCausalLM,
    FastDLLMConfig,
    ILLaDAConfig,
    ILLaDAForCausalLM,
    LLaDA2Config,
    LLaDA2MoeModelLM,
    LLaDAConfig,
    LLaDAModelLM,
    LLaDAMoEConfig,
    LLaDAMoEModelLM,
    SDARConfig,
    SDARForCausalLM,
    SDARMoeConfig,
    SDARMoeForCausalLM,
)
from maskwise.models.checkpoints.opening import as_model
from maskwise.models.model import Model

WIDE = 0.3  # initial spread of the weights: large enough that predictions differ visibly


def llada_net(
    seed: int = 0, vocab: int = 64, width: int = 32, layers: int = 2, window: int = 256, **more
) -> LLaDAModelLM:
    torch.manual_seed(seed)
    settings = {"d_model": width, "n_layers": layers, "n_heads": 4, "n_kv_heads": 2, "mlp_hidden_size": 48,
                "vocab_size": vocab, "max_sequence_length": window, "mask_token_id": vocab - 1, "eos_token_id": 0,
                "init_std": WIDE}  # fmt: skip
    return LLaDAModelLM(LLaDAConfig(**(settings | more))).eval()


def common_settings(vocab: int = 64, width: int = 32, layers: int = 2, window: int = 256, **more) -> dict:
    """By the names that Dream, Qwen2 and Llama share."""
    settings = {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "vocab_size": vocab,
        "max_position_embeddings": window,
        "eos_token_id": 0,
        "initializer_range": WIDE,
    }
    return settings | more


def dream_net(seed: int = 0, vocab: int = 64, **more) -> DreamModel:
    torch.manual_seed(seed)
    return DreamModel(DreamConfig(**common_settings(vocab, **({"mask_token_id": vocab - 1} | more)))).eval()


def illada_net(seed: int = 0, vocab: int = 64, **more) -> ILLaDAForCausalLM:
    torch.manual_seed(seed)
    return ILLaDAForCausalLM(ILLaDAConfig(**common_settings(vocab, **({"mask_token_id": vocab - 1} | more)))).eval()


def llada_moe_net(seed: int = 0, vocab: int = 64, **more) -> LLaDAMoEModelLM:
    torch.manual_seed(seed)
    settings = {"mask_token_id": vocab - 1, "expert_intermediate_size": 24, "num_experts": 6, "num_experts_per_tok": 2}
    return LLaDAMoEModelLM(LLaDAMoEConfig(**common_settings(vocab, **(settings | more)))).eval()


def sdar_net(seed: int = 0, vocab: int = 64, **more) -> SDARForCausalLM:
    torch.manual_seed(seed)
    settings = {"mask_token_id": vocab - 1, "head_dim": 8}
    return SDARForCausalLM(SDARConfig(**common_settings(vocab, **(settings | more)))).eval()


def sdar_moe_net(seed: int = 0, vocab: int = 64, **more) -> SDARMoeForCausalLM:
    torch.manual_seed(seed)
    settings = {
        "mask_token_id": vocab - 1,
        "head_dim": 8,
        "moe_intermediate_size": 24,
        "num_experts": 6,
        "num_experts_per_tok": 2,
    }
    return SDARMoeForCausalLM(SDARMoeConfig(**common_settings(vocab, **(settings | more)))).eval()


def fast_dllm_net(seed: int = 0, vocab: int = 64, **more) -> Fast_dLLM_QwenForCausalLM:
    torch.manual_seed(seed)
    settings = {"mask_token_id": vocab - 1, "bd_size": 8}
    return Fast_dLLM_QwenForCausalLM(FastDLLMConfig(**common_settings(vocab, **(settings | more)))).eval()


def llada2_net(seed: int = 0, vocab: int = 64, **more) -> LLaDA2MoeModelLM:
    """Three layers, the first without experts; 8 experts in 4 groups of which 2 are kept; biases that matter."""
    torch.manual_seed(seed)
    settings = {
        "mask_token_id": vocab - 1,
        "head_dim": 8,
        "moe_intermediate_size": 24,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "n_group": 4,
        "topk_group": 2,
        "block_size": 8,
    }
    net = LLaDA2MoeModelLM(LLaDA2Config(**common_settings(vocab, layers=3, **(settings | more)))).eval()
    for name, buffer in net.named_buffers():
        if name.endswith("expert_bias"):
            buffer.normal_(std=0.3)
    return net


def qwen_net(seed: int = 0, **more) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(Qwen2Config(**common_settings(**more))).eval()


def llama_net(seed: int = 0, **more) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    return LlamaForCausalLM(LlamaConfig(**common_settings(**more))).eval()


def tiny_llada(seed: int = 0, tokenizer=None, **more) -> Model:
    return as_model(llada_net(seed, **more), tokenizer, "tiny random LLaDA")


def tiny_dream(seed: int = 0, tokenizer=None, **more) -> Model:
    return as_model(dream_net(seed, **more), tokenizer, "tiny random Dream")


def tiny_illada(seed: int = 0, tokenizer=None, **more) -> Model:
    return as_model(illada_net(seed, **more), tokenizer, "tiny random iLLaDA")


def tiny_sdar(seed: int = 0, tokenizer=None, **more) -> Model:
    return as_model(sdar_net(seed, **more), tokenizer, "tiny random SDAR")


def tiny_sdar_moe(seed: int = 0, tokenizer=None, **more) -> Model:
    return as_model(sdar_moe_net(seed, **more), tokenizer, "tiny random SDAR with experts")


def tiny_fast_dllm(seed: int = 0, tokenizer=None, **more) -> Model:
    return as_model(fast_dllm_net(seed, **more), tokenizer, "tiny random Fast-dLLM v2")


def tiny_llada2(seed: int = 0, tokenizer=None, **more) -> Model:
    return as_model(llada2_net(seed, **more), tokenizer, "tiny random LLaDA2")


def tiny_llada_moe(seed: int = 0, tokenizer=None, **more) -> Model:
    return as_model(llada_moe_net(seed, **more), tokenizer, "tiny random LLaDA-MoE")


def tiny_ar(seed: int = 0, tokenizer=None, **more) -> Model:
    return as_model(qwen_net(seed, **more), tokenizer, "tiny random Qwen2")


BLOCKWISE = (tiny_sdar, tiny_sdar_moe, tiny_fast_dllm, tiny_llada2)
EVERY_FAMILY = (tiny_llada, tiny_illada, tiny_dream, tiny_llada_moe, tiny_ar, *BLOCKWISE)


def edit_config(folder: Path, **changes) -> None:
    """Changes fields of a saved checkpoint's config.json."""
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
