"""Checks of names, files and numbers before torch is imported, which takes seconds."""

from collections.abc import Iterable
from pathlib import Path

from maskwise.models.checkpoints.locations import (
    DTYPE_NAMES,
    embedded_models,
    refuse_published_experts,
    refuse_unknown_model,
)
from maskwise.support.errors import UserError
from maskwise.support.nearest import did_you_mean

DTYPES = ("auto", *DTYPE_NAMES)
WEIGHTS = ("fp8", "int4")


def check_models(
    names: Iterable[str], adapter: str | None = None, dtype: str = "auto", weights: str | None = None
) -> None:
    """Refuses a model or adapter that is not there, and unknown types. Whether it opens is found out later."""
    for name in names:
        refuse_unknown_model(name)
        if weights is not None:
            refuse_published_experts(name, weights)
    if adapter is not None and not (Path(adapter) / "adapter_config.json").exists():
        named = f"; {adapter} is a model with its adapter: give it as the model" if adapter in embedded_models() else ""
        raise UserError(
            f"{adapter} has no adapter_config.json: give the folder that `maskwise tune` or PEFT wrote{named}"
        )
    if dtype not in DTYPES:
        raise UserError(f"unknown dtype {dtype!r}{did_you_mean(dtype, DTYPES)}")
    if weights is not None:
        check_choice("weights", weights, WEIGHTS)


def check_data(file: Path) -> None:
    """Refuses a data file that is not there."""
    if not file.is_file():
        raise UserError(f"there is no data file {file}: give a .jsonl or .txt file")


def named_data(given: list[str] | None) -> list[str] | None:
    """Refuses texts that are not NAME=PATH."""
    from maskwise.tasks.datasets import named_paths

    named_paths(given or [])
    return given


def check_choice(option: str, given: str, known: Iterable[str]) -> None:
    known = list(known)
    if given not in known:
        raise UserError(f"unknown {option} {given!r}{did_you_mean(given, known)}")
