"""What tells a model from another one under the same name: weights, configuration, adapters, tokenizer."""

import hashlib
import json
from typing import Any

import torch

from maskwise.models.base import Model

SAMPLES = 64  # values of each weight, from its first to its last
# Where and by what a configuration was written, and how it is run.
NOT_THE_MODEL = ("_name_or_path", "transformers_version", "dtype", "torch_dtype", "_attn_implementation_autoset")


def fingerprint(model: Model) -> str:
    digest = hashlib.sha256()
    sampled = []
    for name, weight in model.named_parameters():
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        flat = weight.detach().flatten()
        count = min(SAMPLES, len(flat))
        places = torch.linspace(0, len(flat) - 1, count, dtype=torch.float64, device=flat.device).long()
        sampled.append(flat[places].float())
    if sampled:
        digest.update(torch.cat(sampled).cpu().numpy().tobytes())  # one copy: a model may have thousands of weights
    described = [_fields(getattr(model.core, "config", None))]
    described += [_fields(adapter) for adapter in getattr(model.net, "peft_config", {}).values()]
    digest.update(json.dumps(described, sort_keys=True, default=str).encode())
    digest.update(_tokenizer_text(model.tokenizer).encode(errors="surrogatepass"))
    return digest.hexdigest()[:12]


def _fields(config: Any) -> dict[str, Any]:
    """A configuration as plain fields; a stranger's may be any object. Sets have no order of their own."""
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
