"""What several commands share: their options, and how they print."""

import sys
from typing import Annotated, Any

import typer

from maskwise.files import to_json

ModelName = Annotated[str, typer.Argument(help="A checkpoint folder, embedded or published name.")]
Dtype = Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, ...")]
Adapter = Annotated[str | None, typer.Option(help="A PEFT adapter to put on the model.")]
Compile = Annotated[bool, typer.Option("--compile", help="Compile the layers: pays on a GPU after a minute of work.")]
CheckWeights = Annotated[
    bool, typer.Option("--check-weights/--no-check-weights", help="Look for NaN and infinity when the model is opened.")
]
LARGEST_SEED = 2**63 - 1
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def print_json(value: Any) -> None:
    sys.stdout.write(to_json(value) + "\n")


def print_table(table: Any) -> None:
    from rich.console import Console

    Console(highlight=False).print(table)
