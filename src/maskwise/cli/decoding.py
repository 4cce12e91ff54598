"""Commands that generate text, or say how likely a given text is."""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from maskwise.cli import common
from maskwise.cli.common import LARGEST_SEED, echo, print_json
from maskwise.cli.early import check_choice, check_models, embedded
from maskwise.decoding.known_names import KNOWN_NAMES, chosen_options, is_known
from maskwise.decoding.options import OPTION_NAMES, DecodingOptions
from maskwise.decoding.strategies import STRATEGIES, parse_parameters
from maskwise.models.checkpoints.locations import refuse_swapped
from maskwise.support.errors import UserError
from maskwise.support.files import partial_of, refuse_unwritable
from maskwise.support.garbage_collection import collection_paused
from maskwise.support.option_fields import Spelling, takes_fields
from maskwise.support.progress import progress_bar
from maskwise.support.terminal import one_line, open_console

SPELLED = {
    "rule": Spelling(str, "--rule", f"One of {', '.join(strategy.name for strategy in STRATEGIES)}."),
    "parameters": Spelling(list[str] | None, "--parameter", "May be repeated."),
    "end_ids": Spelling(list[int] | None, "--end-id", "May be repeated."),
    "soft_mask": Spelling(bool, "--soft-mask"),
}


@takes_fields(DecodingOptions, SPELLED, hidden={known.name: known.type for known in KNOWN_NAMES})
def generate(
    model: common.ModelName = "tiny-llada",
    prompt: Annotated[str | None, typer.Argument(help="The prompt; - reads standard input, one per line.")] = None,
    file: Annotated[Path | None, typer.Option(help="Prompts from a file: one per line, or .jsonl with prompt.")] = None,
    options: Any = None,
    divergence: Annotated[bool, typer.Option("--divergence", help="Also decode exactly, and compare tokens.")] = False,
    batch: Annotated[int, typer.Option(min=1, help="Prompts at a time.")] = 8,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the random numbers.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A .jsonl file for the traces, written at the end.")] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Print only the generated text.")] = False,
    dtype: common.Dtype = "auto",
    weights: common.Weights = None,
    device: common.Device = None,
    adapter: common.Adapter = None,
    any_base: common.AnyBase = False,
    device_map: common.DeviceMap = None,
    check_weights: common.CheckWeights = True,
    compile: common.Compile = False,
    json: common.Json = False,
) -> None:
    """Continue prompts, or fill in the masks inside them; in a terminal, shows the masks being filled."""
    if " " in model and not os.path.exists(model):
        raise UserError(f'{model!r} reads like a prompt: name the model first, like maskwise generate tiny-llada "..."')
    refuse_swapped(model, prompt)
    chosen = decoding_options(options)
    check_models([model], adapter, dtype, weights)
    refuse_unwritable(out)
    _note_odd_names(prompt, out)
    from maskwise.decoding.prompt_files import MASK_LIKE, gather_prompts

    if plain and json:
        raise UserError("--plain and --json exclude each other: name one")
    prompts = gather_prompts(prompt, file, sys.stdin)
    if (known := embedded(model)) and not known.causal and not MASK_LIKE.search(str(prompts)):
        chosen.check_masks([0], own_grid=False)  # other models are checked by their configuration, which needs torch
    with collection_paused():
        from maskwise.decoding.checks import note_on_cache, refuse_by_configuration
        from maskwise.decoding.generate import generate as generate_texts
        from maskwise.decoding.live_canvas import decoding_display
        from maskwise.models.checkpoints.opening import opened_model

    refuse_by_configuration(model, chosen)
    choices = {"dtype": dtype, "device": device, "adapter": adapter, "check_weights": check_weights, "weights": weights}
    opened = opened_model(model, any_base=any_base, device_map=device_map, **choices)
    if note := note_on_cache(opened, chosen):
        echo(f"maskwise: {note}", err=True)
    if compile:
        opened.compile_layers()
    live = (
        open_console()
        if sys.stdout is not None and sys.stdout.isatty() and not (plain or json) and not opened.causal
        else None
    )
    if prompt is None and file is None and live is None and not json:
        echo(f"maskwise: no prompt was given, so here is one to try\n\n{prompts[0]}", err=True)
    try:
        with decoding_display(opened, chosen, live) as on_step:
            found = generate_texts(
                opened,
                prompts,
                seed=seed,
                batch=1 if live else batch,
                out=out,
                divergence=divergence,
                on_step=on_step,
                mask_id=options["mask_id"],
                **{name: getattr(chosen, name) for name in OPTION_NAMES},
            )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("" if out is None else f"the finished prompts are in {partial_of(out)}") from None
    if json:
        kept = {"model": found.model, "settings": found.settings, "generations": found.traces}
        return print_json(kept | {"divergence": found.divergence, "seed": seed})
    if live is None and out is None:
        echo("\n\n".join(generation.text for generation in found))
    if same := found.divergence:
        echo(f"{same['agreement']:.1%} of {same['tokens']} tokens are those of exact decoding", err=True)


