"""Checks of names, files and numbers before torch is imported, which takes seconds."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from maskwise.models.checkpoints.catalog import Checkpoint, describe_embedded
from maskwise.models.checkpoints.locations import (
    DTYPE_NAMES,
    embedded_models,
    is_hub_name,
    locate_plain,
    original_class,
    read_object,
    refuse_published_experts,
    refuse_unknown_model,
)
from maskwise.support.errors import UserError, flag
from maskwise.support.nearest import did_you_mean
from maskwise.support.removed import removed

DTYPES = ("auto", *DTYPE_NAMES)
WEIGHTS = ("fp8",)


def check_models(
    names: Iterable[str], adapter: str | None = None, dtype: str = "auto", weights: str | None = None
) -> None:
    """Refuses a model or adapter that is not there, and unknown types. Whether it opens is found out later."""
    for name in names:
        refuse_unknown_model(name)
        if weights is not None:
            refuse_published_experts(name, weights)
    if adapter is not None and not (Path(adapter) / "adapter_config.json").exists():
        named = f"; {adapter} is an embedded model: name it as the model" if adapter in embedded_models() else ""
        raise UserError(
            f"{adapter} has no adapter_config.json: give the folder that `maskwise tune` or PEFT wrote{named}"
        )
    if dtype not in DTYPES:
        raise UserError(f"unknown dtype {dtype!r}{did_you_mean(dtype, DTYPES)}")
    if weights is not None:
        if gone := removed("weights", weights):
            raise UserError(gone)
        check_choice("weights", weights, WEIGHTS)


def embedded(name: str) -> Checkpoint | None:
    """The description of an embedded model, which needs no torch; None for any other."""
    return describe_embedded(name) if name in embedded_models() and not Path(name).is_dir() else None


def check_original_code(name: str) -> None:
    """Refuses a checkpoint here whose config.json names no code of its own; a published one is fetched first."""
    folder = None if is_hub_name(name) else locate_plain(name, "verify")
    if folder is not None and (folder / "config.json").exists():
        original_class(name, read_object(folder / "config.json"))


def check_data(file: Path) -> None:
    if not file.is_file():
        raise UserError(f"there is no data file {file}: give a .jsonl or .txt file")


def check_choice(option: str, given: str, known: Iterable[str]) -> None:
    known = list(known)
    if given not in known:
        raise UserError(f"unknown {option} {given!r}{did_you_mean(given, known)}")


def refuse_without_models(asked: list[str], given: Mapping[str, object]) -> None:
    """Options of `compare` that are for models to be asked, where run folders alone are named."""
    usual = {"seed": 0, "dtype": "auto", "check_weights": True}
    for name, value in () if asked else given.items():
        if value != usual.get(name) and (name in usual or value not in (None, False)):
            option = flag("no_check_weights" if name == "check_weights" else name)
            raise UserError(f"{option} is for models: leave it out, run folders are compared as they are")
