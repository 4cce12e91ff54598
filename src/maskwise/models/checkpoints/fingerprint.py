"""Fingerprint of a model: a hash of weights, configuration, adapters and tokenizer."""

import hashlib
import json
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwise.models.finite import stored_tensors, stored_weights
from maskwise.models.model import Model

LANES = 1 << 20  # 8-byte words that are summed together, which bounds the memory
# Where and by what a configuration was written, and how it is run.
NOT_THE_MODEL = {"_name_or_path", "transformers_version", "dtype", "torch_dtype"}
NOT_THE_MODEL |= {"_attn_implementation_autoset", "distributed_config"}


def fingerprint(model: Model) -> str:
    """Twelve letters that change with any byte of a weight, and with the configuration, adapters or tokenizer."""
    digest = hashlib.sha256()
    for name, weight in stored_weights(model):
        digest.update(f"{name} {weight.dtype} {tuple(weight.shape)}".encode())
        for part in stored_tensors(weight):
            digest.update(checksums(part).cpu().numpy().tobytes())
    described = [_fields(getattr(model.core, "config", None))]
    described += [_fields(adapter) for adapter in getattr(model.net, "peft_config", {}).values()]
    digest.update(json.dumps(described, sort_keys=True, default=str).encode())
    digest.update(_tokenizer_text(model.tokenizer).encode(errors="surrogatepass"))
    return digest.hexdigest()[:12]


def checksums(weight: Tensor) -> Tensor:
    """One int64 for each 8 MiB of a weight, the same on every device: the sum of its 8-byte words times odd numbers.

    Arithmetic is modulo 2^64, where an odd factor loses no bit: any change of one word changes the sum. Each word has
    another factor, so swapping two words changes it too.
    """
    data = weight.contiguous().flatten().view(torch.uint8)
    words = F.pad(data, (0, -len(data) % 8)).view(torch.int64)
    # Odd numbers without a pattern: multiples of the golden ratio in 64 bits.
    factors = (torch.arange(1, min(LANES, len(words)) + 1, device=weight.device) * -7046029254386353131) | 1
    sums = [(part * factors[: len(part)]).sum() for part in words.split(LANES)]
    return torch.stack(sums) if sums else words


def _fields(config: Any) -> dict[str, Any]:
    """A configuration as plain fields, sets sorted; an unknown class may hold any object."""
    fields = config.to_dict() if hasattr(config, "to_dict") else vars(config) if config is not None else {}
    return {
        name: sorted(map(str, value)) if isinstance(value, set) else value
        for name, value in fields.items()
        if name not in NOT_THE_MODEL
    }


def _tokenizer_text(tokenizer: Any) -> str:
    if tokenizer is None:
        return ""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    whole = json.dumps(sorted(tokenizer.get_vocab().items())) if backend is None else backend.to_str()
    return f"{whole} {getattr(tokenizer, 'chat_template', None)}"
