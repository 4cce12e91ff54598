"""Where a model's name leads: a folder, an embedded model, or a published checkpoint."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
)
from transformers.activations import ACT2FN
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from maskwise.errors import UserError
from maskwise.models import dream, llada, llada_moe
from maskwise.models.dream import DreamConfig, DreamModel
from maskwise.models.llada import LLaDAConfig, LLaDAModelLM
from maskwise.models.llada_moe import LLaDAMoEConfig, LLaDAMoEModelLM
from maskwise.models.targets import linear_targets
from maskwise.models.tokens import load_tokenizer

NATIVE: dict[str, type[PreTrainedModel]] = {
    "LLaDAModelLM": LLaDAModelLM,
    "DreamModel": DreamModel,
    "LLaDAMoEModelLM": LLaDAMoEModelLM,
}
KIND_OF_CONFIG = {LLaDAConfig: "llada", DreamConfig: "dream", LLaDAMoEConfig: "llada-moe"}
MASK_OF_FAMILY = {"llada": llada.MASK_ID, "dream": dream.MASK_ID, "llada-moe": llada_moe.MASK_ID}

for config_class, net_class in (
    (LLaDAConfig, LLaDAModelLM),
    (DreamConfig, DreamModel),
    (LLaDAMoEConfig, LLaDAMoEModelLM),
):
    AutoConfig.register(config_class.model_type, config_class)
    AutoModel.register(config_class, net_class)
    AutoModelForCausalLM.register(config_class, net_class)

ZOO = Path(__file__).parent / "zoo"

# Fields of config.json by what they must be; each may also be null or left out.
SIZES = (
    "d_model", "n_layers", "n_heads", "n_kv_heads", "mlp_hidden_size", "embedding_size", "max_sequence_length",
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size", "head_dim",
    "max_position_embeddings", "vocab_size", "expert_intermediate_size", "num_experts", "num_experts_per_tok",
)  # fmt: skip
FACTORS = ("mlp_ratio", "rope_theta", "rms_norm_eps", "init_std", "initializer_range")
TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id")  # one or several

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
    "inclusionAI/LLaDA-MoE-7B-A1B-Base": LLaDAMoEConfig(),
    "inclusionAI/LLaDA-MoE-7B-A1B-Instruct": LLaDAMoEConfig(),
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
    """The folder of a checkpoint and, where the name is an adapter's or MODEL+FOLDER, the adapter's folder too."""
    base, adapter = split_name(name)
    if adapter is not None:
        folder, another = locate_checkpoint(base)
        refuse_two_adapters(base, another)
        return folder, Path(adapter)
    folder = Path(name) if Path(name).is_dir() else ZOO / name
    if Path(name).is_dir() or name in embedded_models():
        if _is_adapter(folder):
            return locate_checkpoint(_base_of(folder))[0], folder
        return folder, None
    if Path(name).exists():
        raise UserError(f"{name} is a file: give the folder of a checkpoint")
    if name.count("/") == 1 and not name.startswith((".", "/")):
        return _from_hub(name), None
    known = ", ".join(embedded_models()) or "none yet"
    raise UserError(
        f"no model {name!r}: give a checkpoint folder, a published name (maskwise models) or one of: {known}"
    )


def split_name(name: str) -> tuple[str, str | None]:
    """MODEL+FOLDER, with an adapter's folder, in its parts."""
    if not Path(name).exists():
        for place, letter in enumerate(name):  # either part may have a + in its own name
            if letter == "+" and _is_adapter(Path(name[place + 1 :])):
                return name[:place], name[place + 1 :]
    return name, None


def refuse_two_adapters(name: str, adapter: Path | None) -> None:
    if adapter is not None:
        raise UserError(f"{name} has an adapter already: name its base model with the other one")


def _is_adapter(folder: Path) -> bool:
    return (folder / "adapter_config.json").exists() and not (folder / "config.json").exists()


def _base_of(adapter: Path) -> str:
    """The model an adapter says it was trained on, which is not an adapter again."""
    base = read_object(adapter / "adapter_config.json").get("base_model_name_or_path")
    if not isinstance(base, str) or not base or _is_adapter(Path(base)) or _is_adapter(ZOO / base):
        raise UserError(f"the adapter in {adapter} does not name its base model: open that, and give this as adapter")
    return base


