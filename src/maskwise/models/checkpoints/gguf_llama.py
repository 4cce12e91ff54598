"""A Llama model in a GGUF file: its configuration, weights and tokenizer as transformers has them."""

from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from maskwise.models.checkpoints.gguf import GgufFile, read_gguf, unreadable

# Names of the weights here and in the file; layers' with their number in between.
OUTSIDE = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",  # left out where it is tied to the embeddings
}
IN_A_LAYER = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}
IN_A_LAYER |= {f"self_attn.{one}_proj": f"attn_{one}" for one in "qkv"} | {"self_attn.o_proj": "attn_output"}
IN_A_LAYER |= {f"mlp.{one}_proj": f"ffn_{one}" for one in ("gate", "up", "down")}
SIZES = ("block_count", "embedding_length", "feed_forward_length")
CONTROL = 3  # the type of a token that no text contains
# How a text is cut before byte-pair encoding, by the file's name for it.
SPLITS = {"gpt-2": False, "smollm": True}  # whether each digit is a token


def gguf_in(folder: Path) -> Path | None:
    """The model file of a folder that has no config.json and one GGUF file."""
    files = [] if (folder / "config.json").exists() else sorted(folder.glob("*.gguf"))
    return files[0] if len(files) == 1 else None


def llama_settings(path: Path) -> dict[str, Any]:
    """The configuration as the fields of a config.json."""
    file = read_gguf(path)
    if _field(file, "general.architecture", str) != "llama":
        raise unreadable(path, f"architecture {file.fields['general.architecture']!r}; known is 'llama'")
    layers, width, inner = (_field(file, f"llama.{name}", int) for name in SIZES)
    vocabulary = len(_field(file, "tokenizer.ggml.tokens", list))
    # Checked before a network of these sizes is laid out.
    if layers * len(IN_A_LAYER) > len(file.tensors):
        raise unreadable(path, f"{layers} layers, but only {len(file.tensors)} tensors")
    for name, shape in (("token_embd.weight", (vocabulary, width)), ("blk.0.ffn_gate.weight", (inner, width))):
        if name not in file.tensors or file.tensors[name].shape != shape:
            raise unreadable(path, f"{name} has not the shape {list(shape)}")
    heads, groups = (_field(file, f"llama.attention.{name}", int) for name in ("head_count", "head_count_kv"))
    if min(heads, groups) < 1 or width % (2 * heads) or heads % groups:
        raise unreadable(path, f"{heads} heads and {groups} of keys over a width of {width}")
    _refuse_other_arithmetic(file, path, width // heads)
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_size": width,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "max_position_embeddings": _field(file, "llama.context_length", int),
        "rms_norm_eps": _field(file, "llama.attention.layer_norm_rms_epsilon", float),
        "rope_parameters": {"rope_type": "default", "rope_theta": _field(file, "llama.rope.freq_base", float)},
        "vocab_size": vocabulary,
        "tie_word_embeddings": OUTSIDE["lm_head.weight"] not in file.tensors,
        "bos_token_id": file.fields.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.fields.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": file.fields.get("tokenizer.ggml.padding_token_id"),
    }


def _refuse_other_arithmetic(file: GgufFile, path: Path, head: int) -> None:
    """Refuses files whose arithmetic differs from the Llama class's."""
    for name in ("rope.dimension_count", "attention.key_length", "attention.value_length"):
        if file.fields.get(f"llama.{name}", head) != head:
            raise unreadable(path, f"{name} {file.fields[f'llama.{name}']!r}; known is the heads' own width, {head}")
    if file.fields.get("llama.rope.scaling.type", "none") != "none":
        raise unreadable(path, f"rope scaling {file.fields['llama.rope.scaling.type']!r}; known is none")
    if file.fields.get("tokenizer.ggml.add_bos_token", False):
        raise unreadable(path, "a begin token before every text, which this reader does not write")


