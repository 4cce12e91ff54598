"""A whole diagnosis: settings and a model in, a run folder out."""

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from maskwise import __version__
from maskwise.errors import UserError
from maskwise.models.base import Model
from maskwise.models.fingerprint import fingerprint
from maskwise.probes import likelihood, natural
from maskwise.probes.coherence_units import coherence_units
from maskwise.probes.evidence_units import evidence_units, refuse_unasked
from maskwise.probes.records import Key, gather, key_of, read_run, start_run, write_manifest
from maskwise.probes.runner import Crew, batch_budget, check_fit, join_crew, progress_bar, record_items
from maskwise.probes.settings import Settings, check, fit_to_model
from maskwise.probes.units import Unit, few_shot_units, read_passages, text_units
from maskwise.probes.variants import Asker, Item
from maskwise.tasks.datasets import Dataset
from maskwise.tasks.prompts import check_letters, filler_id
from maskwise.tasks.words import Words, load_words


def diagnose(
    model: Model,
    settings: Settings,
    out: Path | None = None,
    words: Words | None = None,
    text: str | None = None,
    batch_tokens: int | None = None,
    data: Mapping[str, Dataset] | None = None,
) -> Path:
    """Runs the probes, or what is missing of them, and returns the run folder.

    Whatever settings and the first prompts of each kind tell is refused before anything is written; a longer prompt
    further on, when its turn comes. `words` and `text` default to our own; the probes over data sets run on those in
    `data`.
    """
    check(settings)
    if model.tokenizer is None:
        raise UserError(f"{model.name or 'the model'} has no tokenizer, and the questions are text: give one")
    refuse_unasked(data or {}, settings.probes)
    words = words if words is not None else load_words()
    text = text if text is not None else natural.load_text()
    settings, notes = fit_to_model(settings, model.causal)
    check_letters(model.tokenizer)
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, settings.filler), settings.chat)
    passages = read_passages(settings, text, natural.PROBE)
    if len(passages) < settings.passages and natural.PROBE in settings.probes:
        notes.append(f"natural-text: the text holds {len(passages)} passages, {settings.passages} were asked for")
    more, more_notes = evidence_units(
        model, asker, settings, words, read_passages(settings, text, likelihood.PROBE), data or {}
    )
    notes += more_notes
    coupled, coupled_notes = coherence_units(model, asker, settings, words, text)
    notes += coupled_notes
    units = [
        *few_shot_units(asker, settings, words, model.causal),
        *text_units(asker, passages, natural.conditions(settings.text_counts, model.causal)),
        *more,
        *coupled,
    ]
    if not units:
        raise UserError(f"nothing to ask: {'; '.join(notes)}")
    shorter = "" if settings.preset == "quick" else "use --quick (shorter prompts) or "
    for unit in units:
        check_fit(model, list(unit.items(unit.points[:1], set())), shorter)
    manifest = describe(model, settings, words, text, notes)
    if data:
        manifest["settings"]["data"] = {name: _digest(repr(found)) for name, found in data.items()}
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
        raise KeyboardInterrupt(
            f"the records so far are kept in {folder}, the same command goes on from there"
        ) from None
    crew.wait()
    if crew.rank == 0:
        gather(folder, manifest)
        write_manifest(folder, manifest | {"complete": True})


def ask_units(model: Model, units: Sequence[Unit], folder: Path, crew: Crew, done: set[Key], budget: int) -> None:
    total = sum(len(crew.share(unit.points)) * unit.conditions for unit in units)
    with progress_bar(silent=crew.rank > 0) as bar:
        task = bar.add_task("Asking", total=total)
        for unit, items in prepared(units, crew, done):
            bar.advance(task, len(crew.share(unit.points)) * unit.conditions - len(items))
            check_fit(model, items)
            share = max(1, budget // unit.cost)
            record_items(model, items, folder, crew.rank, share, lambda count: bar.advance(task, count), unit.answer)


def prepared(units: Sequence[Unit], crew: Crew, done: set[Key]) -> Iterator[tuple[Unit, list[Item]]]:
    """Each unit with what is left of it, made in a thread while the one before is asked: no GPU waits for it."""

    def items_of(unit: Unit) -> list[Item]:
        return list(unit.items(crew.share(unit.points), done))

    with ThreadPoolExecutor(1) as thread:
        waiting = [thread.submit(items_of, unit) for unit in units[:1]]
        for number, unit in enumerate(units):
            items = waiting.pop().result()
            waiting += [thread.submit(items_of, following) for following in units[number + 1 : number + 2]]
            yield unit, items


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


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
