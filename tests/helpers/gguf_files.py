"""Small GGUF files for tests, written by the format's description (github.com/ggml-org/ggml, docs/gguf.md)."""

import struct
from pathlib import Path

import numpy as np
from tokenizers import pre_tokenizers

FORMATS = {"F32": 0, "Q4_1": 3, "Q8_0": 8}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<spare_{n}>" for n in range(3, 17))]
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
MERGES = ["Ġ t", "h e", "Ġt he", "1 2"]


class Typed:
    """A value with the number of its type in the file."""

    def __init__(self, kind: int, code: str, value) -> None:
        self.kind, self.code, self.value = kind, code, value


def u32(value: int) -> Typed:
    return Typed(4, "I", value)


def f32(value: float) -> Typed:
    return Typed(6, "f", value)


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def written(value) -> bytes:
    """The type's number and the value."""
    if isinstance(value, str):
        return struct.pack("<I", 8) + text(value)
    if isinstance(value, list) and isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
    if isinstance(value, list):
        return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
    return struct.pack(f"<I{value.code}", value.kind, value.value)


def blocks(values: np.ndarray, form: str) -> tuple[bytes, np.ndarray]:
    """The bytes of a tensor and the numbers that they stand for, block by block and number by number."""
    if form == "F32":
        return values.astype("<f4").tobytes(), values.astype(np.float32)
    data, meant = b"", []
    for block in values.astype(np.float64).reshape(-1, 32):
        if form == "Q8_0":
            scale = np.float16(max(abs(block)) / 127 or 1)
            whole = np.round(block / float(scale)).clip(-127, 127).astype(np.int8)
            data += scale.tobytes() + whole.tobytes()
            meant += [np.float32(scale) * np.float32(number) for number in whole]
        else:
            scale, least = np.float16((block.max() - block.min()) / 15 or 1), np.float16(block.min())
            whole = np.round((block - float(least)) / float(scale)).clip(0, 15).astype(np.uint8)
            data += (
                scale.tobytes() + least.tobytes() + bytes(int(whole[n]) | int(whole[n + 16]) << 4 for n in range(16))
            )
            meant += [np.float32(scale) * np.float32(number) + np.float32(least) for number in whole]
    return data, np.array(meant, np.float32).reshape(values.shape)


def write_gguf(path: Path, fields: dict, tensors: dict[str, tuple[np.ndarray, str]]) -> dict[str, np.ndarray]:
    """Writes the file; returns the numbers that its tensors stand for."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(fields))
    for name, value in fields.items():
        head += text(name) + written(value)
    body, meant = b"", {}
    for name, (values, form) in tensors.items():
        data, meant[name] = blocks(values, form)
        head += text(name) + struct.pack(f"<I{values.ndim}Q", values.ndim, *values.shape[::-1])
        head += struct.pack("<IQ", FORMATS[form], len(body))
        body += data + bytes(-len(data) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + body)
    return meant


def llama_fields(net, tokens: list[str]) -> dict:
    config = net.config
    return {
        "general.architecture": "llama",
        "llama.block_count": u32(config.num_hidden_layers),
        "llama.context_length": u32(config.max_position_embeddings),
        "llama.embedding_length": u32(config.hidden_size),
        "llama.feed_forward_length": u32(config.intermediate_size),
        "llama.attention.head_count": u32(config.num_attention_heads),
        "llama.attention.head_count_kv": u32(config.num_key_value_heads),
        "llama.rope.freq_base": f32(10000.0),
        "llama.attention.layer_norm_rms_epsilon": f32(1e-6),
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if token in SPECIAL else 1 for token in tokens],
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.bos_token_id": u32(1),
        "tokenizer.ggml.eos_token_id": u32(2),
        "tokenizer.ggml.padding_token_id": u32(2),
        "tokenizer.chat_template": TEMPLATE,
    }


def vocabulary() -> list[str]:
    return [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in MERGES)]


def in_the_file(name: str, weight: np.ndarray, config) -> tuple[str, np.ndarray]:
    """transformers' name and weight as the file has them: queries' and keys' rows in pairs that turn together."""
    parts = {
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ffn_norm",
        "q_proj": "attn_q",
        "k_proj": "attn_k",
        "v_proj": "attn_v",
        "o_proj": "attn_output",
        "gate_proj": "ffn_gate",
        "up_proj": "ffn_up",
        "down_proj": "ffn_down",
    }
    outside = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in outside:
        return outside[name], weight
    _, _, layer, *_, part, _ = name.split(".")
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(part)
    if heads is not None:
        size = len(weight) // heads
        order = [
            head * size + pair + half * size // 2
            for head in range(heads)
            for pair in range(size // 2)
            for half in (0, 1)
        ]
        weight = weight[order]
    return f"blk.{layer}.{parts[part]}.weight", weight


def llama_tensors(net) -> dict[str, tuple[np.ndarray, str]]:
    """As the published file: embeddings in Q8_0, maps in Q4_1, norms in float32."""
    tensors = {}
    for name, weight in net.state_dict().items():
        if name == "lm_head.weight" and net.config.tie_word_embeddings:
            continue
        theirs, values = in_the_file(name, weight.numpy(), net.config)
        tensors[theirs] = values, "F32" if values.ndim == 1 else "Q8_0" if "embed" in name or "head" in name else "Q4_1"
    return tensors
