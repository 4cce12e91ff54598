"""Model catalogue of `maskwise models`. Embedded and published models are described without torch."""

from collections.abc import Mapping
from math import prod
from os.path import isdir
from pathlib import Path
from typing import Annotated, Any

from msgspec import UNSET, Meta, UnsetType

from maskwise.models.checkpoints.locations import (
    configuration_of,
    embedded_models,
    locate_checkpoint,
    planted_in,
    read_object,
    stored_shapes,
)
from maskwise.models.families import AUTOREGRESSIVE, FAMILIES, Family, Published, family_of_architecture
from maskwise.models.peft_access import in_a_layer, linear_targets, targets_pattern
from maskwise.support.typed import AtLeast1, Count, Typed


class Checkpoint(Typed, frozen=True, kw_only=True):
    """A checkpoint that can be opened."""

    name: Annotated[str, Meta(description="its name or folder")]
    kind: Annotated[str, Meta(description="its family; ar is autoregressive")]
    parameters: Annotated[Count, Meta(description="how many")]
    window: Annotated[Count, Meta(description="context length in tokens")]
    mask_id: Annotated[Count | None, Meta(description="the mask token; null if autoregressive")]
    shift: Annotated[bool, Meta(description="is position i predicted from hidden state i - 1?")]
    causal: Annotated[bool, Meta(description="is attention causal?")]
    lora_targets: Annotated[str, Meta(description="regular expression of the linear layers that adapters go on")]
    planted: Annotated[str | UnsetType | None, Meta(description="the fault that was planted in it")] = UNSET
    block: Annotated[AtLeast1 | UnsetType, Meta(description="block diffusion: tokens per block")] = UNSET
    checked: Annotated[str | UnsetType, Meta(description="published checkpoints: what was compared with")] = UNSET


def list_models() -> list[Checkpoint]:
    """An entry for each embedded model and each published checkpoint."""
    embedded = [describe_embedded(name) for name in embedded_models()]
    return embedded + [describe_published(known, family) for family in FAMILIES for known in family.published]


def describe_checkpoint(name: str, families: tuple[Family, ...] = FAMILIES) -> Checkpoint:
    """One entry of `maskwise models`, for any name that `mw.open` takes; a folder's configuration is checked."""
    for family in families:
        for known in family.published:
            if known.name == name:
                return describe_published(known, family)
    if name in embedded_models() and not isdir(name):
        return describe_embedded(name)
    return describe_folder(name, locate_checkpoint(name)[0], families)


def describe_published(known: Published, family: Family) -> Checkpoint:
    return Checkpoint(
        name=known.name,
        kind=family.name,
        parameters=known.parameters,
        window=known.context_length,
        mask_id=known.settings.get("mask_token_id", family.mask_id),
        shift=family.shift,
        causal=family.causal,
        lora_targets=family.lora_targets or known.lora_targets or "",
        block=_block(family, known.settings),
        checked=family.checked or UNSET,
    )


def describe_embedded(name: str) -> Checkpoint:
    """Entry of an embedded model, from config.json and the weight file's header, which are the package's own."""
    folder = configuration_of(name)
    settings = read_object(folder / "config.json")
    family = family_of_architecture(settings["architectures"][0]) or AUTOREGRESSIVE
    if (folder / "shapes.json").exists():  # the weights may not be installed
        shapes = read_object(folder / "shapes.json")
    else:
        shapes = stored_shapes(folder / "model.safetensors")
    maps = [weight.removesuffix(".weight") for weight, shape in shapes.items() if len(shape) == 2]
    return Checkpoint(
        name=name,
        kind=family.name,
        parameters=sum(map(prod, shapes.values())),
        window=settings[family.length_field],
        mask_id=None if family.causal else settings["mask_token_id"],
        shift=settings.get("shift", family.shift),
        causal=family.causal,
        lora_targets=family.lora_targets or targets_pattern(filter(in_a_layer, maps)),
        block=_block(family, settings),
        planted=planted_in(name) or UNSET,
    )


def describe_folder(name: str, folder: Path, families: tuple[Family, ...] = FAMILIES) -> Checkpoint:
    """Entry of a folder, from its configuration and tokenizer, with the network on meta tensors: no weight is read."""
    from maskwise.models.checkpoints.configuration import as_described, read_family

    family = read_family(folder, families)
    with as_described(folder):
        return _described(name, folder, family)


def _described(name: str, folder: Path, family: Family) -> Checkpoint:
    from maskwise.models.checkpoints.configuration import find_mask_id, find_shift, read_config, refuse_own_attention
    from maskwise.models.checkpoints.networks import network_without_weights
    from maskwise.models.families.padded import context_length
    from maskwise.models.tokenizers.tokenizer import load_tokenizer

    config = read_config(folder, family)
    net = network_without_weights(config, family)
    if not family.native and not family.framed:
        refuse_own_attention(net)
    needs_tokenizer = family.framed or (not family.causal and getattr(config, "mask_token_id", None) is None)
    tokenizer = load_tokenizer(folder, family) if needs_tokenizer else None
    return Checkpoint(
        name=name,
        kind=family.name,
        parameters=sum(parameter.numel() for parameter in net.parameters()),
        window=context_length(net, tokenizer) if family.framed else config.get_text_config().max_position_embeddings,
        mask_id=find_mask_id(net, tokenizer, family),
        shift=find_shift(config, family),
        causal=family.causal,
        lora_targets=family.lora_targets or linear_targets(net),
        block=UNSET if (block := getattr(config, "attention_block", None)) is None else block,
    )


def _block(family: Family, settings: Mapping[str, Any]) -> int | UnsetType:
    """Block size of a block diffusion model, by its configuration."""
    return settings.get(family.block_field, family.default_block) if family.blockwise else UNSET