def llama_weights(path: Path) -> dict[str, Tensor]:
    """The weights that the file has, float32, by transformers' names."""
    file, settings = read_gguf(path), llama_settings(path)
    heads = {"q_proj": settings["num_attention_heads"], "k_proj": settings["num_key_value_heads"]}
    names = dict(OUTSIDE)
    for layer in range(settings["num_hidden_layers"]):
        names |= {
            f"model.layers.{layer}.{ours}.weight": f"blk.{layer}.{theirs}.weight" for ours, theirs in IN_A_LAYER.items()
        }
    strays = sorted(file.tensors.keys() - names.values())
    if strays:
        raise unreadable(path, f"it holds {strays[0]}, which a plain Llama has not")
    weights = {}
    for ours, theirs in names.items():
        if theirs not in file.tensors:
            if ours == "lm_head.weight":
                continue
            raise unreadable(path, f"{theirs} is missing")
        weight = torch.from_numpy(file.read(theirs))
        part = ours.split(".")[-2]
        if part in heads:
            if len(weight) % (2 * heads[part]):
                raise unreadable(path, f"{theirs} has {len(weight)} rows for {heads[part]} heads")
            weight = halves_first(weight, heads[part])
        weights[ours] = weight
    return weights


def halves_first(weight: Tensor, heads: int) -> Tensor:
    """Rows of a query or key map [heads * D, d], which the file has as pairs that turn together, as transformers'
    rotary positions want them: first all first members, then all second ones."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2).contiguous()


def llama_tokenizer(path: Path) -> PreTrainedTokenizerFast:
    """Byte-level BPE from the file's tokens and merges, with its special tokens and chat template."""
    file = read_gguf(path)
    tokens, kinds = _field(file, "tokenizer.ggml.tokens", list), _field(file, "tokenizer.ggml.token_type", list)
    merges: Any = [tuple(str(merge).split(" ")) for merge in _field(file, "tokenizer.ggml.merges", list)]
    if file.fields.get("tokenizer.ggml.model") != "gpt2" or file.fields.get("tokenizer.ggml.pre") not in SPLITS:
        kind, split = (file.fields.get(f"tokenizer.ggml.{part}") for part in ("model", "pre"))
        raise unreadable(path, f"its tokenizer is {kind!r}, {split!r}; known is 'gpt2' with {', '.join(SPLITS)}")
    if len(kinds) != len(tokens) or len(set(tokens)) != len(tokens) or any(len(pair) != 2 for pair in merges):
        raise unreadable(path, "its tokens or merges do not fit together")
    try:
        core = Tokenizer(models.BPE({token: place for place, token in enumerate(tokens)}, merges))
    except Exception as problem:  # the tokenizers library has no error of its own
        raise unreadable(path, f"its tokenizer: {problem}") from None
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False)
    digits = pre_tokenizers.Digits(individual_digits=True)
    alone = SPLITS[file.fields["tokenizer.ggml.pre"]]
    core.pre_tokenizer = pre_tokenizers.Sequence([digits, bytes_only]) if alone else bytes_only
    core.decoder = decoders.ByteLevel()
    special = [token for token, kind in zip(tokens, kinds, strict=True) if kind == CONTROL]
    core.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    roles = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    ids = {role: file.fields.get(f"tokenizer.ggml.{name}_token_id") for role, name in roles.items()}
    if any(place is not None and not (type(place) is int and 0 <= place < len(tokens)) for place in ids.values()):
        raise unreadable(path, "a special token's number is outside its vocabulary")
    named = {role: tokens[place] for role, place in ids.items() if place is not None}
    template = file.fields.get("tokenizer.chat_template")
    return PreTrainedTokenizerFast(
        tokenizer_object=core,
        chat_template=template if isinstance(template, str) else None,
        clean_up_tokenization_spaces=False,
        **named,
    )


def _field(file: GgufFile, name: str, kind: type) -> Any:
    value = file.fields.get(name)
    if type(value) is not kind:
        raise unreadable(file.path, f"{name} is {'missing' if value is None else 'no ' + kind.__name__}")
    return value
