"""The command line: each command is a few lines that call the library; heavy imports wait until they are needed."""

import json as json_format
import sys
from dataclasses import asdict, replace
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
        except KeyboardInterrupt as stop:
            typer.echo(f"maskwise: interrupted; {str(stop) or 'what was finished so far is kept'}", err=True)
            raise typer.Exit(2) from None


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
    full: Annotated[bool, typer.Option("--full", help="As the paper: every probe, 1000 points a task.")] = False,
    out: Annotated[Path | None, typer.Option(help="Run folder; else one under runs/ named after all settings.")] = None,
    points: Annotated[int | None, typer.Option(help="Test points a task, and passages of text.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the examples and questions.")] = 0,
    chat: Annotated[bool, typer.Option("--chat", help="Ask through the chat template (Instruct models).")] = False,
    words: Annotated[Path | None, typer.Option(help="Word lists of your own: JSON, {category: [word, ...]}.")] = None,
    text: Annotated[Path | None, typer.Option(help="A text file for the natural-text probe.")] = None,
    data: Annotated[
        list[str] | None, typer.Option(help="NAME=PATH of a data set for hotpotqa and labelled-text; repeatable.")
    ] = None,
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
    from maskwise.tasks.datasets import read_datasets
    from maskwise.tasks.words import load_words

    listed, prose, sets = load_words(words), load_text(text), read_datasets(data or [])
    opened = open_model(model, dtype=dtype, device=own_device(device), adapter=adapter)
    folder = run_probes(opened, wanted, out, listed, prose, batch_tokens, sets)
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


