"""All of a checkpoint that can be checked before its weights are loaded, for commands that would spend hours first."""

import warnings
from pathlib import Path

import torch

from maskwise.models.checkpoints.adapter_base import check_bases
from maskwise.models.checkpoints.adapters import read_adapter
from maskwise.models.checkpoints.configuration import (
    as_described,
    find_mask_id,
    note_odd_mask,
    read_config,
    read_family,
    read_settings,
)
from maskwise.models.checkpoints.locations import locate_checkpoint, split_name
from maskwise.models.checkpoints.networks import (
    check_weight_files,
    load_network,
    network_without_weights,
    refuse_oversized,
)
from maskwise.models.families import PUBLISHED, Family
from maskwise.models.tokenizers.tokenizer import check_tokenizer_files, load_tokenizer
from maskwise.support.errors import UserNotice


def examine(name: str | Path, adapter: str | Path | None = None, any_base: bool = False) -> None:
    """Refuses what `open` would refuse of a model's configuration, index, weight files, tokenizer and adapters.
    Of weight files the headers and sizes are read: a file that was cut short is found without reading the rest."""
    folder, adapters = locate_checkpoint(str(name), adapter)
    family = read_family(folder)
    check_weight_files(folder)
    settings = read_settings(folder)
    with as_described(folder):
        refuse_oversized(folder, read_config(folder, family).to_dict() | settings)
    check_tokenizer_files(folder)
    for one in adapters:
        read_adapter(one)
    if adapters and not any_base:
        check_bases(str(name), folder, adapters)


def examine_fit(name: str) -> None:
    """Refuses weights of other names or shapes than config.json describes, of which none is loaded, and says what does
    not fit in the tokenizer."""
    folder = locate_checkpoint(name)[0]
    family = read_family(folder)
    check_weight_files(folder)
    settings = read_settings(folder)
    with as_described(folder):
        config = read_config(folder, family)
        refuse_oversized(folder, config.to_dict() | settings)
        if "quantization_config" not in settings:
            net = load_network(family, folder, config, torch.float32, {"": torch.device("meta")})
        else:
            net = network_without_weights(config, family)
        tokenizer = load_tokenizer(folder, family)
    if tokenizer is None:
        warnings.warn(f"{folder} has no tokenizer: it takes token ids alone, in Python", UserNotice, stacklevel=2)
    note_odd_mask(net, tokenizer, find_mask_id(net, tokenizer, family))
    known, ends = net.get_input_embeddings().weight.shape[0], settings.get("eos_token_id")  # type: ignore
    if any(one is not None and not 0 <= one < known for one in (ends if isinstance(ends, list) else [ends])):
        odd = f"{folder / 'config.json'}: eos_token_id {ends} is outside 0..{known - 1}: correct it"
        warnings.warn(odd, UserNotice, stacklevel=2)


def find_family(name: str | Path) -> Family:
    """The family of a model: of a published one before it is fetched, else by its config.json."""
    return PUBLISHED.get(split_name(str(name))[0]) or read_family(locate_checkpoint(str(name))[0])
