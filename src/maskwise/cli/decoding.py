"""Commands that bring text out of a model, or say how likely a given text is."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from maskwise.cli.common import LARGEST_SEED, Adapter, Compile, Device, Dtype, Json, ModelName, print_json
from maskwise.errors import UserError


def generate(
    model: ModelName = "tiny-llada",
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
    early_stop: Annotated[bool, typer.Option("--early-stop", help="Stop at an end with no mask before it.")] = False,
    soft_mask: Annotated[bool, typer.Option("--soft-mask", help="Show open masks as mixtures.")] = False,
    divergence: Annotated[bool, typer.Option("--divergence", help="Decode exactly too, and compare.")] = False,
    chat: Annotated[bool | None, typer.Option("--chat/--no-chat", help="Else where the tokenizer has one.")] = None,
    batch: Annotated[int, typer.Option(help="Prompts at a time.")] = 8,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Draws samples.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A .jsonl file for the traces, written as prompts finish.")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Only the new text, at the end.")] = False,
    dtype: Dtype = "auto",
    device: Device = None,
    adapter: Adapter = None,
    compile: Compile = False,
    json: Json = False,
) -> None:
    """Continue prompts, or fill in the masks inside them; in a terminal the canvas fills in as you watch."""
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
    if compile:
        opened.compile_layers()
    options = {
        "max_new_tokens": new, "steps": steps, "block": block, "rule": rule, "knobs": knobs or None, "canvas": canvas,
        "window": window, "cache": cache, "refresh": refresh, "temperature": temperature, "top_k": top_k,
        "top_p": top_p, "guidance": guidance, "forbid_end": forbid_end, "late_end": late_end,
        "early_stop": early_stop, "soft_mask": SoftMask() if soft_mask else None,
    }  # fmt: skip
    live = Console() if sys.stdout.isatty() and not (plain or json or opened.causal) else None
    if prompt is None and file is None and live is None and not json:
        typer.echo(f"maskwise: no prompt was given, so here is one to try\n\n{prompts[0]}", err=True)
    chats = has_chat(opened) if chat is None else chat
    traced = run(opened, prompts, chats, batch, options, seed, out, live, divergence)
    if json:
        return print_json(traced | {"seed": seed})
    if live is None and out is None:
        typer.echo("\n\n".join(trace["text"] for trace in traced["generations"]))
    if divergence:
        found = traced["divergence"]
        typer.echo(f"{found['agreement']:.1%} of {found['tokens']} tokens are those of exact decoding", err=True)


def score(
    model: ModelName,
    data: Annotated[Path, typer.Option(help="A .jsonl file; each line has prompt and answer.")],
    method: Annotated[str, typer.Option(help="auto, monte-carlo, exact or chain (another quantity).")] = "auto",
    samples: Annotated[int, typer.Option(help="Draws of the Monte Carlo estimate.")] = 128,
    masks: Annotated[int, typer.Option(help="Masks after the answer.")] = 0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Draws the masked sets.")] = 0,
    dtype: Dtype = "auto",
    device: Device = None,
    adapter: Adapter = None,
    compile: Compile = False,
    json: Json = False,
) -> None:
    """Say how likely given answers are, in nats; every line states the estimator and the forward passes it took."""
    from maskwise.decoding.prompting import read_records
    from maskwise.decoding.session import score_all
    from maskwise.models.opening import open as open_model

    records = read_records(data, {"prompt", "answer"})
    opened = open_model(model, dtype=dtype, device=device, adapter=adapter)
    if compile:
        opened.compile_layers()
    found = score_all(opened, records, method, samples, masks, seed)
    if json:
        lines = [record | asdict(one) for record, one in zip(records, found, strict=True)]
        settings = {"method": method, "samples": samples, "masks": masks, "seed": seed}
        return print_json({"model": model, "settings": settings, "scores": lines})
    for record, one in zip(records, found, strict=True):
        told = f"{one.log_likelihood:12.4f}  {one.method:11}  {one.forwards:4} passes  {record['answer']!r}"
        typer.echo(f"{told}  with {one.masks} masks after it")
