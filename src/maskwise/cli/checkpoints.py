"""Commands about checkpoints: what there is, what it becomes, and whether our classes read it rightly."""

from pathlib import Path
from typing import Annotated

import typer

from maskwise.cli.common import Device, Json, print_json


def models(
    name: Annotated[str | None, typer.Argument(help="One model; all known ones without it.")] = None, json: Json = False
) -> None:
    """List the models: embedded ones, published names, or what a folder holds."""
    from maskwise.models.catalog import PUBLISHED, describe, embedded_models

    entries = [describe(known) for known in ([name] if name else [*embedded_models(), *PUBLISHED])]
    if json:
        return print_json({"models": entries})
    from rich.console import Console
    from rich.table import Column, Table

    short = [Column(head, no_wrap=True) for head in ("kind", "size", "window", "mask id")]
    table = Table(Column("model", overflow="fold"), *short, "reads", box=None)
    for entry in entries:
        reads = "left only" if entry["causal"] else "both sides, shifted" if entry["shift"] else "both sides"
        mask = "-" if entry["mask_id"] is None else str(entry["mask_id"])
        count = entry["parameters"]
        size = f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.1f} M"
        table.add_row(entry["name"], entry["kind"], size, str(entry["window"]), mask, reads)
    Console().print(table)
    if name:
        typer.echo(f"adapters go on: {entries[0]['lora_targets']}")


def convert(
    source: Annotated[str, typer.Argument(help="A Llama or Qwen2 checkpoint.")],
    out: Annotated[str, typer.Option("--out", help="Folder for the converted checkpoint.")],
    json: Json = False,
) -> None:
    """Turn an autoregressive checkpoint into a masked diffusion one (to be trained further)."""
    from maskwise.models.catalog import describe
    from maskwise.models.convert import convert as convert_checkpoint

    convert_checkpoint(source, out)
    if json:
        return print_json({"source": source, "out": out, "model": describe(out)})
    typer.echo(f"wrote {out}: bidirectional, shifted, mask id {describe(out)['mask_id']}; train it before you use it")


def verify(
    model: Annotated[str, typer.Argument(help="A checkpoint folder that carries its original code.")],
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Device = None,
    json: Json = False,
) -> None:
    """Compare our classes with the checkpoint's own code. This runs that code: only for checkpoints you trust."""
    from maskwise.models.verify import verify as verify_checkpoint

    def warn(folder: Path) -> None:
        typer.echo(f"warning: running the Python code in {folder}", err=True)

    result = verify_checkpoint(model, dtype, device, warn)
    if json:
        return print_json(result)
    for key, value in result.items():
        typer.echo(f"{key.replace('_', ' '):28} {value}")


def export(
    model: Annotated[str, typer.Argument(help="The checkpoint the adapter was trained on.")],
    out: Annotated[str, typer.Option("--out", help="Folder for the merged checkpoint.")],
    adapter: Annotated[str | None, typer.Option(help="The adapter; not needed where MODEL is one.")] = None,
    json: Json = False,
) -> None:
    """Merge an adapter into its checkpoint, in the original's own files, names and configuration."""
    from maskwise.models.export import export as export_checkpoint

    folder = export_checkpoint(model, out, adapter)
    if json:
        return print_json({"model": model, "adapter": adapter, "out": str(folder)})
    typer.echo(f"wrote {folder}: opens like {model}, with the adapter merged into its weights")
