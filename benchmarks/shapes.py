"""The models of the rows, with random weights: the published shapes on CUDA in bf16, toys on CPU in float32."""

import gc

import torch
from transformers import PreTrainedModel

from benchmarks.measure import Bench
from maskwise.models import DreamConfig, DreamModel, LLaDA2Config, LLaDA2MoeModelLM, LLaDAConfig, LLaDAModelLM, families
from maskwise.models.checkpoints.locations import locate_checkpoint
from maskwise.models.checkpoints.opening import as_model
from maskwise.models.model import Model
from maskwise.models.tokenizers.tokenizer import load_tokenizer

NAMES = {"llada": "LLaDA-8B", "dream": "Dream-7B", "llada2": "LLaDA2-mini"}
LLADA = {
    "d_model": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "n_kv_heads": 32,
    "mlp_hidden_size": 12288,
    "vocab_size": 126464,
    "max_sequence_length": 4096,
    "mask_token_id": 126336,
    "eos_token_id": 126081,
}
DREAM = {
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 131072,
    "mask_token_id": 151666,
    "eos_token_id": 151643,
}
# The embedded tokenizer is used everywhere, so a toy's vocabulary is as large as that one's.
TOY_LLADA = {
    "d_model": 64,
    "n_layers": 2,
    "n_heads": 4,
    "n_kv_heads": 2,
    "mlp_hidden_size": 64,
    "max_sequence_length": 4096,
    "eos_token_id": 0,
}
TOY_DREAM = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "max_position_embeddings": 4096,
    "eos_token_id": 0,
}
LLADA2 = {"mask_token_id": 156895, "eos_token_id": 156892}  # the rest is the class's own
TOY_LLADA2 = TOY_DREAM | {
    "num_hidden_layers": 3,
    "head_dim": 8,
    "moe_intermediate_size": 16,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 4,
    "topk_group": 2,
    "block_size": 8,
}


def make_model(bench: Bench, kind: str, toy_layers: int = 2) -> Model:
    """kind "llada", "dream", or "llada2"; the model's name says which shape it is.

    toy_layers: of a toy LLaDA.
    """
    make_room(bench)
    tokenizer = load_tokenizer(locate_checkpoint("tiny-llada")[0], families.LLADA)
    words = {"vocab_size": len(tokenizer), "mask_token_id": tokenizer.mask_token_id}
    config: LLaDAConfig | DreamConfig
    if kind == "llada":
        config = LLaDAConfig(**(LLADA if bench.full else TOY_LLADA | words | {"n_layers": toy_layers}))
    elif kind == "llada2":
        config = LLaDA2Config(**(LLADA2 if bench.full else TOY_LLADA2 | words))
    else:
        config = DreamConfig(**(DREAM if bench.full else TOY_DREAM | words))
    net_class = {"llada": LLaDAModelLM, "llada2": LLaDA2MoeModelLM}.get(kind, DreamModel)
    dtype, spread = (torch.bfloat16, 0.02) if bench.full else (torch.float32, 0.3)
    net = filled_there(net_class, config, bench.device, dtype, spread)
    return as_model(net, tokenizer, NAMES[kind] if bench.full else f"toy {kind}")


def filled_there(
    net_class: type[PreTrainedModel],
    config: LLaDAConfig | DreamConfig,
    device: torch.device,
    dtype: torch.dtype,
    spread: float,
) -> PreTrainedModel:
    """Made empty and filled on the device: no initialiser runs on the host and nothing is copied."""
    with torch.device("meta"):
        net = net_class(config)
    net = net.to(dtype).to_empty(device=device).eval()
    draws = torch.Generator(device).manual_seed(0)
    with torch.no_grad():
        for name, weight in net.named_parameters():
            if weight.dim() == 1 and not name.endswith("bias"):
                weight.fill_(1.0)  # norms
            else:
                weight.normal_(0.0, spread, generator=draws)
        for values in net.buffers():  # biases of routers
            values.zero_()
    return net


def make_room(bench: Bench) -> None:
    """What the model before left behind must not count as this one's memory."""
    if bench.full:
        torch.compiler.reset()
        gc.collect()
        torch.cuda.empty_cache()


def random_ids(lengths: list[int], model: Model, seed: int = 0) -> list[list[int]]:
    """Sequences of any tokens but the mask."""
    assert model.mask_id is not None
    draws = torch.Generator().manual_seed(seed)
    drawn = [torch.randint(model.vocab - 1, (length,), generator=draws) for length in lengths]
    return [(ids + (ids >= model.mask_id)).tolist() for ids in drawn]
