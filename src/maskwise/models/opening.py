"""Opening a model by path or name, and putting a user's own behind the seam."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils.logging import disable_progress_bar, get_verbosity, set_verbosity, set_verbosity_error

from maskwise.errors import UserError
from maskwise.models.base import Batch, Model, without_adapter
from maskwise.models.bodies import RAGGED, causal_body, largest_difference, native_body, padded_body
from maskwise.models.catalog import (
    KIND_OF_CONFIG,
    NATIVE,
    architecture_of,
    find_mask_id,
    locate_checkpoint,
    read_config,
    read_object,
    read_settings,
    refuse_own_attention,
    refuse_two_adapters,
)
from maskwise.models.dream import PUBLISHED_WINDOW, TRAINED_WINDOW, DreamModel
from maskwise.models.llada import LLaDAModelLM
from maskwise.models.tokens import load_tokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def open(
    name: str | Path,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device | None = None,
    adapter: str | Path | None = None,
) -> Model:
    """Opens a checkpoint folder, an embedded model or a published name, optionally with a PEFT adapter on it.

    The name may be an adapter's folder, which names its base, or MODEL+FOLDER, as the model with `adapter` is called.
    dtype "auto" is the checkpoint's own on CUDA and float32 on CPU; device None is CUDA where there is one.
    """
    place = pick_device(device)
    folder, chosen = locate_checkpoint(str(name))
    if adapter is not None:
        refuse_two_adapters(str(name), chosen)
        name, chosen = f"{name}+{adapter}", Path(adapter)
    architecture = architecture_of(folder)
    check_weight_files(folder)
    stored = pick_dtype(dtype, place, read_settings(folder))
    read_config(folder)  # refuses a type that only remote code defines
    net = load_weights(NATIVE.get(architecture, AutoModelForCausalLM), folder, stored, place)
    model = behind_the_seam(net, load_tokenizer(folder, native=architecture in NATIVE), str(name))
    if chosen is not None:
        from maskwise.models.adapters import attach_adapter

        model.net = attach_adapter(model.core, chosen)
    return model.eval()


def behind_the_seam(net: PreTrainedModel, tokenizer: Any, name: str, mask_id: int | None = None) -> Model:
    """A LLaDA, Dream or AR network that is already in memory, as a Model."""
    if isinstance(net, LLaDAModelLM | DreamModel):
        kind = KIND_OF_CONFIG[type(net.config)]
        mask_id = find_mask_id(net, tokenizer, kind) if mask_id is None else mask_id
        long_dream = kind == "dream" and net.config.max_position_embeddings == PUBLISHED_WINDOW
        return Model(net, native_body, kind=kind, window=net.config.max_position_embeddings, shift=kind == "dream",
                     mask_id=mask_id, tokenizer=tokenizer, name=name,
                     trained_window=TRAINED_WINDOW if long_dream else None)  # fmt: skip
    refuse_own_attention(net)
    net.set_attn_implementation(RAGGED)
    model = Model(net, causal_body, kind="ar", window=net.config.max_position_embeddings, shift=True, causal=True,
                  tokenizer=tokenizer, name=name)  # fmt: skip
    refuse_if_different(model, f"{type(net).__name__} does not fit the seam")
    return model


def wrap(
    hf_model: PreTrainedModel,
    tokenizer: Any = None,
    mask_id: int | None = None,
    shift: bool | None = None,
    causal: bool = False,
    head: Callable[[Tensor], Tensor] | None = None,
) -> Model:
    """Puts a user's own model behind the seam; `head` maps hidden rows to logits where they are not just a product.

    shift: the logits of position i come from hidden state i - 1; left out, they do in causal models only.
    A masked language model whose head has layers of its own is wrapped like this: mw.wrap(bert, tok, head=bert.cls)
    """
    if mask_id is None and not causal:
        mask_id = getattr(hf_model.config, "mask_token_id", None)
    if mask_id is None and not causal and tokenizer is not None:
        mask_id = tokenizer.mask_token_id
    if mask_id is None and not causal:
        raise UserError("the model has no mask token: pass mask_id")
    bare = without_adapter(hf_model)
    if isinstance(bare, LLaDAModelLM | DreamModel):
        native = behind_the_seam(bare, tokenizer, type(bare).__name__, mask_id)
        native.net = hf_model
        return native.eval()
    window = getattr(hf_model.config, "max_position_embeddings", None) or 2**31
    model = Model(hf_model, padded_body, kind="wrapped", window=window,
                  shift=causal if shift is None else shift, causal=causal, mask_id=mask_id,
                  tokenizer=tokenizer, head=head, name=type(hf_model).__name__).eval()  # fmt: skip
    refuse_if_different(model, "its logits are not its last hidden states times its output embeddings: pass head=")
    return model


@torch.no_grad()
def refuse_if_different(model: Model, problem: str) -> None:
    """Compares the seam with the class's own forward on a few tokens."""
    ids = [token % model.vocab for token in range(1, 8)]
    batch = Batch.pack([ids], model.device)
    mask_id, model.mask_id = model.mask_id, None  # the class's own logits keep the mask token
    ours = model.head(model.hidden(batch))
    model.mask_id = mask_id
    tolerance = 1e-3 if model.dtype == torch.float32 else 3e-2
    difference = largest_difference(model.core, ours, ids)
    if not difference < tolerance:
        raise UserError(f"{problem} (largest difference {difference:.2g} of the largest logit)")


