"""Many prompts from start to finish: batches, progress, a file that keeps what is done, how far shortcuts diverge."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from maskwise.decoding.generate import Generation, Snapshot, generate
from maskwise.decoding.live import LiveCanvas
from maskwise.decoding.prompting import prompt_ids
from maskwise.decoding.request import check_prompts, end_tokens
from maskwise.decoding.rules import find_rule
from maskwise.decoding.score import Score, score
from maskwise.errors import UserError
from maskwise.models.base import Model
from maskwise.progress import progress_bar
from maskwise.randomness import number_repeats, own_generator

# What makes a decoding approximate, with the settings that make it exact again.
EXACT = {"cache": "none", "refresh": None, "window": None}


@dataclass(frozen=True)
class Divergence:
    """How an approximate decoding differs from the exact one with the same rule, steps and blocks."""

    tokens: int  # compared
    agreement: float  # share of positions with the same token
    first: int | None  # the first position at which any sequence differs

    @staticmethod
    def between(exact: Sequence[Generation], approximate: Sequence[Generation]) -> "Divergence":
        pairs = [
            (place, one == two)
            for a, b in zip(exact, approximate, strict=True)
            for place, (one, two) in enumerate(zip(a.ids, b.ids, strict=True))
        ]
        different = [place for place, same in pairs if not same]
        return Divergence(len(pairs), 1 - len(different) / len(pairs), min(different, default=None))


def is_approximate(options: dict[str, Any]) -> bool:
    return options["cache"] != "none" or options["canvas"] == "window"


def exact_options(options: dict[str, Any]) -> dict[str, Any]:
    """The same decoding without a cache, and with the whole suffix shown."""
    return options | EXACT | {"canvas": "blocks" if options["canvas"] == "window" else options["canvas"]}


def run(
    model: Model, prompts: Sequence[str], chat: bool, batch: int, options: dict[str, Any], seed: int = 0,
    out: Path | None = None, live: Console | None = None, divergence: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Decodes the prompts `batch` at a time and gives the full trace. Each finished batch is written to `out` at once.

    seed: what a prompt's draws depend on, beside its tokens and the number of equal prompts before it.
    live: the console on which the canvas fills in, one prompt at a time.
    """
    if divergence and (not is_approximate(options) or options["temperature"]):
        raise UserError("divergence compares greedy decoding with a cache or a window with exact decoding: choose one")
    if batch < 1:
        raise UserError(f"batch {batch} holds no prompt: give 1 or more")
    if out is not None and out.exists():
        raise UserError(f"{out} exists already: choose another file, or remove it")
    if out is not None and not out.absolute().parent.is_dir():
        raise UserError(f"there is no folder {out.parent}: make it, or name another --out")
    ids = prompt_ids(model, prompts, chat)
    check_prompts(model, ids, options["max_new_tokens"])
    marks = number_repeats(ids)
    traces: list[dict[str, Any]] = []
    exact: list[Generation] = []
    approximate: list[Generation] = []
    size = 1 if live else batch
    for first in range(0, len(ids), size):
        part, apart = ids[first : first + size], marks[first : first + size]
        found = _decode(model, part, options | {"generator": _generators(model, seed, apart)}, live)
        new = [
            _trace(prompt, tokens, one, bool(options["guidance"]))
            for prompt, tokens, one in zip(prompts[first:], part, found, strict=False)
        ]
        traces += new
        if out is not None:
            _append(out, new)
        if divergence:
            # Made anew, for those above have moved on: exact decoding is to meet the same chance.
            exact += generate(model, part, **exact_options(options), generator=_generators(model, seed, apart))
            approximate += found
    return {
        "model": model.name or model.kind,
        "settings": _settings(model, options) | {"chat": chat},
        "generations": traces,
        "divergence": asdict(Divergence.between(exact, approximate)) if divergence else None,
    }


def _generators(model: Model, seed: int, marks: Sequence[tuple[int, ...]]) -> list[torch.Generator]:
    return [own_generator(seed, *mark, device=model.device) for mark in marks]


def _decode(model: Model, part: list[list[int]], options: dict[str, Any], live: Console | None) -> list[Generation]:
    if model.causal:
        with progress_bar(terminal_only=True) as bar:
            bar.add_task("Decoding prompts", total=None)
            return generate(model, part, **options)
    if live is not None:
        note = f"{options['rule']} · cache {options['cache']}"
        with LiveCanvas(model, part[0], note, live) as canvas:
            return generate(model, part, on_step=canvas.show, **options)
    own_pace = find_rule(options["rule"])[0].own_pace
    with progress_bar(terminal_only=True) as bar:
        task = bar.add_task("Decoding steps", total=None if own_pace else options["steps"] or options["max_new_tokens"])

        def advance(snapshot: Snapshot) -> None:
            bar.advance(task)

        return generate(model, part, on_step=advance, **options)


def score_all(
    model: Model, records: Sequence[dict[str, Any]], method: str, samples: int, masks: int, seed: int
) -> list[Score]:
    """The scores of records with a prompt and an answer, with a bar."""
    pairs = [(record["prompt"], record["answer"]) for record in records]
    with progress_bar(terminal_only=True) as bar:
        task = bar.add_task("Scoring requests", total=len(pairs))

        def advance(done: int, total: int) -> None:
            bar.update(task, completed=done)

        return score(model, pairs, method, samples, masks, seed, advance)


def _trace(prompt: str, tokens: list[int], found: Generation, guided: bool) -> dict[str, Any]:
    return {
        "prompt": prompt,
        "text": found.text,
        "prompt_tokens": len(tokens),
        "masks": len(found.ids),
        "steps": found.forwards // (2 if guided else 1),
        "forwards": found.forwards,
        "ids": found.ids,
        "order": found.order,
    }


def _settings(model: Model, options: dict[str, Any]) -> dict[str, Any]:
    """Every setting by name; what only masked models have is left out for an autoregressive one."""
    shared = {name: options[name] for name in ("max_new_tokens", "temperature", "top_k", "top_p", "early_stop")}
    if model.causal:
        return shared | {"kind": "autoregressive"}
    knobs = find_rule(options["rule"], options["knobs"])[1]
    return options | {
        "masks": options["max_new_tokens"],
        "canvas": options["canvas"] or ("fixed" if options["block"] is None else "blocks"),
        "knobs": knobs,
        "soft_mask": None if options["soft_mask"] is None else asdict(options["soft_mask"]),
        "end_ids": list(end_tokens(model)),
        "approximate": is_approximate(options),
    }


def _append(out: Path, traces: list[dict[str, Any]]) -> None:
    try:
        with out.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(trace, ensure_ascii=False) + "\n" for trace in traces)
    except OSError as problem:
        raise UserError(f"cannot write {out}: {problem.strerror}") from None
