"""The question of an answer, rebuilt from the manifest: every question depends on the seeds alone."""

from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import Any, cast

from maskwise.models.checkpoints.configuration import read_family
from maskwise.models.checkpoints.locations import locate_checkpoint
from maskwise.models.families import FAMILIES, WRAPPED
from maskwise.models.model import Model
from maskwise.models.tokenizers.tokenizer import load_tokenizer
from maskwise.probes import PROBES
from maskwise.probes.setup import Asker, Settings, Setup
from maskwise.probes.text import load_text
from maskwise.records.manifest import Manifest, ModelDescription, RunSettings
from maskwise.runs.diagnose import digest, digest_of_words, plan
from maskwise.support.errors import UserError
from maskwise.support.randomness import LAW
from maskwise.tasks.datasets import Dataset
from maskwise.tasks.prompts import filler_id
from maskwise.tasks.rules import Task
from maskwise.tasks.word_sources import PAPER_WORDS, UNFAMILIAR, WordSource, load_word_source


def asked_ids(
    manifest: Manifest,
    row: Mapping[str, Any],
    tokenizer: Any,
    source: WordSource | None = None,
    text: str | None = None,
    data: Mapping[str, Dataset] | None = None,
    tasks: Sequence[Task] | None = None,
) -> tuple[int, ...]:
    """The token ids that the model was given for a row of a table of the run with this manifest."""
    stored = manifest.settings
    source, text = source or shipped_source(stored.words), load_text() if text is None else text
    given = {
        "seeds": (LAW, "another version asked it"),
        "words": (digest_of_words(source.words), "other word lists"),
        "text": (digest(text), "another text"),
    }
    for name, (now, why) in given.items():
        if getattr(stored, name) != now:
            raise UserError(f"the question cannot be made again ({why}): use the run that mw.diagnose returned")
    point = int(row["point"])
    settings, model = settings_of(stored, point), described(manifest.model, tokenizer)
    asker = Asker(tokenizer, model.mask_id, filler_id(tokenizer, settings.filler), settings.chat)
    setup = Setup(model, asker, settings, source.words, text, data or {}, [], tasks=tasks or source.tasks)
    for unit in plan(setup, [probe for probe in PROBES if probe.name == row["probe"]]):
        items = list(unit.items([point], set())) if point in unit.points else []
        same = [one for one in items if one.key[:2] == (row["probe"], row["task"]) and asked_so(row, one.condition)]
        if same:  # a condition may be part of another
            return max(same, key=lambda one: len(one.condition)).prompt.ids
    question = f"{row['probe']}, {row['task']}, point {row['point']}"
    raise UserError(f"this run asked no such question ({question}): give a row of one of its tables")


def asked_so(row: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    return all(value in (row.get(name), row.get(f"{name}_found")) for name, value in condition.items())


def described(stored: ModelDescription, tokenizer: Any) -> Model:
    """The model without weights: what probes read of it when they plan their questions."""
    family = next((family for family in FAMILIES if family.name == stored.kind), WRAPPED)
    known = {name: getattr(stored, name) for name in ("name", "kind", "mask_id", "shift", "causal", "block")}
    return cast(
        Model,
        SimpleNamespace(
            **known,
            window=stored.window or 0,
            vocab=len(tokenizer),
            tokenizer=tokenizer,
            family=family,
            attention_readable=family.attention_readable or family.name != stored.kind,  # as of one from outside
            check_sequence=lambda sequence, what: None,
        ),
    )


def tokenizer_of(name: str) -> Any:
    """The tokenizer of the model of this name, without its weights."""
    folder = locate_checkpoint(name)[0]
    return load_tokenizer(folder, read_family(folder))


def shipped_source(stored: str | None) -> WordSource:
    """The shipped word source with this hash; the paper's if there is none."""
    named = map(load_word_source, (PAPER_WORDS, *UNFAMILIAR))
    return next((source for source in named if digest_of_words(source.words) == stored), load_word_source())


def settings_of(stored: RunSettings, point: int) -> Settings:
    """The settings of a manifest; with enough questions for this one: runs of 0.2 with --precision asked more."""
    names = {field.name for field in fields(Settings)}
    values = {name: _as_tuples(value) for name, value in stored.items() if name in names}
    return Settings(**(values | {"questions": max(stored.questions, point + 1)}))


def _as_tuples(value: Any) -> Any:
    """Lists from JSON as tuples again."""
    if isinstance(value, list):
        return tuple(map(_as_tuples, value))
    return {name: _as_tuples(inner) for name, inner in value.items()} if isinstance(value, dict) else value
