"""Targets of LoRA adapters and configurations of published checkpoints, named in the families' values."""

from typing import Any

ConfigFields = dict[str, Any]  # of a config.json

LLADA_MAPS = r"model\.transformer\.blocks\.\d+\.(?:attn_out|ff_out|ff_proj|k_proj|q_proj|up_proj|v_proj)"
ATTENTION_MAPS = r"model\.layers\.\d+\.self_attn\.(?:k_proj|o_proj|q_proj|v_proj)"
LLAMA_MAPS = r"model\.layers\.\d+\.mlp\.(?:down_proj|gate_proj|up_proj)|" + ATTENTION_MAPS

DECODER_MAPS = ATTENTION_MAPS.replace("model", r"model\.decoder")
NEMOTRON_MAPS = LLAMA_MAPS.replace("model", "encoder")

GATED = r"(?:down_proj|gate_proj|up_proj)"
LLADA2_MAPS = (  # the experts that every token goes through, and not those that few do
    r"model\.layers\.\d+\.attention\.(?:dense|query_key_value)|model\.layers\.\d+\.mlp\."
    + GATED
    + r"|model\.layers\.\d+\.mlp\.shared_experts\."
    + GATED
)

DIFFUSION_GEMMA_26B: ConfigFields = {
    "text_config": {
        "hidden_size": 2816,
        "intermediate_size": 2112,
        "num_hidden_layers": 30,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "num_global_key_value_heads": 2,
        "num_experts": 128,
        "top_k_experts": 8,
        "moe_intermediate_size": 704,
        "sliding_window": 1024,
        "max_position_embeddings": 262144,
    },
    "vision_config": {
        "hidden_size": 1152,
        "intermediate_size": 4304,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "head_dim": 72,
        "standardize": True,
    },
}
LLAMA3_8B: ConfigFields = {
    "model_type": "llama",
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}
SMOLLM2: ConfigFields = {
    "model_type": "llama",
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "tie_word_embeddings": True,
}
QWEN25_7B: ConfigFields = {
    "model_type": "qwen2",
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
}

LLADA22: ConfigFields = {
    "max_position_embeddings": 131072,
    "rope_theta": 3e6,
    "block_size": 32,
    "expert_capacity": 48,
    "delete_token_id": 156930,
    "split_token_id": 156931,
}
LLADA2_FLASH: ConfigFields = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 9216,
    "moe_intermediate_size": 1024,
}
SDAR_1_7B: ConfigFields = {
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "tie_word_embeddings": True,
}
SDAR_4B: ConfigFields = {"hidden_size": 2560, "intermediate_size": 9728}
FAST_1_5B: ConfigFields = {
    "vocab_size": 151936,
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}

ENCODER_MAPS = (
    r"\.encoder\.layer\.\d+\.attention\.output\.(?:dense)|{0}\.encoder\.layer\.\d+\.attention\.self\.(?:key|query|value)"
    r"|{0}\.encoder\.layer\.\d+\.intermediate\.(?:dense)|{0}\.encoder\.layer\.\d+\.output\.(?:dense)"
)
BERT_MAPS, ROBERTA_MAPS = (name + ENCODER_MAPS.format(name) for name in ("bert", "roberta"))
MODERNBERT_MAPS = r"model\.layers\.\d+\.attn\.(?:Wo|Wqkv)|model\.layers\.\d+\.mlp\.(?:Wi|Wo)"
BERT_BASE: ConfigFields = {"model_type": "bert", "mask_token_id": 103}
ROBERTA_BASE: ConfigFields = {
    "model_type": "roberta",
    "mask_token_id": 50264,
    "vocab_size": 50265,
    "max_position_embeddings": 514,
    "type_vocab_size": 1,
}
MODERNBERT_BASE: ConfigFields = {"model_type": "modernbert", "mask_token_id": 50284}

NEMOTRON_3B: ConfigFields = {"hidden_size": 3072, "intermediate_size": 9216, "num_hidden_layers": 26}
