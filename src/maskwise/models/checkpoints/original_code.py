"""A checkpoint's own network class under transformers 5. Most published code was written for version 4."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers.dynamic_module_utils import get_class_from_dynamic_module
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from maskwise.models.checkpoints.networks import weight_files
from maskwise.support.errors import UserError

# Every configuration of version 4 has them.
FIELDS_OF_4 = {"use_cache": False, "use_return_dict": True, "tie_word_embeddings": True}


def class_from_code(entry: str, folder: Path) -> Any:
    """A class out of the checkpoint's own code; the Auto classes would hand back ours, which is registered for it."""
    return get_class_from_dynamic_module(entry, str(folder))


def original_net(
    folder: Path, entry: str, config_entry: str, dtype: torch.dtype, device: torch.device, attention: str
) -> Any:
    """The original network with the checkpoint's weights, in evaluation mode. What version 4 had is added for it."""
    config = class_from_code(config_entry, folder).from_pretrained(folder)
    config._attn_implementation = attention
    for name, value in FIELDS_OF_4.items():
        if not hasattr(config, name):
            setattr(config, name, value)
    net_class = class_from_code(entry, folder)
    tied = net_class._tied_weights_keys
    if isinstance(tied, list):  # version 5 takes a dictionary
        net_class._tied_weights_keys = None
    added = ROPE_INIT_FUNCTIONS.setdefault("default", _unscaled_frequencies) is _unscaled_frequencies
    try:
        net = _loaded(net_class, folder, config, dtype)
    finally:
        net_class._tied_weights_keys = tied
        if added:
            del ROPE_INIT_FUNCTIONS["default"]
    if isinstance(tied, list) and config.tie_word_embeddings:
        net.get_output_embeddings().weight = net.get_input_embeddings().weight
    return net.to(device).eval()


def _loaded(net_class: Any, folder: Path, config: Any, dtype: torch.dtype) -> Any:
    try:
        return net_class.from_pretrained(folder, config=config, dtype=dtype, use_safetensors=True)
    except (AttributeError, TypeError):  # LLaDA's class calls no post_init, and its tie_weights takes no arguments
        pass
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        net = net_class(config)
    finally:
        torch.set_default_dtype(before)
    missing = {name for name, _ in net.named_parameters()}
    for file in weight_files(folder):
        weights = load_file(folder / file)
        net.load_state_dict(weights, strict=False)
        missing -= weights.keys()
    head = net.get_output_embeddings()
    if config.tie_word_embeddings and head is not None:
        missing -= {name for name, weight in net.named_parameters() if weight is head.weight}
    if missing:
        raise UserError(f"the files in {folder} lack {min(missing)}, a weight of the class in its code: add them")
    return net


def _unscaled_frequencies(config: Any, device: Any = None, seq_len: int | None = None) -> tuple[Tensor, float]:
    """Rotary frequencies without scaling, which version 5 computes elsewhere, and their factor on attention."""
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    steps = torch.arange(0, size, 2, dtype=torch.float32, device=device) / size
    base = getattr(config, "rope_theta", None) or config.rope_parameters["rope_theta"]
    return 1.0 / base**steps, 1.0
