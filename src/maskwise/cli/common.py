"""Shared code of the commands: options and printing."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from maskwise.models.checkpoints.locations import refuse_unknown_device, refuse_unknown_map
from maskwise.support.errors import UserError
from maskwise.support.files import refuse_checkpoint_folder, refuse_unwritable_folder, to_json
from maskwise.support.terminal import open_console, safe_json, safe_text

ModelName = Annotated[str, typer.Argument(help="A checkpoint folder, embedded or published name.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
Weights = Annotated[str | None, typer.Option(help="fp8: quantise the linear layers (H100, L40S and later).")]


def known_device(given: str | None) -> str | None:
    if given is not None:
        refuse_unknown_device(given)
    return given


def known_map(given: str | None) -> str | None:
    refuse_unknown_map(given)
    return given


def writable(out: Path | None) -> Path | None:
    """Checks every --out that is a folder, before anything is opened."""
    if out is not None:
        refuse_unwritable_folder(out)
    return out


def for_results(out: Path | None) -> Path | None:
    if out is not None:
        refuse_checkpoint_folder(out)
    return writable(out)


Device = Annotated[str | None, typer.Option(help="cpu, cuda, ...", callback=known_device)]
Adapter = Annotated[str | None, typer.Option(help="Folder or name of a PEFT adapter to add to the model.")]
AnyBase = Annotated[
    bool, typer.Option("--any-base", help="Allow an adapter on a base other than the one it was trained on.")
]
DeviceMap = Annotated[str | None, typer.Option(help="auto: spread the layers over all GPUs.", callback=known_map)]
Compile = Annotated[bool, typer.Option("--compile", help="Compile the layers: faster on a GPU in long jobs.")]
CheckWeights = Annotated[
    bool, typer.Option("--check-weights/--no-check-weights", help="Check the weights for NaN and infinity.")
]
LARGEST_SEED = 2**63 - 1
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def print_json(value: Any) -> None:
    if sys.stdout is None:
        raise UserError("standard output is closed: redirect it to a file to have the JSON")
    sys.stdout.write(safe_json(to_json(value)) + "\n")


def echo(text: str, err: bool = False) -> None:
    """A text of any number of lines; names in it are put on one line by who writes it."""
    typer.echo(safe_text(text), err=err)


def print_table(table: Any) -> None:
    open_console().print(table)


def whole_numbers(listed: str | None) -> tuple[int, ...] | None:
    """`1,10` as (1, 10); other texts are returned unchanged for the check to refuse."""
    if listed is None:
        return None
    parts = [part.strip() for part in listed.split(",")]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)
