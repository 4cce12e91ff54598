"""Commands that generate text, or say how likely a given text is."""

import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskwise.cli.common import (
    LARGEST_SEED,
    Adapter,
    CheckWeights,
    Compile,
    Device,
    Dtype,
    Json,
    ModelName,
    Weights,
    echo,
    print_json,
)
from maskwise.cli.early import check_choice, check_models
from maskwise.cli.fields import Spelling, takes_fields
from maskwise.decoding.options import DecodingOptions
from maskwise.decoding.strategies import STRATEGIES, parse_parameters, strategy_named_by
from maskwise.support.errors import UserError
from maskwise.support.files import partial_of, read_records, refuse_unwritable
from maskwise.support.imports import command_imports
from maskwise.support.terminal import open_console

if TYPE_CHECKING:
    from maskwise.decoding.likelihood import Likelihood

SPELLED = {
    "rule": Spelling(str, "--rule", f"One of {', '.join(strategy.name for strategy in STRATEGIES)}."),
    "parameters": Spelling(list[str] | None, "--parameter", "May be repeated."),
    "end_ids": Spelling(list[int] | None, "--end-id", "May be repeated."),
    "soft_mask": Spelling(bool, "--soft-mask"),
}


@takes_fields(DecodingOptions, SPELLED)
def generate(
    model: ModelName = "tiny-llada",
    prompt: Annotated[str | None, typer.Argument(help="The prompt; - reads standard input, one per line.")] = None,
    file: Annotated[Path | None, typer.Option(help="Prompts from a file: one per line, or .jsonl with prompt.")] = None,
    options: Any = None,
    knob: Annotated[list[str] | None, typer.Option(hidden=True)] = None,
    divergence: Annotated[bool, typer.Option("--divergence", help="Decode exactly too, and compare.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Prompts at a time.")] = 8,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A .jsonl file for the traces, written whole.")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Only the new text, at the end.")] = False,
    dtype: Dtype = "auto",
    weights: Weights = None,
    device: Device = None,
    adapter: Adapter = None,
    check_weights: CheckWeights = True,
    compile: Compile = False,
    json: Json = False,
) -> None:
    """Continue prompts, or fill in the masks inside them; a terminal shows the canvas while it fills in."""
    if prompt is None and " " in model and not Path(model).exists():
        raise UserError(f'{model!r} reads like a prompt: name the model first, like maskwise generate tiny-llada "..."')
    if knob:
        echo("maskwise: --knob is now called --parameter", err=True)
    chosen = decoding_options(options, knob or [])
    check_models([model], adapter, dtype, weights)
    refuse_unwritable(out)
    from maskwise.cli.prompt_files import gather_prompts

    prompts = gather_prompts(prompt, file, sys.stdin)
    with command_imports(compiled=compile or weights is not None):
        from maskwise.cli.generating import generate_all
        from maskwise.decoding.request import refuse_by_configuration
        from maskwise.models.checkpoints.opening import open as open_model

    refuse_by_configuration(model, chosen)
    opened = open_model(
        model, dtype=dtype, device=device, adapter=adapter, check_weights=check_weights, weights=weights
    )
    if chosen.cache != "none" and chosen.block is None and opened.block is None and not opened.causal:
        echo(
            f"maskwise: --cache {chosen.cache} without --block: one block, so the cache holds the prompt alone and is "
            f"refreshed once{_a_block_to_try(chosen.max_new_tokens)}", err=True,
        )  # fmt: skip
    if compile:
        opened.compile_layers()
    live = open_console() if sys.stdout.isatty() and not (plain or json or opened.causal) else None
    if prompt is None and file is None and live is None and not json:
        echo(f"maskwise: no prompt was given, so here is one to try\n\n{prompts[0]}", err=True)
    try:
        result = generate_all(opened, prompts, batch, chosen, seed, out, live, divergence)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("" if out is None else f"the finished prompts are in {partial_of(out)}") from None
    if json:
        return print_json(result | {"seed": seed})
    if live is None and out is None:
        echo("\n\n".join(trace["text"] for trace in result["generations"]))
    if divergence:
        found = result["divergence"]
        echo(f"{found['agreement']:.1%} of {found['tokens']} tokens are those of exact decoding", err=True)


def _a_block_to_try(new: int) -> str:
    """In a sentence: the largest of 32, 16, 8 and 4 that makes several blocks of so many tokens."""
    fitting = [size for size in (32, 16, 8, 4) if new % size == 0 and size < new]
    return f"; --block {fitting[0]} decodes block by block" if fitting else ""


def decoding_options(values: dict[str, Any], knobs: list[str]) -> DecodingOptions:
    """The options from their values on the command line, where parameters are written like tau=0.8."""
    parameters = parse_parameters([*(values["parameters"] or []), *knobs]) or None
    rule = strategy_named_by(parameters, values["rule"])
    changed = {"rule": rule, "parameters": parameters, "end_ids": values["end_ids"] or None}
    return DecodingOptions(**(values | changed))


def score(
    model: ModelName,
    data: Annotated[Path, typer.Option(help="A .jsonl file; each line has prompt and answer.")],
    method: Annotated[str, typer.Option(help="auto, monte-carlo, exact or chain (another quantity).")] = "auto",
    samples: Annotated[int, typer.Option(min=1, help="Draws of the Monte Carlo estimate.")] = 128,
    masks: Annotated[int, typer.Option(min=0, help="Masks after the answer.")] = 0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Draws the masked sets.")] = 0,
    dtype: Dtype = "auto",
    weights: Weights = None,
    device: Device = None,
    adapter: Adapter = None,
    check_weights: CheckWeights = True,
    compile: Compile = False,
    json: Json = False,
) -> None:
    """Say how likely given answers are, in nats; every line states the estimator and the forward passes it took."""
    check_models([model], adapter, dtype, weights)
    check_choice("method", method, ("auto", "monte-carlo", "exact", "chain"))
    records = read_records(data, {"prompt", "answer"})
    with command_imports(compiled=compile or weights is not None):
        from maskwise.cli.generating import score_all
        from maskwise.models.checkpoints.opening import open as open_model

    opened = open_model(
        model, dtype=dtype, device=device, adapter=adapter, check_weights=check_weights, weights=weights
    )
    if compile:
        opened.compile_layers()
    found = score_all(opened, records, method, samples, masks, seed)
    if json:
        lines = [record | _fields(one) for record, one in zip(records, found, strict=True)]
        settings = {"method": method, "samples": samples, "masks": masks, "seed": seed}
        return print_json({"model": model, "settings": settings, "scores": lines})
    echo(f"{'log-likelihood':>14}  {'tokens':>6}  {'estimator':11}  {'passes':>6}  {'masks':>5}  answer")
    for record, one in zip(records, found, strict=True):
        numbers = f"{one.log_likelihood:14.4f}  {one.tokens:6}  {one.method:11}  {one.forwards:6}  {one.masks:5}"
        echo(f"{numbers}  {shortened(repr(record['answer']), 26)}")
    total, tokens = sum(one.log_likelihood for one in found), sum(one.tokens for one in found)
    passes = sum(one.forwards for one in found)
    echo(f"{total:14.4f}  {tokens:6}  {'total':11}  {passes:6}  {'':5}  {total / tokens:.4f} nats per token")


def _fields(found: "Likelihood") -> dict[str, Any]:
    """Without what is said of block diffusion models alone."""
    return {name: value for name, value in asdict(found).items() if name != "visible" or value is not None}


def shortened(text: str, longest: int) -> str:
    """--json has it whole."""
    return text if len(text) <= longest else text[: longest - 1] + "…"
