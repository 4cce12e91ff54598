"""The command line: each command is a few lines that call the library; heavy imports wait until they are needed."""

import json as json_format
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from maskwise import __version__
from maskwise.errors import UserError


class _Commands(typer.core.TyperGroup):
    def invoke(self, ctx: Any) -> Any:
        """A user's mistake is one line on standard error and exit status 2, never a traceback."""
        try:
            return super().invoke(ctx)
        except UserError as problem:
            typer.echo(f"maskwise: {problem}", err=True)
            raise typer.Exit(2) from None
        except KeyboardInterrupt:
            typer.echo("maskwise: interrupted; what was finished so far is kept", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=_Commands,
    help="Diagnose, cure and decode masked diffusion language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def _print_json(value: Any) -> None:
    sys.stdout.write(json_format.dumps(value, ensure_ascii=False) + "\n")


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"maskwise {__version__}")
        raise typer.Exit()


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def models(
    name: Annotated[str | None, typer.Argument(help="One model; all known ones without it.")] = None, json: Json = False
) -> None:
    """List the models: embedded ones, published names, or what a folder holds."""
    from maskwise.models.catalog import PUBLISHED, describe, embedded_models

    entries = [describe(known) for known in ([name] if name else [*embedded_models(), *PUBLISHED])]
    if json:
        return _print_json({"models": entries})
    from rich.console import Console
    from rich.table import Column, Table

    table = Table(Column("model", no_wrap=True), "kind", "size", "window", "mask id", "reads", box=None)
    for entry in entries:
        reads = "left only" if entry["causal"] else "both sides, shifted" if entry["shift"] else "both sides"
        mask = "-" if entry["mask_id"] is None else str(entry["mask_id"])
        count = entry["parameters"]
        size = f"{count / 1e9:.1f} B" if count >= 1e9 else f"{count / 1e6:.1f} M"
        table.add_row(entry["name"], entry["kind"], size, str(entry["window"]), mask, reads)
    Console().print(table)
    if name:
        typer.echo(f"adapters go on: {entries[0]['lora_targets']}")


@app.command()
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
        return _print_json({"source": source, "out": out, "model": describe(out)})
    typer.echo(f"wrote {out}: bidirectional, shifted, mask id {describe(out)['mask_id']}; train it before you use it")


@app.command()
def verify(
    model: Annotated[str, typer.Argument(help="A checkpoint folder that carries its original code.")],
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    json: Json = False,
) -> None:
    """Compare our classes with the checkpoint's own code. This runs that code: only for checkpoints you trust."""
    from maskwise.models.verify import verify as verify_checkpoint

    typer.echo(f"warning: running the Python code that comes with {model}", err=True)
    result = verify_checkpoint(model, dtype, device)
    if json:
        return _print_json(result)
    for key, value in result.items():
        typer.echo(f"{key.replace('_', ' '):28} {value}")


@app.command()
def diagnose(
    model: Annotated[str, typer.Argument(help="A checkpoint folder, embedded or published name.")] = "tiny-llada",
    probes: Annotated[str | None, typer.Option(help="Which probes, separated by commas; else the preset's.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A first look: short prompts, 4 tasks, few points.")] = False,
    full: Annotated[bool, typer.Option("--full", help="As the paper: 1000 points a task.")] = False,
    out: Annotated[Path | None, typer.Option(help="Run folder; else one under runs/ named after all settings.")] = None,
    points: Annotated[int | None, typer.Option(help="Test points a task, and passages of text.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the examples and questions.")] = 0,
    chat: Annotated[bool, typer.Option("--chat", help="Ask through the chat template (Instruct models).")] = False,
    words: Annotated[Path | None, typer.Option(help="Word lists of your own: JSON, {category: [word, ...]}.")] = None,
    text: Annotated[Path | None, typer.Option(help="A text file for the natural-text probe.")] = None,
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens a batch; halved when memory runs out.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    adapter: Annotated[str | None, typer.Option(help="A PEFT adapter to put on the model.")] = None,
    json: Json = False,
) -> None:
    """Ask where a model looks and what masks do to it; writes a report. Run again, it goes on where it stopped."""
    from maskwise.probes import settings as presets

    if quick and full:
        raise UserError("--quick and --full exclude each other: name one")
    preset = presets.QUICK if quick else presets.FULL if full else presets.DEFAULT
    named = tuple(name.strip() for name in probes.split(",")) if probes is not None else preset.probes
    wanted = replace(preset, probes=named, seed=seed, chat=chat)
    wanted = wanted if points is None else replace(wanted, points=points, passages=points)
    presets.check(wanted)

    from maskwise.models.opening import open as open_model
    from maskwise.probes.diagnose import diagnose as run_probes
    from maskwise.probes.natural import load_text
    from maskwise.probes.records import read_run
    from maskwise.probes.runner import join_crew, own_device
    from maskwise.probes.scores import summarise
    from maskwise.tasks.words import load_words

    listed, prose = load_words(words), load_text(text)
    opened = open_model(model, dtype=dtype, device=own_device(device), adapter=adapter)
    folder = run_probes(opened, wanted, out, listed, prose, batch_tokens)
    if join_crew().rank > 0:
        return
    from maskwise.report.page import write_report
    from maskwise.report.terminal import print_summary

    page = write_report([folder], folder)
    summary = summarise(read_run(folder))
    if json:
        return _print_json(summary)
    print_summary(summary)
    typer.echo(f"report: {page}")


@app.command()
def report(
    folders: Annotated[list[Path], typer.Argument(help="Run folders written by maskwise diagnose.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the page and its figures.")] = None,
    json: Json = False,
) -> None:
    """Draw the report again from run folders alone; several runs are laid side by side."""
    from maskwise.report.page import home_of, write_page
    from maskwise.report.readings import read_all
    from maskwise.report.terminal import print_summary

    readings = read_all(folders)
    page = write_page(readings, out or home_of(readings))
    if json:
        return _print_json({"report": str(page), "runs": [reading.summary for reading in readings]})
    for reading in readings:
        print_summary(reading.summary)
    typer.echo(f"\n{page}")


def main() -> None:
    app()


if __name__ == "__main__":
    main()
