"""Random networks of every family in the published format: a config.json, and weights drawn by their names.

Only the first writing asks the package for the names and shapes of the weights; they are stored with the values, and
every later network is drawn from them.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import safe_open
from safetensors.torch import save_file
from tokenizers.processors import TemplateProcessing

import maskwise as mw
import maskwise.models

Shapes = Mapping[str, list[int]]

VOCABULARY, WORDS, WINDOW = 64, 2048, 256  # WORDS: of the embedded tokenizer, where a network comes with it
MASK = VOCABULARY - 1
SPREAD = 0.5  # of the weights: large enough that predictions differ visibly
SIZES = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": WINDOW,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "use_cache": True,
}
MASKED = SIZES | {"mask_token_id": MASK}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2}
SDAR = MASKED | {"head_dim": 8, "attention_bias": False, "rope_theta": 1e6, "rms_norm_eps": 1e-6, "block_size": 4}

# The fields of each config.json, as the family's authors publish them, at toy sizes.
NETWORKS: dict[str, dict[str, Any]] = {
    "llada": {  # LLaDA-8B and LLaDA-1.5
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        "auto_map": {"AutoConfig": "configuration_llada.LLaDAConfig", "AutoModel": "modeling_llada.LLaDAModelLM"},
        "activation_type": "silu",
        "alibi": False,
        "attention_layer_norm": False,
        "bias_for_layer_norm": False,
        "block_group_size": 1,
        "block_type": "llama",
        "d_model": 32,
        "embedding_size": VOCABULARY,
        "eos_token_id": 0,
        "include_bias": False,
        "include_qkv_bias": False,
        "init_std": 0.02,
        "input_emb_norm": False,
        "layer_norm_type": "rms",
        "layer_norm_with_affine": True,
        "mask_token_id": MASK,
        "max_sequence_length": WINDOW,
        "mlp_hidden_size": 48,
        "mlp_ratio": 4,
        "multi_query_attention": None,
        "n_heads": 4,
        "n_kv_heads": 2,
        "n_layers": 2,
        "pad_token_id": 0,
        "rms_norm_eps": 1e-5,
        "rope": True,
        "rope_full_precision": True,
        "rope_theta": 500000.0,
        "scale_logits": False,
        "torch_dtype": "bfloat16",
        "vocab_size": VOCABULARY,
        "weight_tying": False,
    },
    "dream": MASKED
    | {
        "architectures": ["DreamModel"],
        "model_type": "Dream",
        "rms_norm_eps": 1e-6,
        "rope_scaling": None,
        "rope_theta": 1e6,
        "sliding_window": None,
        "use_mrope": False,
        "use_sliding_window": False,
    },
    "illada": MASKED
    | {
        "architectures": ["ILLaDAForCausalLM"],
        "model_type": "illada",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
    },
    "llada-moe": MASKED
    | EXPERTS
    | {
        "architectures": ["LLaDAMoEModelLM"],
        "model_type": "lladamoe",
        "attention_bias": False,
        "clip_qkv": None,
        "expert_intermediate_size": 24,
        "moe_layer_freq": [1, 1],
        "moe_router_enable_expert_bias": False,
        "partial_rotary_factor": 1,
        "qk_layernorm": True,
        "rms_norm_eps": 1e-5,
        "rope_theta": 50000,
        "shared_expert_intermediate_size": None,
    },
    "llada2": MASKED  # LLaDA2.0 and 2.1
    | {
        "architectures": ["LLaDA2MoeModelLM"],
        "model_type": "llada2_moe",
        "block_size": 8,
        "first_k_dense_replace": 1,
        "head_dim": 8,
        "moe_intermediate_size": 24,
        "moe_router_enable_expert_bias": True,
        "n_group": 4,
        "norm_topk_prob": True,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "num_hidden_layers": 3,
        "num_shared_experts": 1,
        "partial_rotary_factor": 0.5,
        "rms_norm_eps": 1e-6,
        "rope_theta": 600000,
        "routed_scaling_factor": 2.5,
        "score_function": "sigmoid",
        "topk_group": 2,
        "use_bias": False,
        "use_qk_norm": True,
        "use_qkv_bias": False,
        "use_rmsnorm": True,
    },
    "sdar": SDAR | {"architectures": ["SDARForCausalLM"], "model_type": "sdar"},
    "sdar-moe": SDAR
    | EXPERTS
    | {
        "architectures": ["SDARMoeForCausalLM"],
        "model_type": "sdar_moe",
        "decoder_sparse_step": 1,
        "mlp_only_layers": [],
        "moe_intermediate_size": 24,
        "norm_topk_prob": True,
    },
    "fast-dllm": MASKED
    | {
        "architectures": ["Fast_dLLM_QwenForCausalLM"],
        "model_type": "Fast_dLLM_Qwen",
        "bd_size": 8,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "use_sliding_window": False,
    },
    "qwen2": SIZES
    | {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "use_sliding_window": False,
    },
    "llama": SIZES
    | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "attention_bias": False,
        "rms_norm_eps": 1e-5,
        "rope_scaling": {
            "factor": 8.0,
            "high_freq_factor": 4.0,
            "low_freq_factor": 1.0,
            "original_max_position_embeddings": 32,
            "rope_type": "llama3",
        },
        "rope_theta": 500000.0,
    },
    "qwen3": SIZES
    | {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "head_dim": 8,
        "rms_norm_eps": 1e-6,
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
    },
    "bert": {
        "architectures": ["BertForMaskedLM"],
        "model_type": "bert",
        "hidden_act": "gelu",
        "hidden_size": 32,
        "initializer_range": 0.02,
        "intermediate_size": 48,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": WINDOW,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "pad_token_id": 0,
        "type_vocab_size": 2,
        "vocab_size": WORDS + 4,
    },
}
AUTOREGRESSIVE = ("qwen2", "llama", "qwen3")
BLOCKS = ("llada2", "sdar", "sdar-moe", "fast-dllm")


def published_weights(config: Mapping[str, Any], folder: Path) -> dict[str, list[int]]:
    """The names and shapes of the weights as the present classes save them."""
    name = config["architectures"][0]
    net_class = getattr(transformers if hasattr(transformers, name) else maskwise.models, name)
    net_class(net_class.config_class(**config)).save_pretrained(folder)
    return stored_shapes(folder)


def stored_shapes(folder: Path) -> dict[str, list[int]]:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {name: file.get_slice(name).get_shape() for name in sorted(file.keys())}


def write_checkpoint(folder: Path, config: Mapping[str, Any], shapes: Shapes) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config, indent=2))
    save_file({name: drawn(name, shape) for name, shape in shapes.items()}, folder / "model.safetensors")
    return folder


def drawn(name: str, shape: list[int]) -> torch.Tensor:
    """The weight of this name; uniform numbers, because these are the same on every machine."""
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:6])
    spread = 2 * torch.rand(shape, generator=torch.Generator().manual_seed(seed)) - 1
    is_scale = name.lower().endswith(("norm.weight", "ln_f.weight"))
    return 1 + 0.3 * spread if is_scale else SPREAD * spread


def write_tokenizer(folder: Path, framed: bool = False) -> None:
    """The embedded tokenizer; framed: one that puts [CLS] before every text and [SEP] after it."""
    tokenizer = mw.open("tiny-llada", device="cpu").tokenizer
    if framed:
        tokenizer.add_special_tokens({"cls_token": "[CLS]", "sep_token": "[SEP]"})
        ends = [("[CLS]", tokenizer.cls_token_id), ("[SEP]", tokenizer.sep_token_id)]
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", special_tokens=ends)
    tokenizer.save_pretrained(folder)