def _from_hub(name: str) -> Path:
    """A published checkpoint from the hub's local cache, or downloaded; code files are never fetched."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    wanted = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as problem:
        reason = str(problem).strip().splitlines()[0]
        raise UserError(f"{name} is not a folder here and could not be fetched from the hub ({reason}): check "
                        "the name, or give a folder") from None  # fmt: skip


def read_settings(folder: Path) -> dict[str, Any]:
    file = folder / "config.json"
    if not file.exists():
        raise UserError(f"{folder} has no config.json: give the folder of a checkpoint")
    settings = read_object(file)
    _check_numbers(file, settings)
    return settings


def read_object(file: Path) -> dict[str, Any]:
    try:
        read = json.loads(file.read_text())
    except ValueError as problem:
        raise UserError(f"{file} is not valid JSON ({problem}): download it again") from None
    if not isinstance(read, dict):
        raise UserError(f"{file} does not hold a configuration: download it again")
    return read


def _check_numbers(file: Path, settings: dict[str, Any]) -> None:
    """A value of the wrong type would surface far from here, as an error of torch."""

    def whole(value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    kinds: list[tuple[tuple[str, ...], str, Callable[[Any], bool]]] = [
        (SIZES, "a whole number, 1 or more", lambda v: whole(v) and v >= 1),
        (FACTORS, "a positive number", lambda v: (whole(v) or isinstance(v, float)) and v > 0),
        (TOKENS, "a token's number", lambda v: all(whole(one) for one in (v if isinstance(v, list) else [v]))),
        (("mask_token_id",), "a token's number", whole),
        (("rope_parameters", "rope_scaling"), "an object", lambda v: isinstance(v, dict)),
        (("hidden_act",), "an activation that transformers knows", lambda v: isinstance(v, str) and v in ACT2FN),
        (("architectures",), "a list of names", lambda v: isinstance(v, list) and all(isinstance(n, str) for n in v)),
        (("dtype", "torch_dtype"), "a type of torch", lambda v: isinstance(getattr(torch, str(v), None), torch.dtype)),
    ]
    for names, wanted, fits in kinds:
        for name in names:
            value = settings.get(name)
            if value is not None and not fits(value):
                raise UserError(f"{file}: {name} is {json.dumps(value)}, not {wanted}: correct it or download it again")


def architecture_of(folder: Path) -> str:
    """The class a checkpoint names: one of ours, or a causal language model of transformers."""
    architecture = (read_settings(folder).get("architectures") or ["none named"])[0]
    if architecture not in NATIVE and architecture not in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
        raise UserError(f"{folder}: unknown architecture {architecture!r}; supported are {', '.join(NATIVE)} and "
                        "transformers' causal language models")  # fmt: skip
    return architecture


def read_config(folder: Path) -> PreTrainedConfig:
    """A folder's configuration as the class of its architecture reads it; code that comes with it is never run."""
    architecture = architecture_of(folder)
    if architecture in NATIVE:
        return NATIVE[architecture].config_class.from_pretrained(folder)  # type: ignore[union-attr]
    try:
        return AutoConfig.from_pretrained(folder, trust_remote_code=False)
    except StrictDataclassError as problem:
        reason = " ".join(str(problem).split())
        raise UserError(f"{folder / 'config.json'} is not a configuration of its class ({reason})") from None
    except ValueError:
        kind = read_settings(folder).get("model_type")
        raise UserError(f"{folder}: transformers knows no model type {kind!r}, and remote code is never run") from None


def refuse_own_attention(net: PreTrainedModel) -> None:
    """AR classes that do not go through transformers' attention interface (Bloom, Falcon, Mamba) have no seam."""
    if not net._supports_attention_backend:
        raise UserError(f"{type(net).__name__} does not fit the seam (its attention cannot be replaced): use another")


def find_mask_id(net: PreTrainedModel, tokenizer: Any, kind: str) -> int:
    """From the configuration, then the tokenizer, then the family."""
    found = net.config.mask_token_id
    if found is None and tokenizer is not None:
        found = tokenizer.mask_token_id
    if found is None:
        found = MASK_OF_FAMILY[kind]
    known = net.get_input_embeddings().weight.shape[0]  # type: ignore
    if not 0 <= found < known:
        raise UserError(f"no mask token ({found} is outside 0..{known - 1}): set mask_token_id in config.json or "
                        "mask_token in the tokenizer")  # fmt: skip
    return found


def describe(name: str) -> dict[str, Any]:
    """One entry of `maskwise models`, from the configuration alone: the network is laid out on meta tensors."""
    folder = None if name in PUBLISHED else locate_checkpoint(name)[0]
    config = PUBLISHED[name] if folder is None else read_config(folder)
    kind = KIND_OF_CONFIG.get(type(config), "ar")
    native = kind != "ar"
    with torch.device("meta"):
        net = AutoModelForCausalLM.from_config(config)
    if not native:
        refuse_own_attention(net)
    tokenizer = None
    if native and folder is not None and config.mask_token_id is None:
        tokenizer = load_tokenizer(folder, native)
    return {
        "name": name,
        "kind": kind,
        "parameters": sum(parameter.numel() for parameter in net.parameters()),
        "window": config.max_position_embeddings,
        "mask_id": find_mask_id(net, tokenizer, kind) if native else None,
        "shift": kind in ("dream", "ar"),
        "causal": not native,
        "lora_targets": linear_targets(net),
    }
