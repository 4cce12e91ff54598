"""What several commands share: their options, and how they print."""

import sys
from typing import Annotated, Any

import typer

from maskwise.models.checkpoints.locations import refuse_unknown_device
from maskwise.support.errors import UserError
from maskwise.support.files import to_json
from maskwise.support.terminal import open_console, safe_json, safe_text

ModelName = Annotated[str, typer.Argument(help="A checkpoint folder, embedded or published name.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
Weights = Annotated[
    str | None, typer.Option(help="Quantise the layers' maps: fp8 (H100, L40S and later) or int4 (for small cards).")
]


def known_device(given: str | None) -> str | None:
    if given is not None:
        refuse_unknown_device(given)
    return given


Device = Annotated[str | None, typer.Option(help="cpu, cuda, ...", callback=known_device)]
Adapter = Annotated[str | None, typer.Option(help="A PEFT adapter to put on the model.")]
AnyBase = Annotated[
    bool, typer.Option("--any-base", help="Put an adapter also on another base than the one it was trained on.")
]
Compile = Annotated[bool, typer.Option("--compile", help="Compile the layers: pays on a GPU after a minute of work.")]
CheckWeights = Annotated[
    bool, typer.Option("--check-weights/--no-check-weights", help="Look for NaN and infinity when the model is opened.")
]
LARGEST_SEED = 2**63 - 1
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


EndpointUrl = Annotated[
    str | None,
    typer.Option(help="Address of a server that speaks the OpenAI completions protocol; its key: MASKWISE_API_KEY."),
]
ServedModel = Annotated[str | None, typer.Option("--model", help="--endpoint: the model's name on the server.")]
Concurrency = Annotated[int, typer.Option(help="--endpoint: requests at a time.  [1 or more]")]


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
    """`1,10` as (1, 10); whatever is no number is left for the check to refuse."""
    if listed is None:
        return None
    parts = [part.strip() for part in listed.split(",")]
    return tuple(int(part) if part.isdecimal() else 0 for part in parts)
