"""Commands about checkpoints: list, convert, verify, export."""

from os.path import isdir, isfile
from pathlib import Path
from typing import Annotated

import typer

from maskwise.cli.common import AnyBase, Device, Json, echo, print_json, print_table, writable
from maskwise.cli.early import check_models, check_original_code
from maskwise.models.checkpoints.locations import refuse_plain
from maskwise.support.terminal import one_line


def models(
    name: Annotated[str | None, typer.Argument(help="Model to describe. Default: list all models.")] = None,
    json: Json = False,
) -> None:
    """List the embedded and published models, or describe a checkpoint folder."""
    from maskwise.models.checkpoints.catalog import describe_checkpoint, list_models

    entries = [describe_checkpoint(name)] if name else list_models()
    if name and isdir(name):
        from maskwise.models.checkpoints.examine import examine_fit

        examine_fit(name)
    if json:
        return print_json({"models": entries})
    from maskwise.cli.model_table import model_table, notes_on_all, notes_on_one

    print_table(model_table(entries))
    for line in notes_on_one(entries[0]) if name else notes_on_all():
        echo(line)
    if name and isfile(f"{name}/adapter_config.json"):
        echo(f"{one_line(name)} is an adapter; the table describes its base model")


def convert(
    source: Annotated[str, typer.Argument(help="A Llama or Qwen2 checkpoint.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the converted checkpoint.", callback=writable)],
    shift: Annotated[
        bool, typer.Option(help="Position i is predicted from hidden state i - 1, as in Dream; or from its own.")
    ] = True,
    json: Json = False,
) -> None:
    """Turn an autoregressive checkpoint into a masked diffusion one (to be trained further)."""
    check_models([source])
    from maskwise.models.checkpoints.catalog import describe_checkpoint
    from maskwise.models.checkpoints.convert import convert as convert_checkpoint

    convert_checkpoint(source, out, shift)
    entry = describe_checkpoint(str(out))
    if json:
        return print_json({"source": source, "out": str(out), "model": entry})
    from maskwise.cli.model_table import attention_in_words

    echo(f"wrote {one_line(out)}: {attention_in_words(entry)}, mask id {entry.mask_id}; train it before you use it")


def verify(
    model: Annotated[str, typer.Argument(help="A checkpoint folder that carries its original code.")],
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Device = None,
    json: Json = False,
) -> None:
    """Compare our classes with the checkpoint's own code. This runs that code: only for checkpoints you trust."""
    check_models([model], None, dtype)
    check_original_code(model)
    from maskwise.models.checkpoints.verify import verify as verify_checkpoint

    def warn(folder: Path, elsewhere: list[str]) -> None:
        for repository in elsewhere:
            echo(f"warning: fetching Python code from {one_line(repository)} on the hub and running it", err=True)
        echo(f"warning: running the Python code in {one_line(folder)}", err=True)

    result = verify_checkpoint(model, dtype, device, warn)
    if json:
        return print_json(result)
    for key, value in result.items():
        echo(f"{key.replace('_', ' '):28} {one_line(value)}")
    if result["agrees"]:
        return echo("pass: our class computes what the checkpoint's code computes, up to rounding")
    echo("FAIL: our class and this code give different results, so do not trust other commands on this checkpoint")


def export(
    model: Annotated[str, typer.Argument(help="The checkpoint the adapter was trained on.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for the merged checkpoint.", callback=writable)],
    adapter: Annotated[str | None, typer.Option(help="The adapter; not needed if MODEL is one.")] = None,
    any_base: AnyBase = False,
    json: Json = False,
) -> None:
    """Merge an adapter into its checkpoint, in the original's own files, names and configuration."""
    check_models([model], adapter)
    if adapter is None:
        refuse_plain(model)
    from maskwise.models.checkpoints.export import export as export_checkpoint

    folder = export_checkpoint(model, out, adapter, any_base=any_base)
    if json:
        return print_json({"model": model, "adapter": adapter, "out": str(folder)})
    echo(f"wrote {one_line(folder)}: opens like {one_line(model)}, with the adapter merged into its weights")
