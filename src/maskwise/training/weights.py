"""The trained weights: a LoRA adapter on the model's linear layers, or all weights; saving and loading them."""

import re
import shutil
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor

from maskwise.models.checkpoints.adapters import merged, quiet_peft
from maskwise.models.checkpoints.export import beside_the_weights
from maskwise.models.checkpoints.locations import name_from_anywhere
from maskwise.models.model import Model
from maskwise.models.peft_access import is_attention, is_linear, targets_pattern
from maskwise.support.errors import UserError
from maskwise.training.training_settings import ATTENTION, SharedSettings


def make_trainable(model: Model, settings: SharedSettings, mask_row: bool = False) -> None:
    """Put a new adapter on the model, or unfreeze all its weights; an adapter it has is merged into it first.
    mask_row: the adapter also trains the mask's embedding, which a converted model has not learnt."""
    model.net = merged(model.net)  # type: ignore[arg-type]
    if model.has_own_head:
        raise UserError(
            f"{model.name} was wrapped with a head of its own, which no fused loss fits: train it elsewhere"
        )
    if settings.full:
        if model.stored_quantised:
            raise UserError(f"{model.name} is quantised, so its weights cannot be trained: leave out --full")
        model.net.requires_grad_(True)
        return
    pattern = _attention_maps(model) if settings.targets == ATTENTION else settings.targets or model.lora_targets
    _check_targets(model, pattern)
    with torch.random.fork_rng(), quiet_peft():
        torch.manual_seed(settings.seed)
        adapter = LoraConfig(
            r=settings.lora_rank,
            lora_alpha=settings.lora_alpha,
            lora_dropout=settings.lora_dropout,
            target_modules=pattern,
            trainable_token_indices=_mask_row(model) if mask_row else None,
        )
        model.net = get_peft_model(model.core, adapter)
    for parameter in model.net.parameters():
        if parameter.requires_grad:  # PEFT leaves the mask's row in half precision, where a step would be rounded away
            parameter.data = parameter.data.float()
    adapter.base_model_name_or_path = name_from_anywhere(model.name)  # not the folder that an embedded one is in


def _mask_row(model: Model) -> dict[str, list[int]]:
    embeddings = model.core.get_input_embeddings()
    name = next(name for name, module in model.core.named_modules() if module is embeddings)
    assert model.mask_id is not None
    return {name: [model.mask_id]}


def _attention_maps(model: Model) -> str:
    own = [name for name, _ in model.core.named_modules() if re.fullmatch(model.lora_targets, name)]
    if not (found := [name for name in own if is_attention(name)]):
        raise UserError(f"no map of {model.name} is named as attention's: give --targets a regular expression")
    return targets_pattern(found)


def _check_targets(model: Model, pattern: str) -> None:
    head = model.core.get_output_embeddings()
    matched = [(name, module) for name, module in model.core.named_modules() if re.fullmatch(pattern, name)]
    if not matched:
        raise UserError(f"targets {pattern!r} match no part of {model.name}: its own are {model.lora_targets}")
    for name, module in matched:
        if module is head:
            raise UserError(f"targets {pattern!r} match the output head {name}: leave it out")
        if not is_linear(module):
            raise UserError(f"targets {pattern!r} match {name}, which is no linear map: leave it out")


def trained_weights(model: Model) -> dict[str, Tensor]:
    """The trained weights by name, on the CPU, gathered from all processes where they are sharded."""
    weights = {}
    for name, parameter in model.net.named_parameters():
        if parameter.requires_grad:
            value = parameter.detach()
            weights[name] = (value.full_tensor() if isinstance(value, DTensor) else value).cpu()
    return weights


def save_trained_weights(model: Model, folder: Path, weights: dict[str, Tensor], source: Path | None) -> None:
    """A PEFT adapter, or a whole checkpoint with the configuration and tokenizer files of its source unchanged."""
    folder.mkdir(parents=True, exist_ok=True)
    if hasattr(model.net, "peft_config"):
        # Without this PEFT would ask the hub whether the vocabulary was changed.
        model.net.save_pretrained(str(folder), state_dict=weights, save_embedding_layers=False)  # type: ignore[operator]
        return
    stored = model.core.state_dict()  # also buffers, such as the biases by which LLaDA2 chooses experts
    buffers = {name: value.cpu() for name, value in model.core.named_buffers() if name in stored}
    model.core.save_pretrained(folder, state_dict=weights | buffers)
    for file in beside_the_weights(source) if source is not None else []:
        if not file.name.endswith(".index.json"):  # what was just saved may be cut otherwise
            shutil.copyfile(file, folder / file.name)


@torch.no_grad()
def load_trained_weights(model: Model, folder: Path) -> None:
    """Load what `save_trained_weights` wrote into the trained weights."""
    stored: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        stored |= load_file(file)
    for name, parameter in model.net.named_parameters():
        if not parameter.requires_grad:
            continue
        value = stored[name.replace(".default.", ".").removesuffix(".default")]
        if isinstance(parameter, DTensor):
            value = distribute_tensor(value.to(parameter.device), parameter.device_mesh, parameter.placements)
        parameter.copy_(value)
