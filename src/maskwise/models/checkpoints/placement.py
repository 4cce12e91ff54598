"""Device and dtype of a model, and the device map of one that needs several GPUs."""

import os
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from maskwise.models.checkpoints.locations import DTYPE_NAMES, NOT_FOR_EXPERTS, refuse_unknown_device
from maskwise.models.checkpoints.networks import weight_shapes
from maskwise.support.errors import UserError
from maskwise.support.removed import removed

DTYPES = {name: getattr(torch, name) for name in DTYPE_NAMES}
SHARE_OF_FREE = 0.9  # of the free memory of a GPU, for weights; the rest is for activations


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
    if weights != "fp8":
        raise UserError(removed("weights", weights) or f"unknown weights {weights!r}: use fp8")
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 9):
        raise UserError("--weights fp8 needs compute capability 8.9 (Ada or Hopper, such as L40S, H100): leave it out")
    if device.type not in ("cuda", "cpu"):
        raise UserError(f"--weights fp8 is for CUDA and CPU, not {device.type}: leave it out")
    if any("experts" in name.split(".") for name in weight_shapes(folder)):
        raise UserError(NOT_FOR_EXPERTS.format(weights))
    if settings.get("quantization_config") is not None:
        raise UserError(f"{name} is quantised already: leave --weights fp8 out")
    if device.type != "cuda":
        return stored
    if dtype != "auto" and stored != torch.bfloat16:
        raise UserError("--weights fp8 goes with bfloat16 on CUDA: leave --dtype out")
    return torch.bfloat16


# Layers on several GPUs


def first_gpu(device: str | torch.device | None) -> torch.device:
    """The device of embeddings and head in a device map."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UserError("--device-map spreads one process over all GPUs: start it without torchrun")
    if str(device or "cuda") != "cuda" or not torch.cuda.is_available():
        raise UserError("--device-map is for the GPUs of one machine: leave it out (CUDA_VISIBLE_DEVICES chooses GPUs)")
    return torch.device("cuda", 0)


def free_memory() -> dict[int, int]:
    """Bytes for weights on each GPU."""
    return {gpu: int(SHARE_OF_FREE * torch.cuda.mem_get_info(gpu)[0]) for gpu in range(torch.cuda.device_count())}


def plan_device_map(net: PreTrainedModel, dtype: torch.dtype, limits: dict[int, int]) -> dict[str, int]:
    """{module: GPU} of a network without weights, its layers placed by accelerate.

    Embeddings, head and the last norm are on the first GPU, because their weights are read outside a forward pass.
    """
    from accelerate import infer_auto_device_map
    from accelerate.utils import compute_module_sizes, get_balanced_memory

    lists = [(name, module) for name, module in net.named_modules() if isinstance(module, nn.ModuleList)]
    path, layers = max(lists, key=lambda pair: sum(weight.numel() for weight in pair[1].parameters()))
    sizes, whole = compute_module_sizes(net, dtype=dtype), list({type(layer).__name__ for layer in layers})
    left = limits | {0: limits[0] - sizes[""] + sizes[path]}
    balanced = get_balanced_memory(layers, dict(left), no_split_module_classes=whole, dtype=dtype)
    places = infer_auto_device_map(layers, balanced, whole, dtype, clean_result=False)
    if left[0] < 0 or not {*places.values()} <= {*limits}:
        raise UserError(
            f"the weights take {sizes[''] / 2**30:.3g} GiB, and {len(limits)} GPUs have room for "
            f"{sum(limits.values()) / 2**30:.3g}: use more GPUs or --weights fp8"
        )
    return {name: 0 for name in _beside(net, path)} | {f"{path}.{name}": place for name, place in places.items()}


def _beside(net: nn.Module, path: str) -> list[str]:
    """The largest modules that hold nothing of the layers at `path`."""
    parent, _, _ = path.rpartition(".")
    others = [name for name, _ in net.get_submodule(parent).named_children() if f"{parent}.{name}".strip(".") != path]
    return [f"{parent}.{name}".strip(".") for name in others] + (_beside(net, parent) if parent else [])


def refuse_with_device_map(settings: dict[str, Any], weights: str | None) -> None:
    """Refuses checkpoints and options that need all weights on one device."""
    if weights is not None:
        raise UserError(f"--weights {weights} needs all weights on one device: leave it or --device-map out")
    if settings.get("quantization_config") is not None:
        raise UserError("--device-map is for safetensors that are not quantised: leave it out, or open the original")
