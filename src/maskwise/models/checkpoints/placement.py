"""Device and dtype of a model, and device maps: layers on several GPUs, in main memory or on disk.

accelerate dispatches a device map. Embeddings, head and the last norm stay on the main device, because their weights
are read outside a forward pass.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from maskwise.models.checkpoints.locations import DTYPE_NAMES, refuse_unknown_device
from maskwise.models.checkpoints.networks import weight_shapes
from maskwise.support.errors import UserError

DTYPES = {name: getattr(torch, name) for name in DTYPE_NAMES}
Limits = dict[int | str, int]  # bytes by GPU number or "cpu"
SHARE_OF_FREE = 0.9  # of the free memory, where no limit is given; the rest is for activations


def pick_device(device: str | torch.device | None) -> torch.device:
    if isinstance(device, str):
        refuse_unknown_device(device)
    elif device is not None and not isinstance(device, torch.device):
        raise UserError(f"device must be a text, such as cuda:0, or a torch.device, not {device!r}")
    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as problem:  # torch asserts that it was built with CUDA
        raise UserError(f"no device {str(device)!r} here ({str(problem).splitlines()[0][:100]}): try cpu") from None
    return place


def stored_dtype(settings: dict[str, Any]) -> torch.dtype:
    """The type a checkpoint's weights are stored in, by its config.json."""
    return DTYPES.get(settings.get("dtype") or settings.get("torch_dtype") or "", torch.float32)


def pick_dtype(dtype: str | torch.dtype, device: torch.device, settings: dict[str, Any]) -> torch.dtype:
    if isinstance(dtype, torch.dtype) and dtype in DTYPES.values():
        return dtype
    if dtype == "auto":
        return stored_dtype(settings) if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        raise UserError(f"unknown dtype {dtype!r}: use auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


def quantisable_dtype(
    weights: str,
    name: str | Path,
    folder: Path,
    settings: dict[str, Any],
    dtype: str | torch.dtype,
    stored: torch.dtype,
    device: torch.device,
) -> torch.dtype:
    """Dtype of the unquantised weights; refuses models that cannot be quantised, before reading."""
    from maskwise.models.families.quantise import refuse_experts, refuse_unfit

    refuse_unfit(weights, device)
    refuse_experts(weights, weight_shapes(folder))
    if settings.get("quantization_config") is not None:
        raise UserError(f"{name} is quantised already: leave --weights {weights} out")
    if device.type != "cuda":
        return stored
    if dtype != "auto" and stored != torch.bfloat16:
        raise UserError(f"--weights {weights} goes with bfloat16 on CUDA: leave --dtype out")
    return torch.bfloat16


# Device maps


def refuse_other_device_map(device_map: str | None, max_memory: Mapping[int | str, int | str] | None) -> None:
    if device_map not in (None, "auto"):
        raise UserError(f"unknown device map {device_map!r}: use auto, or --device cuda for one GPU")
    if device_map is None and max_memory is not None:
        raise UserError("--max-memory is for --device-map auto: give both")


def main_device(device: str | torch.device | None) -> torch.device:
    """The device of embeddings and head, which also computes the layers in main memory and on disk."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("--device-map spreads one process over all GPUs: start it without torchrun")
    device = None if device is None else pick_device(device)
    kind = device.type if device is not None else "cuda" if torch.cuda.is_available() else "cpu"
    if kind not in ("cuda", "cpu") or (device is not None and device.index is not None):
        raise UserError(f"--device-map goes with --device cpu or cuda, not {device}: choose GPUs with --max-memory")
    return torch.device(kind, 0) if kind == "cuda" else torch.device(kind)


def memory_limits(given: Mapping[int | str, int | str] | None, main: torch.device) -> Limits:
    """Bytes for the weights on each GPU and in main memory: those given, else most of what is free."""
    from accelerate.utils import convert_file_size_to_int, get_max_memory

    free = {place: int(size * SHARE_OF_FREE) for place, size in get_max_memory().items()}
    limits = {place: size for place, size in free.items() if place == "cpu" or main.type == "cuda"}
    for place, size in (given or {}).items():
        if place not in limits:
            raise UserError(f"--max-memory names {place}, but the devices here are {', '.join(map(str, limits))}")
        try:
            limits[place] = convert_file_size_to_int(size)
        except ValueError:
            raise UserError(f"--max-memory {place}={size}: give a size such as 10GiB") from None
    return limits


def plan_device_map(
    net: PreTrainedModel, dtype: torch.dtype, main: torch.device, limits: Limits
) -> dict[str, int | str | torch.device]:
    """{module: device} of a network without weights: layers fill the GPUs one by one, then main memory, then the disk.
    One entry if the whole model fits the main device."""
    from accelerate import infer_auto_device_map
    from accelerate.utils import compute_module_sizes, get_balanced_memory

    path, layers = _layers_of(net)
    sizes = compute_module_sizes(net, dtype=dtype)
    resident = sizes[""] - sizes[path]
    first: int | str = 0 if main.type == "cuda" else "cpu"
    if limits[first] < resident:
        raise UserError(
            f"embeddings and head take {resident / 2**30:.2g} GiB, more than the limit of device {first}: "
            "raise it with --max-memory"
        )
    limits = limits | {first: limits[first] - resident}
    whole = {type(layer).__name__ for layer in layers}
    balanced = get_balanced_memory(layers, limits, no_split_module_classes=list(whole), dtype=dtype)
    places = infer_auto_device_map(layers, balanced, list(whole), dtype, clean_result=False)
    if set(places.values()) == {first}:
        return {"": main}
    return {name: first for name in _beside(net, path)} | {f"{path}.{name}": place for name, place in places.items()}


def _layers_of(net: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """The name of the list of layers, and the list: of all lists the one with the most parameters."""
    lists = [(name, module) for name, module in net.named_modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise UserError(f"{type(net).__name__} has no list of layers: leave --device-map out")
    return max(lists, key=lambda pair: sum(weight.numel() for weight in pair[1].parameters()))


def _beside(net: nn.Module, path: str) -> list[str]:
    """The largest modules that hold nothing of the layers at `path`."""
    found, parent, names = [], net, path.split(".")
    for depth, name in enumerate(names):
        found += [".".join([*names[:depth], other]) for other, _ in parent.named_children() if other != name]
        parent = getattr(parent, name) if not isinstance(parent, nn.ModuleDict) else parent[name]
    return found


def refuse_with_spread(
    settings: dict[str, Any], weights: str | None, adapters: int, mapped: bool, shared: bool
) -> None:
    """Refuses checkpoints and options that need all weights on one device.
    mapped: with a device map; shared: by the processes of --tensor-parallel."""
    option = "--device-map" if mapped else "--tensor-parallel"
    if mapped and shared:
        raise UserError("--device-map and --tensor-parallel exclude each other: leave one out")
    if weights is not None:
        raise UserError(f"--weights {weights} needs all weights on one device: leave it or {option} out")
    if settings.get("quantization_config") is not None:
        raise UserError(f"{option} is for safetensors that are not quantised: leave it out, or open the original")
    if adapters > mapped:
        raise UserError(f"{option} takes {'one' if mapped else 'no'} adapter: export the model with it first")
