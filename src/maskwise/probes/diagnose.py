"""A whole diagnosis: settings and a model in, a run folder out."""

import hashlib
import json
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from maskwise import __version__
from maskwise.errors import UserError
from maskwise.models.base import Model
from maskwise.probes import natural
from maskwise.probes.records import Condition, Key, gather, key_of, read_run, start_run, write_manifest
from maskwise.probes.runner import Crew, batch_budget, check_fit, join_crew, progress_bar, record_items
from maskwise.probes.settings import Settings, check, few_shot_variants, fit_to_model
from maskwise.probes.variants import Asker, Item, few_shot_items
from maskwise.tasks.episodes import draw
from maskwise.tasks.prompts import check_letters, filler_id
from maskwise.tasks.rules import TASKS
from maskwise.tasks.words import Words, load_words

POINTS_A_UNIT = 100  # what is prepared, sorted by length and asked together


@dataclass(frozen=True)
class Unit:
    """Some points of one task under all its conditions: how many items they are, and how to make those not yet done."""

    points: Sequence[int]
    conditions: int
    items: Callable[[Sequence[int], set[Key]], Iterator[Item]]


def diagnose(
    model: Model,
    settings: Settings,
    out: Path | None = None,
    words: Words | None = None,
    text: str | None = None,
    batch_tokens: int | None = None,
) -> Path:
    """Runs the probes, or what is missing of them, and returns the run folder.

    Everything that can be refused is refused before anything is written. `words` and `text` default to our own.
    """
    check(settings)
    if model.tokenizer is None:
        raise UserError(f"{model.name or 'the model'} has no tokenizer, and the questions are text: give one")
    words = words if words is not None else load_words()
    text = text if text is not None else natural.load_text()
    settings, notes = fit_to_model(settings, model.causal)
    check_letters(model.tokenizer)
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, settings.filler), settings.chat)
    passages = read_passages(settings, text)
    if len(passages) < settings.passages and natural.PROBE in settings.probes:
        notes.append(f"natural-text: the text holds {len(passages)} passages, {settings.passages} were asked for")
    units = [
        *few_shot_units(asker, settings, words, model.causal),
        *text_units(asker, passages, natural.conditions(settings.text_counts, model.causal)),
    ]
    for unit in units:
        check_fit(model, list(unit.items(unit.points[:1], set())))
    manifest = describe(model, settings, words, text, notes)
    folder = out or Path("runs") / folder_name(manifest)
    run_units(model, units, folder, manifest, batch_budget(model, batch_tokens))
    return folder


def run_units(model: Model, units: Sequence[Unit], folder: Path, manifest: dict[str, Any], budget: int) -> None:
    """Asks what the folder does not hold yet. All processes of a torchrun call this together."""
    crew = join_crew()
    if crew.rank == 0:
        start_run(folder, manifest)
    crew.wait()
    done = {key_of(record) for record in read_run(folder).records}
    crew.wait()
    try:
        ask_units(model, units, folder, crew, done, budget)
    except KeyboardInterrupt:
        print(f"stopped: the records so far are kept in {folder}, the same command goes on from there", file=sys.stderr)
        raise
    crew.wait()
    if crew.rank == 0:
        gather(folder, manifest)
        write_manifest(folder, manifest | {"complete": True})


def ask_units(model: Model, units: Sequence[Unit], folder: Path, crew: Crew, done: set[Key], budget: int) -> None:
    total = sum(len(crew.share(unit.points)) * unit.conditions for unit in units)
    with progress_bar(silent=crew.rank > 0) as bar:
        task = bar.add_task("Asking", total=total)
        for unit in units:
            points = crew.share(unit.points)
            items = list(unit.items(points, done))
            bar.advance(task, len(points) * unit.conditions - len(items))
            check_fit(model, items)
            record_items(model, items, folder, crew.rank, budget, lambda count: bar.advance(task, count))


def few_shot_units(asker: Asker, settings: Settings, words: Words, causal: bool) -> Iterator[Unit]:
    variants = few_shot_variants(settings, causal)
    for task in TASKS if variants else ():
        if task.name not in settings.tasks:
            continue
        episode = draw(
            task, words, settings.relevant, settings.distractors, settings.points, settings.seed, settings.held_out
        )
        for points in _slices(settings.points):
            yield Unit(points, len(variants), partial(few_shot_items, asker, episode, variants))


def read_passages(settings: Settings, text: str) -> list[natural.Passage]:
    if natural.PROBE not in settings.probes:
        return []
    return natural.passages(text, settings.passages, settings.passage_words)


def text_units(asker: Asker, passages: Sequence[natural.Passage], conditions: Sequence[Condition]) -> Iterator[Unit]:
    for points in _slices(len(passages)):
        yield Unit(points, len(conditions), partial(natural.text_items, asker, passages, conditions))


def _slices(points: int) -> list[range]:
    return [range(first, min(first + POINTS_A_UNIT, points)) for first in range(0, points, POINTS_A_UNIT)]


def describe(model: Model, settings: Settings, words: Words, text: str, notes: list[str]) -> dict[str, Any]:
    """The manifest of a run that has not begun."""
    return {
        "model": {
            "name": model.name,
            "kind": model.kind,
            "parameters": model.parameter_count,
            "window": model.window,
            "mask_id": model.mask_id,
            "shift": model.shift,
            "causal": model.causal,
            "dtype": str(model.dtype).removeprefix("torch."),
            "fingerprint": fingerprint(model),
        },
        "settings": json.loads(json.dumps(asdict(settings)))
        | {"words": _digest(json.dumps(words)), "text": _digest(text)},
        "versions": {
            "maskwise": __version__,
            "python": platform.python_version(),
            "torch": version("torch"),
            "transformers": version("transformers"),
        },
        "complete": False,
        "notes": notes,
    }


def folder_name(manifest: dict[str, Any]) -> str:
    """The model, the preset, and a few letters that differ when any setting or weight does."""
    model = manifest["model"]["name"].rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1].replace(" ", "-") or "model"
    settings = {part: manifest[part] for part in ("model", "settings")}
    return f"{model}-{manifest['settings']['preset']}-{_digest(json.dumps(settings))[:6]}"


def fingerprint(model: Model) -> str:
    """A digest of a few values of every weight, adapters included: tells a retrained checkpoint from the one before."""
    digest = hashlib.sha256()
    for name, weight in model.named_parameters():
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        digest.update(weight.detach().flatten()[:8].float().cpu().numpy().tobytes())
    return digest.hexdigest()[:12]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
