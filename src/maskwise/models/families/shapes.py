"""Targets of LoRA adapters and configurations of published checkpoints, named in the families' values."""

from functools import partial
from typing import Any

ConfigFields = dict[str, Any]  # of a config.json

LLADA_MAPS = r"model\.transformer\.blocks\.\d+\.(?:attn_out|ff_out|ff_proj|k_proj|q_proj|up_proj|v_proj)"
ATTENTION_MAPS = r"model\.layers\.\d+\.self_attn\.(?:k_proj|o_proj|q_proj|v_proj)"
LLAMA_MAPS = r"model\.layers\.\d+\.mlp\.(?:down_proj|gate_proj|up_proj)|" + ATTENTION_MAPS


GATED = r"(?:down_proj|gate_proj|up_proj)"
LLADA2_MAPS = (  # the experts that every token goes through, and not those that few do
    rf"model\.layers\.\d+\.attention\.(?:dense|query_key_value)|model\.layers\.\d+\.mlp\.{GATED}"
    rf"|model\.layers\.\d+\.mlp\.shared_experts\.{GATED}"
)


def sizes(hidden: int, inner: int, layers: int, heads: int, groups: int, **others: Any) -> ConfigFields:
    """Sizes by their names in a config.json. groups: the heads of keys and values."""
    return {
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
    } | others


_LLAMA = partial(sizes, model_type="llama", max_position_embeddings=8192)
LLAMA3_8B = _LLAMA(4096, 14336, 32, 32, 8, vocab_size=128256)
SMOLLM2 = _LLAMA(576, 1536, 30, 9, 3, vocab_size=49152, tie_word_embeddings=True)
QWEN25_7B = sizes(3584, 18944, 28, 28, 4, model_type="qwen2", vocab_size=152064)

LLADA2_FLASH = sizes(4096, 9216, 32, 32, 4, moe_intermediate_size=1024)
SDAR_1_7B = sizes(2048, 6144, 28, 16, 8, tie_word_embeddings=True)
SDAR_4B: ConfigFields = {"hidden_size": 2560, "intermediate_size": 9728}
FAST_1_5B = sizes(1536, 8960, 28, 12, 2, vocab_size=151936, tie_word_embeddings=True)

ENCODER_MAPS = (
    r"\.encoder\.layer\.\d+\.attention\.output\.(?:dense)|{0}\.encoder\.layer\.\d+\.attention\.self\.(?:key|query|value)"
    r"|{0}\.encoder\.layer\.\d+\.intermediate\.(?:dense)|{0}\.encoder\.layer\.\d+\.output\.(?:dense)"
)
BERT_MAPS, ROBERTA_MAPS = (name + ENCODER_MAPS.format(name) for name in ("bert", "roberta"))
MODERNBERT_MAPS = r"model\.layers\.\d+\.attn\.(?:Wo|Wqkv)|model\.layers\.\d+\.mlp\.(?:Wi|Wo)"
DREAMS_OF_7B = (
    *(f"Dream-org/Dream-{kind}-7B" for kind in ("v0-Base", "v0-Instruct", "Coder-v0-Base", "Coder-v0-Instruct")),
    *(f"apple/DiffuCoder-7B-{kind}" for kind in ("Base", "Instruct", "cpGRPO")),
)
BERT_BASE: ConfigFields = {"model_type": "bert", "mask_token_id": 103}
ROBERTA_BASE: ConfigFields = {"model_type": "roberta", "mask_token_id": 50264, "vocab_size": 50265}
ROBERTA_BASE |= {"max_position_embeddings": 514, "type_vocab_size": 1}
MODERNBERT_BASE: ConfigFields = {"model_type": "modernbert", "mask_token_id": 50284}