def _note_odd_names(prompt: str | None, out: Path | None) -> None:
    if prompt is not None and os.path.isfile(prompt):
        line = f"{one_line(prompt)} is a file, and its name is taken as the prompt: did you mean --file?"
        echo(f"maskwise: {line}", err=True)
    if out is not None and out.suffix == ".txt":
        echo(f"maskwise: {one_line(out)} holds JSON lines: name it .jsonl", err=True)


def decoding_options(values: dict[str, Any]) -> DecodingOptions:
    """The options from their values on the command line, where parameters are written like tau=0.8."""
    parameters = parse_parameters(values["parameters"] or []) or None
    changed = {"parameters": parameters, "end_ids": values["end_ids"] or None}
    other = {name: value for name, value in values.items() if is_known(name)}
    return chosen_options({name: values[name] for name in OPTION_NAMES} | changed, other)


def score(
    model: common.ModelName,
    data: Annotated[Path, typer.Option(help="A .jsonl file: prompt and answer, or completion, messages, ...")],
    method: Annotated[str, typer.Option(help="auto, monte-carlo or exact (ELBO), or chain (left to right).")] = "auto",
    samples: Annotated[int, typer.Option(min=1, help="Draws of the Monte Carlo estimate.")] = 128,
    masks: Annotated[int, typer.Option(min=0, help="Masks appended after the answer.")] = 0,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the masked sets.")] = 0,
    dtype: common.Dtype = "auto",
    weights: common.Weights = None,
    device: common.Device = None,
    adapter: common.Adapter = None,
    any_base: common.AnyBase = False,
    device_map: common.DeviceMap = None,
    check_weights: common.CheckWeights = True,
    compile: common.Compile = False,
    json: common.Json = False,
) -> None:
    """Compute log-likelihoods of given answers (nats); each line states the estimator and its forward passes."""
    check_models([model], adapter, dtype, weights)
    check_choice("method", method, ("auto", "monte-carlo", "exact", "chain"))
    if samples != 128 and method in ("exact", "chain"):
        raise UserError(f"--method {method} draws nothing: leave --samples out")
    from maskwise.decoding.prompt_files import read_requests

    requests = read_requests(data)
    with collection_paused():
        from maskwise.decoding.score import likelihood_fields, score_lines, score_requests
        from maskwise.models.checkpoints.opening import opened_model

    choices = {"dtype": dtype, "device": device, "adapter": adapter, "check_weights": check_weights, "weights": weights}
    opened = opened_model(model, any_base=any_base, device_map=device_map, **choices)
    if compile:
        opened.compile_layers()
    with progress_bar(terminal_only=True) as bar:
        task = bar.add_task("Scoring requests", total=len(requests))
        found = score_requests(
            opened, requests, method, samples, masks, seed, on_pass=lambda done, total: bar.update(task, completed=done)
        )
    if json:
        lines = [{**request.row, **likelihood_fields(one)} for request, one in zip(requests, found, strict=True)]
        settings = {"method": method, "samples": samples, "masks": masks, "seed": seed}
        return print_json({"model": model, "settings": settings, "scores": lines})
    for line in score_lines([request.answer for request in requests], found):
        echo(line)