def check_weight_files(folder: Path) -> None:
    """Every weight file is there, is safetensors and is whole, before anything is loaded."""
    names = weight_files(folder)
    absent = [name for name in names if not (folder / name).exists()]
    if absent and list(folder.glob("*.bin")) + list(folder.glob("*.pt")) + list(folder.glob("*.pth")):
        raise UserError(f"{folder} holds pickled weights, which can run code: convert them to safetensors first")
    if absent:
        raise UserError(f"{folder} lacks {', '.join(absent[:3])}: download the checkpoint again")
    for name in names:
        try:
            with safe_open(folder / name, framework="pt"):
                pass
        except SafetensorError as problem:
            raise UserError(f"{folder / name} is corrupt or cut short ({problem}): download it again") from None


def weight_files(folder: Path) -> list[str]:
    """The files the weights are read from: one, or those of an index; of both transformers takes the one."""
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").exists() or not index.exists():
        return ["model.safetensors"]
    files = read_object(index).get("weight_map")
    if not isinstance(files, dict) or not files or not all(isinstance(file, str) for file in files.values()):
        raise UserError(f"{index} is not an index of weights: download it again")
    return sorted(set(files.values()))


def pick_device(device: str | torch.device | None) -> torch.device:
    try:
        place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as problem:  # torch asserts that it was built with CUDA
        raise UserError(f"no device {str(device)!r} here ({str(problem).splitlines()[0]}): try cpu") from None
    return place


def stored_dtype(settings: dict[str, Any]) -> torch.dtype:
    """The type a checkpoint's weights are stored in, by its config.json."""
    return DTYPES.get(settings.get("dtype") or settings.get("torch_dtype") or "", torch.float32)


def pick_dtype(dtype: str | torch.dtype, device: torch.device, settings: dict[str, Any]) -> torch.dtype:
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype == "auto":
        return stored_dtype(settings) if device.type == "cuda" else torch.float32
    if dtype not in DTYPES:
        raise UserError(f"unknown dtype {dtype!r}: use auto, {', '.join(DTYPES)}")
    return DTYPES[dtype]


def load_weights(net_class: Any, folder: Path, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """Straight onto the device, without remote code; missing, unexpected or wrongly shaped weights are refused."""
    if not sys.stderr.isatty():
        disable_progress_bar()  # in a log or a pipe the bar is noise
    loud = get_verbosity()
    set_verbosity_error()  # its own table of what does not fit would stand before our one line
    try:
        net, report = net_class.from_pretrained(
            folder,
            dtype=dtype,
            device_map={"": device},
            attn_implementation="eager",  # every class has it; which attention runs is decided behind the seam
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    finally:
        set_verbosity(loud)
    for what, key in (
        ("missing", "missing_keys"),
        ("unexpected", "unexpected_keys"),
        ("wrongly shaped", "mismatched_keys"),
    ):
        names = sorted(str(entry[0] if isinstance(entry, tuple) else entry) for entry in report[key])
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise UserError(f"{folder} does not fit its config.json: {what} weights {', '.join(names[:3])}{more}")
    return net