@app.command()
def generate(
    model: Annotated[str, typer.Argument(help="A checkpoint folder, embedded or published name.")] = "tiny-llada",
    prompt: Annotated[str | None, typer.Argument(help="The prompt; - reads standard input, one prompt a line.")] = None,
    file: Annotated[Path | None, typer.Option(help="Prompts from a file: one a line, or .jsonl with prompt.")] = None,
    new: Annotated[int, typer.Option("--max-new-tokens", "-n", help="Masks after the prompt.")] = 64,
    steps: Annotated[int | None, typer.Option(help="Steps in all; else one token a step.")] = None,
    block: Annotated[int | None, typer.Option(help="Tokens worked on at a time; else all.")] = None,
    rule: Annotated[str, typer.Option(help="Which tokens a step commits; see the guide.")] = "low-confidence",
    knob: Annotated[
        list[str] | None, typer.Option(help="A setting of the rule, like tau=0.8; may be repeated.")
    ] = None,
    canvas: Annotated[str | None, typer.Option(help="fixed, blocks, growing or window.")] = None,
    window: Annotated[int | None, typer.Option(help="Masks shown past the block (canvas window).")] = None,
    cache: Annotated[str, typer.Option(help="none, prefix or dual; the last two are approximate.")] = "none",
    refresh: Annotated[int | None, typer.Option(help="Steps between full passes (with a cache).")] = None,
    temperature: Annotated[float, typer.Option(help="0 is greedy.")] = 0.0,
    top_k: Annotated[int | None, typer.Option(help="Sample among the k likeliest tokens.")] = None,
    top_p: Annotated[float | None, typer.Option(help="Sample among the fewest tokens that hold this share.")] = None,
    guidance: Annotated[float, typer.Option(help="Scale of classifier-free guidance.")] = 0.0,
    forbid_end: Annotated[bool, typer.Option("--forbid-end", help="Never the end token.")] = False,
    late_end: Annotated[bool, typer.Option("--late-end", help="End tokens only when nothing else is left.")] = False,
    early_stop: Annotated[bool, typer.Option("--early-stop", help="Stop when only end tokens remain.")] = False,
    soft_mask: Annotated[bool, typer.Option("--soft-mask", help="Show open masks as mixtures.")] = False,
    divergence: Annotated[bool, typer.Option("--divergence", help="Decode exactly too, and compare.")] = False,
    chat: Annotated[bool | None, typer.Option("--chat/--no-chat", help="Else where the tokenizer has one.")] = None,
    batch: Annotated[int, typer.Option(help="Prompts at a time.")] = 8,
    seed: Annotated[int, typer.Option(help="Draws samples.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A .jsonl file for the traces, written as prompts finish.")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Only the new text, at the end.")] = False,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    adapter: Annotated[str | None, typer.Option(help="A PEFT adapter to put on the model.")] = None,
    json: Json = False,
) -> None:
    """Continue prompts, or fill in the masks inside them; in a terminal the canvas fills in as you watch."""
    import torch
    from rich.console import Console

    from maskwise.decoding.prompting import gather_prompts, has_chat
    from maskwise.decoding.rules import find_rule, parse_knobs
    from maskwise.decoding.session import run
    from maskwise.decoding.softmask import SoftMask
    from maskwise.models.opening import open as open_model

    if prompt is None and " " in model and not Path(model).exists():
        raise UserError(f'{model!r} reads like a prompt: name the model first, like maskwise generate tiny-llada "..."')
    knobs = parse_knobs(knob or [])
    find_rule(rule, knobs)
    prompts = gather_prompts(prompt, file, sys.stdin)
    opened = open_model(model, dtype=dtype, device=device, adapter=adapter)
    options = {
        "max_new_tokens": new, "steps": steps, "block": block, "rule": rule, "knobs": knobs or None, "canvas": canvas,
        "window": window, "cache": cache, "refresh": refresh, "temperature": temperature, "top_k": top_k,
        "top_p": top_p, "guidance": guidance, "forbid_end": forbid_end, "late_end": late_end,
        "early_stop": early_stop, "soft_mask": SoftMask() if soft_mask else None,
        "generator": torch.Generator(opened.device).manual_seed(seed),
    }  # fmt: skip
    live = Console() if sys.stdout.isatty() and not (plain or json or opened.causal) else None
    if prompt is None and file is None and live is None and not json:
        typer.echo(f"maskwise: no prompt was given, so here is one to try\n\n{prompts[0]}", err=True)
    traced = run(opened, prompts, has_chat(opened) if chat is None else chat, batch, options, out, live, divergence)
    if json:
        return _print_json(traced | {"seed": seed})
    if live is None and out is None:
        typer.echo("\n\n".join(trace["text"] for trace in traced["generations"]))
    if divergence:
        found = traced["divergence"]
        typer.echo(f"{found['agreement']:.1%} of {found['tokens']} tokens are those of exact decoding", err=True)


@app.command()
def score(
    model: Annotated[str, typer.Argument(help="A checkpoint folder, embedded or published name.")],
    data: Annotated[Path, typer.Option(help="A .jsonl file; each line has prompt and answer.")],
    method: Annotated[str, typer.Option(help="auto, monte-carlo, exact or chain (another quantity).")] = "auto",
    samples: Annotated[int, typer.Option(help="Draws of the Monte Carlo estimate.")] = 128,
    masks: Annotated[int, typer.Option(help="Masks after the answer.")] = 0,
    seed: Annotated[int, typer.Option(help="Draws the masked sets.")] = 0,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    adapter: Annotated[str | None, typer.Option(help="A PEFT adapter to put on the model.")] = None,
    json: Json = False,
) -> None:
    """Say how likely given answers are, in nats; every line states the estimator and the forward passes it took."""
    import torch

    from maskwise.decoding.prompting import read_records
    from maskwise.decoding.session import score_all
    from maskwise.models.opening import open as open_model

    records = read_records(data, {"prompt", "answer"})
    opened = open_model(model, dtype=dtype, device=device, adapter=adapter)
    found = score_all(opened, records, method, samples, masks, torch.Generator(opened.device).manual_seed(seed))
    if json:
        lines = [record | asdict(one) for record, one in zip(records, found, strict=True)]
        settings = {"method": method, "samples": samples, "masks": masks, "seed": seed}
        return _print_json({"model": model, "settings": settings, "scores": lines})
    for record, one in zip(records, found, strict=True):
        typer.echo(f"{one.log_likelihood:12.4f}  {one.method:11}  {one.forwards:4} passes  {record['answer']!r}")


@app.command()
def compare(
    names: Annotated[list[str], typer.Argument(help="Models, adapter folders or run folders; the first is before.")],
    quick: Annotated[bool, typer.Option("--quick", help="A first look: short prompts, 4 tasks, few points.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for the page; else one beside the first run.")] = None,
    points: Annotated[int | None, typer.Option(help="Test points a task, and passages of text.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the examples and questions.")] = 0,
    chat: Annotated[bool, typer.Option("--chat", help="Ask through the chat template (Instruct models).")] = False,
    batch_tokens: Annotated[int | None, typer.Option(help="Tokens a batch; halved when memory runs out.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    json: Json = False,
) -> None:
    """Did tuning help, and what did it cost? The same questions to each model, and what changed from the first."""
    from maskwise.probes import settings as presets

    if len(names) < 2:
        raise UserError("name at least two models or run folders to compare")
    from maskwise.probes.runner import join_crew, own_device
    from maskwise.report import compare as comparison

    wanted = comparison.compare_settings(presets.QUICK if quick else presets.DEFAULT, points, seed, chat)
    presets.check(wanted)
    folders = [comparison.run_of(name, wanted, dtype, own_device(device), batch_tokens) for name in names]
    if join_crew().rank > 0:
        return
    from maskwise.report.page import home_of, write_page
    from maskwise.report.terminal import print_changes

    result, readings, rows = comparison.compare(folders)
    page = write_page(readings, out or home_of(readings), rows)
    if json:
        return _print_json(result | {"report": str(page)})
    print_changes([reading.label for reading in readings], rows)
    typer.echo(f"report: {page}")


@app.command()
def export(
    model: Annotated[str, typer.Argument(help="The checkpoint the adapter was trained on.")],
    out: Annotated[str, typer.Option("--out", help="Folder for the merged checkpoint.")],
    adapter: Annotated[str | None, typer.Option(help="The adapter; not needed for an embedded BASE+NAME.")] = None,
    json: Json = False,
) -> None:
    """Merge an adapter into its checkpoint, in the original's own files, names and configuration."""
    from maskwise.models.export import export as export_checkpoint

    folder = export_checkpoint(model, out, adapter)
    if json:
        return _print_json({"model": model, "adapter": adapter, "out": str(folder)})
    typer.echo(f"wrote {folder}: opens like {model}, with the adapter merged into its weights")


@app.command()
def tune(
    model: Annotated[str, typer.Argument(help="A checkpoint folder, embedded or published name.")],
    data: Annotated[Path, typer.Option(help="Pairs as .jsonl (prompt/answer, question/answer, messages), or text.")],
    out: Annotated[Path, typer.Option(help="Folder for the adapter and its checkpoints.")],
    preset: Annotated[str, typer.Option(help="paper-base or paper-instruct.")] = "paper-base",
    alpha: Annotated[float | None, typer.Option(help="Weight of the cross-entropy; 0 is TV alone.")] = None,
    beta: Annotated[float | None, typer.Option(help="Weight of the total variation; 0 is CE alone.")] = None,
    one_branch: Annotated[bool | None, typer.Option("--one-branch", help="Gradient through one view only.")] = None,
    steps: Annotated[int | None, typer.Option(help="Optimiser steps.")] = None,
    batch: Annotated[int | None, typer.Option(help="Pairs a micro-batch and process.")] = None,
    accumulation: Annotated[int | None, typer.Option(help="Micro-batches a step.")] = None,
    rate: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Steps until the full rate.")] = None,
    decay: Annotated[str | None, typer.Option(help="Of the rate: constant, linear or cosine.")] = None,
    clip: Annotated[float | None, typer.Option(help="Largest norm of the gradient.")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay.")] = None,
    context: Annotated[int | None, typer.Option(help="Tokens of prompt, answer and masks together.")] = None,
    max_masks: Annotated[int | None, typer.Option(help="Most masks appended.")] = None,
    curriculum: Annotated[int | None, typer.Option(help="Micro-batches until that many.")] = None,
    pad_eos: Annotated[bool | None, typer.Option("--pad-eos", help="Pad visibly, as the paper, not pack.")] = None,
    full: Annotated[bool | None, typer.Option("--full", help="Tune all weights instead of an adapter.")] = None,
    lora_rank: Annotated[int | None, typer.Option(help="Rank of the adapter.")] = None,
    lora_alpha: Annotated[int | None, typer.Option(help="Scale of the adapter.")] = None,
    lora_dropout: Annotated[float | None, typer.Option(help="Dropout before the adapter.")] = None,
    targets: Annotated[str | None, typer.Option(help="Regular expression of the maps to adapt.")] = None,
    bf16: Annotated[bool | None, typer.Option("--bf16/--no-bf16", help="Autocast; on CUDA by default.")] = None,
    checkpointing: Annotated[bool | None, typer.Option("--checkpointing", help="Trade time for memory.")] = None,
    save_every: Annotated[int | None, typer.Option(help="Steps between checkpoints.")] = None,
    eval_every: Annotated[int | None, typer.Option(help="Steps between evaluations; 0 for none between.")] = None,
    held_out: Annotated[int | None, typer.Option(help="Pairs kept for evaluation.")] = None,
    few: Annotated[int | None, typer.Option(help="Masks appended at evaluation: few...")] = None,
    many: Annotated[int | None, typer.Option(help="... and many.")] = None,
    seed: Annotated[int | None, typer.Option(help="Draws order, noise and mask counts.")] = None,
    tensorboard: Annotated[bool | None, typer.Option("--tensorboard/--no-tensorboard", help="Write OUT/logs.")] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    json: Json = False,
) -> None:
    """Teach a model to ignore appended masks (mask-agnostic loss, LoRA). Run again, it goes on where it stopped."""
    from maskwise.tuning.settings import settings_from

    changes = {
        "alpha": alpha, "beta": beta, "one_branch": one_branch, "steps": steps, "batch": batch, "rate": rate,
        "accumulation": accumulation, "warmup": warmup, "decay": decay, "clip": clip, "weight_decay": weight_decay,
        "context": context, "max_masks": max_masks, "curriculum": curriculum, "pad_eos": pad_eos, "full": full,
        "lora_rank": lora_rank, "lora_alpha": lora_alpha, "lora_dropout": lora_dropout, "targets": targets,
        "bf16": bf16, "checkpointing": checkpointing, "save_every": save_every, "eval_every": eval_every,
        "held_out": held_out, "few": few, "many": many, "seed": seed,
    }  # fmt: skip
    settings = settings_from(preset, changes)
    from maskwise.tuning.tune import is_main_process, summary_lines
    from maskwise.tuning.tune import tune as run_tuning

    finished = (out / "result.json").exists()
    result = run_tuning(model, data, out, settings, dtype, device, tensorboard)
    if not is_main_process():
        return
    if json:
        return _print_json(result)
    if finished:
        typer.echo("maskwise: this run was finished before; these are its figures", err=True)
    typer.echo("\n".join(summary_lines(result)))


@app.command()
def toy(
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the figure and toy.json.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the starting weights.")] = 0,
    json: Json = False,
) -> None:
    """Train a model on 100 short sequences and show what parallel decoding makes of two coupled tokens."""
    from maskwise.probes import toy as experiment
    from maskwise.probes.runner import progress_bar
    from maskwise.report.files import make_folder, write_result
    from maskwise.report.toy import three_sentences, toy_figure, toy_table

    folder = make_folder(out or Path("runs") / "toy")
    with progress_bar(silent=False) as bar:
        task = bar.add_task("Training", total=experiment.STEPS)
        found = experiment.toy(seed, advance=lambda: bar.advance(task))
    write_result(folder, "toy", found.summary(), toy_figure(found))
    if json:
        return _print_json(found.summary())
    _print_table(toy_table(found))
    for sentence in three_sentences(found):
        typer.echo(f"\n{sentence}")
    typer.echo(f"\nfigure: {folder / 'toy.svg'}")


@app.command()
def cures(
    model: Annotated[str, typer.Argument(help="A checkpoint folder, embedded or published name.")] = "tiny-llada",
    adapter: Annotated[str | None, typer.Option(help="A mask-agnostic adapter of it; else the embedded one.")] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the figure and cures.json.")] = None,
    points: Annotated[int | None, typer.Option(help="Questions a task.")] = None,
    seed: Annotated[int, typer.Option(help="Draws the examples and questions.")] = 0,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
    device: Annotated[str | None, typer.Option(help="cpu, cuda, ...")] = None,
    json: Json = False,
) -> None:
    """Every cure for distracting masks on one model: accuracy at 200 masks, tokens per forward pass, training."""
    from maskwise.models.catalog import embedded_models, locate_checkpoint
    from maskwise.models.opening import open as open_model
    from maskwise.probes import cures as league
    from maskwise.probes.runner import progress_bar
    from maskwise.report.cures import cures_figure, cures_table, what_it_shows
    from maskwise.report.files import make_folder, write_result

    if points is not None and points < 1:
        raise UserError(f"--points must be at least 1, not {points}")
    opened = open_model(model, dtype, device)
    embedded = f"{model}+ma" if f"{model}+ma" in embedded_models() else None
    home = Path(adapter) if adapter else locate_checkpoint(embedded)[1] if embedded else None
    tuned = open_model(model, dtype, device, adapter=home) if home else None
    exam = replace(league.DEFAULT, points=points or league.DEFAULT.points, seed=seed)
    folder = make_folder(out or Path("runs") / f"cures-{Path(model).name}")
    with progress_bar(silent=False) as bar:
        task = bar.add_task("Asking", total=league.asked(exam, tuned is not None))
        training = league.describe_training(home) if home else ""
        found = league.cures(opened, tuned, training, exam, lambda count: bar.advance(task, count))
    write_result(folder, "cures", found, cures_figure(found))
    if json:
        return _print_json(found)
    _print_table(cures_table(found))
    for sentence in what_it_shows(found):
        typer.echo(f"\n{sentence}")
    typer.echo(f"\nfigure: {folder / 'cures.svg'}")


def _print_table(table: Any) -> None:
    from rich.console import Console

    Console(highlight=False).print(table)


def main() -> None:
    app()


if __name__ == "__main__":
    main()
