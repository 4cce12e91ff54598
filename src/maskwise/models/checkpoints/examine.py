"""All of a checkpoint that can be checked before its weights are loaded, for commands that would spend hours first."""

from pathlib import Path

from maskwise.models.checkpoints.adapter_base import check_bases
from maskwise.models.checkpoints.adapters import read_adapter
from maskwise.models.checkpoints.configuration import as_described, read_config, read_family, read_settings
from maskwise.models.checkpoints.locations import locate_checkpoint, split_name
from maskwise.models.checkpoints.networks import check_weight_files, refuse_oversized
from maskwise.models.checkpoints.quantised_files import refuse_uninstalled_quantiser
from maskwise.models.families import FAMILIES, Family
from maskwise.models.tokenizers.tokenizer import check_tokenizer_files


def examine(name: str | Path, adapter: str | Path | None = None, any_base: bool = False) -> None:
    """Refuses what `open` would refuse of a model's configuration, index, weight files, tokenizer and adapters.

    Of weight files the headers and sizes are read: a file that was cut short is found without reading the rest.
    """
    folder, adapters = locate_checkpoint(str(name))
    if adapter is not None:
        adapters = (*adapters, Path(adapter))
    family = read_family(folder)
    check_weight_files(folder)
    settings = read_settings(folder)
    refuse_uninstalled_quantiser(folder, settings)
    with as_described(folder):
        refuse_oversized(folder, read_config(folder, family).to_dict() | settings)
    check_tokenizer_files(folder)
    for one in adapters:
        read_adapter(one)
    if adapters and not any_base:
        check_bases(str(name), folder, adapters)


def find_family(name: str | Path) -> Family:
    """The family of a model: of a published one before it is fetched, else by its config.json."""
    for family in FAMILIES:
        if any(known.name == split_name(str(name))[0] for known in family.published):
            return family
    return read_family(locate_checkpoint(str(name))[0])
