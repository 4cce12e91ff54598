"""Where a model's name leads: a folder, an embedded model, or a published checkpoint."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, Qwen2Config

from maskwise.errors import UserError
from maskwise.models import dream, llada
from maskwise.models.dream import DreamConfig, DreamModel
from maskwise.models.llada import LLaDAConfig, LLaDAModelLM
from maskwise.models.targets import linear_targets

MASK_OF_FAMILY = {"llada": llada.MASK_ID, "dream": dream.MASK_ID}

for config_class, net_class in ((LLaDAConfig, LLaDAModelLM), (DreamConfig, DreamModel)):
    AutoConfig.register(config_class.model_type, config_class)
    AutoModel.register(config_class, net_class)
    AutoModelForCausalLM.register(config_class, net_class)

ZOO = Path(__file__).parent / "zoo"

LLAMA3: dict[str, Any] = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 8192,
}
QWEN25: dict[str, Any] = {
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
}

# Published checkpoints of the families the papers study; any other of the same classes opens too.
PUBLISHED: dict[str, PreTrainedConfig] = {
    "GSAI-ML/LLaDA-8B-Base": LLaDAConfig(mlp_hidden_size=12288),
    "GSAI-ML/LLaDA-8B-Instruct": LLaDAConfig(mlp_hidden_size=12288),
    "GSAI-ML/LLaDA-1.5": LLaDAConfig(mlp_hidden_size=12288),
    "Dream-org/Dream-v0-Base-7B": DreamConfig(num_key_value_heads=4),
    "Dream-org/Dream-v0-Instruct-7B": DreamConfig(num_key_value_heads=4),
    "meta-llama/Meta-Llama-3-8B": LlamaConfig(**LLAMA3),
    "meta-llama/Meta-Llama-3-8B-Instruct": LlamaConfig(**LLAMA3),
    "Qwen/Qwen2.5-7B": Qwen2Config(**QWEN25, max_position_embeddings=131072),
    "Qwen/Qwen2.5-7B-Instruct": Qwen2Config(**QWEN25, max_position_embeddings=32768),
}


def embedded_models() -> list[str]:
    """Names of the models that come with the package, adapters as BASE+NAME."""
    names = []
    for folder in sorted(ZOO.iterdir()) if ZOO.exists() else []:
        if (folder / "model.safetensors").exists() or (folder / "adapter_model.safetensors").exists():
            names.append(folder.name)
    return names


def locate_checkpoint(name: str) -> tuple[Path, Path | None]:
    """The folder of a checkpoint and, for an embedded adapter, the adapter's folder too."""
    if Path(name).is_dir():
        return Path(name), None
    if name in embedded_models():
        if (ZOO / name / "adapter_config.json").exists():
            return ZOO / name.split("+")[0], ZOO / name
        return ZOO / name, None
    if Path(name).exists():
        raise UserError(f"{name} is a file: give the folder of a checkpoint")
    if name.count("/") == 1 and not name.startswith((".", "/")):
        return _from_hub(name), None
    known = ", ".join(embedded_models()) or "none yet"
    raise UserError(
        f"no model {name!r}: give a checkpoint folder, a published name (maskwise models) or one of: {known}"
    )


def _from_hub(name: str) -> Path:
    """A published checkpoint from the hub's local cache, or downloaded; code files are never fetched."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(f"{name} is not a folder here and could not be fetched from the hub ({reason})") from None


def describe(name: str) -> dict[str, Any]:
    """One entry of `maskwise models`, from the configuration alone: the network is laid out on meta tensors."""
    config = PUBLISHED[name] if name in PUBLISHED else AutoConfig.from_pretrained(locate_checkpoint(name)[0])
    native = isinstance(config, LLaDAConfig | DreamConfig)
    with torch.device("meta"):
        net = AutoModelForCausalLM.from_config(config)
    kind = {"llada": "llada", "Dream": "dream"}.get(config.model_type, "ar")
    return {
        "name": name,
        "kind": kind,
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "window": config.max_position_embeddings,
        "mask_id": (config.mask_token_id or MASK_OF_FAMILY[kind]) if native else None,
        "shift": kind != "llada",
        "causal": not native,
        "lora_targets": linear_targets(net),
    }
