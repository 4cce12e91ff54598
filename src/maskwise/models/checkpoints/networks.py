"""Networks of a family: loaded from a checkpoint's weight files, or laid out without weights."""

import sys
from collections.abc import Mapping
from contextlib import redirect_stdout
from math import prod
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedConfig, PreTrainedModel
from transformers.utils.logging import disable_progress_bar, get_verbosity, set_verbosity, set_verbosity_error

from maskwise.models.checkpoints.locations import read_object, stored_shapes
from maskwise.models.families import Family
from maskwise.support.errors import UserError, first_line
from maskwise.support.files import damaged, is_plain_name
from maskwise.support.imports import imported

WHOLE, INDEX = "model.safetensors", "model.safetensors.index.json"
WIDTHS = ["vocab_size", "embedding_size", "mlp_hidden_size", "intermediate_size", "expert_intermediate_size"]
WIDTHS += ["moe_intermediate_size", "n_heads", "n_kv_heads", "num_attention_heads", "num_key_value_heads"]
# What transformers reports of weights that do not fit, in words.
MISFITS = {"missing_keys": "missing", "unexpected_keys": "unexpected", "mismatched_keys": "wrongly shaped"}


def network_without_weights(config: PreTrainedConfig, family: Family) -> PreTrainedModel:
    """A network on meta tensors: names and shapes of all parameters without memory."""
    assert family.net_class is not None
    with torch.device("meta"):
        net_class = imported(family.net_class)
        return net_class(config) if family.native else net_class.from_config(config)


def refuse_oversized(folder: Path, settings: dict[str, Any]) -> None:
    """Refuses a configuration far larger than the weight files, which would fill the memory before it fails to fit."""
    if settings.get("quantization_config") is not None:
        return  # several weights in a byte
    shapes = weight_shapes(folder)
    tensors, stored = len(shapes), sum(map(prod, shapes.values()))

    def size(*names: str) -> int:
        return next((settings[name] for name in names if settings.get(name) is not None), 0)

    layers, width = size("n_layers", "num_hidden_layers"), size("d_model", "hidden_size")
    if 0 < size("embedding_size") < size("vocab_size"):  # ALBERT, ELECTRA: narrow embeddings, projected to the width
        width = min(width, size("embedding_size"))
    widths = [settings.get(name) or 0 for name in WIDTHS]
    widths.append(size("head_dim") * size("num_attention_heads"))
    widths.append(size("num_experts") * max(1, size("expert_intermediate_size", "moe_intermediate_size")))
    widths.append(int((settings.get("mlp_ratio") or 0) * width) if not size("mlp_hidden_size") else 0)
    if layers > tensors or width * max(widths) > stored:
        raise UserError(
            f"{folder} does not fit its config.json: that describes more than the {stored:,} numbers in {tensors} "
            "weights of its files: download it again"
        )


def load_network(
    family: Family, folder: Path, config: Any, dtype: torch.dtype, places: Mapping[str, Any]
) -> PreTrainedModel:
    """Loads a network without remote code, its modules onto the devices of `places`.
    Refuses missing, unexpected or misshapen weights."""
    assert family.net_class is not None
    net_class: Any = imported(family.net_class)
    if not sys.stderr.isatty():
        disable_progress_bar()  # in a log or a pipe the bar is noise
    loud = get_verbosity()
    set_verbosity_error()  # transformers would print a table of misfits before our one line
    source: dict[str, Any] = {}
    if getattr(config, "quantization_config", None) is not None:
        source = {"config": config}
    source["device_map"] = dict(places)
    try:
        with redirect_stdout(sys.stderr):  # gptqmodel prints what it does, and stdout is for results
            net, report = net_class.from_pretrained(
                folder,
                **source,
                dtype=dtype,
                attn_implementation="eager",  # every class has it; which attention runs is decided in forward.py
                use_safetensors=True,
                local_files_only=True,
                trust_remote_code=False,
                output_loading_info=True,
                ignore_mismatched_sizes=True,
            )
    except ImportError as problem:  # the package of a quantised checkpoint is missing
        raise UserError(f"{folder}: {first_line(problem)}") from None
    finally:
        set_verbosity(loud)
    for key, what in MISFITS.items():
        names = sorted(str(entry[0] if isinstance(entry, tuple) else entry) for entry in report[key])
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise UserError(f"{folder} does not fit its config.json: {what} weights {', '.join(names[:3])}{more}")
    return net


def weight_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of all tensors in the weight files of a checkpoint."""
    return stored_shapes(*(folder / file for file in weight_files(folder)))


def check_weight_files(folder: Path, family: Family | None = None) -> None:
    """Every weight file is there, is safetensors and is whole, before anything is loaded."""
    names = weight_files(folder)
    absent = [name for name in names if not (folder / name).is_file()]
    if absent and family is not None and family.causal:  # the wrong kind of model matters more than how it is stored
        held = (read_object(folder / "config.json").get("architectures") or ["its class"])[0]
        raise UserError(
            f"{folder} is not a masked language model ({held} is autoregressive), and it lacks {absent[0]}: give a "
            "masked diffusion model, or save this one as safetensors to compare with"
        )
    if absent and list(folder.glob("*.bin")) + list(folder.glob("*.pt")) + list(folder.glob("*.pth")):
        raise UserError(f"{folder} holds pickled weights, which can run code: convert them to safetensors first")
    if absent:
        raise UserError(f"{folder} lacks {', '.join(absent[:3])}: download the checkpoint again")
    index = folder / INDEX
    if names != [WHOLE] and not isinstance(read_object(index).get("metadata"), dict):  # transformers counts on it
        raise UserError(f"{index} is not an index of weights, for it has no metadata: download it again")
    for name in names:
        try:
            with safe_open(folder / name, framework="pt"):
                pass
        except (SafetensorError, OSError) as problem:
            raise damaged(folder / name, problem, "download it again") from None


def weight_files(folder: Path) -> list[str]:
    """The files the weights are read from: one, or those of an index; of both transformers takes the one."""
    index = folder / INDEX
    if (folder / WHOLE).exists() or not index.exists():
        return [WHOLE]
    files = read_object(index).get("weight_map")
    if not isinstance(files, dict) or not files or not all(isinstance(file, str) for file in files.values()):
        raise UserError(f"{index} is not an index of weights: download it again")
    outside = [name for name in files.values() if not is_plain_name(name)]
    if outside:
        raise UserError(f"{index} names {outside[0]!r}, which is not a file of its folder: download it again")
    return sorted(set(files.values()))
