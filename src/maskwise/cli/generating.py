"""`maskwise generate` and `maskwise score` from start to finish: batches, progress, and the file of results."""

from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from maskwise.cli.live_canvas import LiveCanvas
from maskwise.decoding.divergence import Divergence
from maskwise.decoding.generate import Generation, Snapshot, decode
from maskwise.decoding.likelihood import Likelihood
from maskwise.decoding.options import DecodingOptions
from maskwise.decoding.prompts import encode_prompts, has_chat_template
from maskwise.decoding.request import check_prompts, end_tokens, for_model, is_approximate
from maskwise.decoding.score import score
from maskwise.models.generation import Prompt
from maskwise.models.model import Model
from maskwise.support.errors import UserError
from maskwise.support.files import open_own, partial_of, refuse_unwritable, to_json
from maskwise.support.progress import progress_bar
from maskwise.support.randomness import number_repeats, torch_generator


def generate_all(
    model: Model, prompts: Sequence[Prompt], batch: int, options: DecodingOptions, seed: int = 0,
    out: Path | None = None, live: Console | None = None, divergence: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Decodes the prompts `batch` at a time and returns what --json prints.

    `out` is written whole: finished batches go to OUT.partial, which gets its name at the end.

    seed: what is drawn for a prompt depends on it, on the prompt's tokens and the number of equal prompts before it.
    live: the console on which the canvas is shown while it fills in, one prompt at a time.
    divergence: decode exactly too, and compare.
    """
    options = for_model(model, options)
    if divergence and options.approximate and not is_approximate(model, options):
        raise UserError("this cache is exact for a block diffusion model: leave divergence out")
    if divergence and (not options.approximate or options.temperature):
        raise UserError("divergence compares greedy decoding with a cache or a window with exact decoding: choose one")
    if batch < 1:
        raise UserError(f"batch {batch} holds no prompt: give 1 or more")
    refuse_unwritable(out)
    if model.tokenizer is None:
        raise UserError(f"{model.name or model.kind} has no tokenizer, so it reads no text")
    partial = None if out is None else partial_of(out)
    if partial is not None:
        _begin(partial)
    ids = encode_prompts(model, prompts, options.chat)
    check_prompts(model, ids, options.max_new_tokens)
    numbered = number_repeats(ids)
    traces: list[dict[str, Any]] = []
    exact: list[Generation] = []
    approximate: list[Generation] = []
    size = 1 if live else batch
    for first in range(0, len(ids), size):
        part, seeds = ids[first : first + size], numbered[first : first + size]
        generations = _decode_batch(model, part, options, _generators(model, seed, seeds), live)
        new = [
            _trace(prompt, tokens, generation, bool(options.guidance))
            for prompt, tokens, generation in zip(prompts[first:], part, generations, strict=False)
        ]
        traces += new
        if partial is not None:
            _append(partial, new)
        if divergence:
            # New generators in their first state, so that exact decoding draws the same numbers.
            exact += decode(model, part, options.exact(), _generators(model, seed, seeds))
            approximate += generations
    if out is not None and partial is not None:
        _finish(partial, out)
    return {
        "model": model.name or model.kind,
        "settings": _settings(model, options),
        "generations": traces,
        "divergence": asdict(Divergence.between(exact, approximate)) if divergence else None,
    }


def _generators(model: Model, seed: int, numbered: Sequence[tuple[int, ...]]) -> list[torch.Generator]:
    return [torch_generator("generate", seed, parts, device=model.device) for parts in numbered]


def _decode_batch(
    model: Model, part: list[list[int]], options: DecodingOptions, generators: list[torch.Generator],
    live: Console | None,
) -> list[Generation]:  # fmt: skip
    if model.causal:
        with progress_bar(terminal_only=True) as bar:
            bar.add_task("Decoding prompts", total=None)
            return decode(model, part, options, generators)
    if live is not None:
        note = f"{options.strategy.name} · cache {options.cache}"
        with LiveCanvas(model, part[0], note, live) as canvas:
            return decode(model, part, options, generators, canvas.show)
    total = None if options.strategy.adaptive else options.steps or options.max_new_tokens
    with progress_bar(terminal_only=True) as bar:
        task = bar.add_task("Decoding steps", total=total)

        def advance(snapshot: Snapshot) -> None:
            bar.advance(task)

        return decode(model, part, options, generators, advance)


def score_all(
    model: Model, records: Sequence[dict[str, Any]], method: str, samples: int, masks: int, seed: int
) -> list[Likelihood]:
    """The likelihoods of records with a prompt and an answer, with a progress bar."""
    with progress_bar(terminal_only=True) as bar:
        task = bar.add_task("Scoring requests", total=len(records))

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done)

        return score(model, records, method, samples, masks, seed, on_pass=advance)


def _trace(prompt: Prompt, tokens: list[int], generation: Generation, guided: bool) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "text": generation.text,
        "prompt_tokens": len(tokens),
        "masks": len(generation.ids),
        "steps": generation.forwards // (2 if guided else 1),
        "forwards": generation.forwards,
        "ids": generation.ids,
        "order": generation.order,
    }


def _settings(model: Model, options: DecodingOptions) -> dict[str, Any]:
    """Every option by name; without those of masked models where the model is autoregressive."""
    chat = has_chat_template(model) if options.chat is None else options.chat
    ends = end_tokens(model) if options.end_ids is None else options.end_ids
    settings = options.summary() | {"chat": chat, "end_ids": list(ends)}
    if model.causal:
        shared = {
            option.name: settings[option.name] for option in fields(options) if not option.metadata["masked_only"]
        }
        return shared | {"kind": "autoregressive"}
    return settings | {"masks": options.max_new_tokens, "approximate": is_approximate(model, options)}


def _begin(partial: Path) -> None:
    """An empty file in place of what a killed command left."""
    try:
        open_own(partial).close()
    except OSError as problem:
        raise UserError(f"cannot write {partial}: {problem.strerror}") from None


def _finish(partial: Path, out: Path) -> None:
    try:
        partial.replace(out)
    except OSError as problem:
        raise UserError(f"cannot write {out}: {problem.strerror}; the generations are in {partial}") from None


def _append(out: Path, traces: list[dict[str, Any]]) -> None:
    try:
        with open_own(out, append=True) as file:
            file.writelines(f"{to_json(trace)}\n".encode() for trace in traces)
    except OSError as problem:
        raise UserError(f"cannot write {out}: {problem.strerror}") from None
