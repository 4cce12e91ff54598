"""Adapters that `maskwise cures` compares, named by the loss in their settings."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwise.models.model import Model
from maskwise.support.files import read_json

PAPER_LOSS = "CE + TV, the paper's loss"
SHAM = "sham without masks, "  # first, so that a long name cut in a figure still says it
UNKNOWN_LOSS, UNKNOWN_TRAINING = "an adapter", "an adapter"


@dataclass(frozen=True)
class TunedAdapter:
    """A model with an adapter: the method that ran, and how long."""

    model: Model
    method: str = UNKNOWN_LOSS
    training: str = UNKNOWN_TRAINING


def with_method(model: Model, folder: Path) -> TunedAdapter:
    """The method and the training by settings.json, which `maskwise tune` writes, or training.json of an embedded
    adapter."""
    settings = _settings_of(folder)
    try:
        training = f"{settings['steps']} steps of {int(settings['batch']) * int(settings['accumulation'])} pairs"
        return TunedAdapter(model, method_of(settings), training)
    except (LookupError, TypeError, ValueError):
        return TunedAdapter(model)


def method_of(settings: Mapping[str, Any]) -> str:
    """The loss of `maskwise tune` in words, and what it adapts. Only CE + TV with both views is the paper's."""
    ce, other = float(settings["alpha"]) > 0, float(settings["beta"]) > 0
    if settings.get("anchored"):
        loss = "CE + anchored KL" if ce else "anchored KL"
    elif ce and other:
        loss = PAPER_LOSS if not settings.get("one_branch") else "CE + TV, one branch"
    else:
        loss = "CE alone" if ce else "TV alone"
    where = " on the attention maps" if settings.get("targets") == "attention" else ""
    return f"{'' if int(settings['max_masks']) else SHAM}{loss}{where}"


def _settings_of(adapter: Path) -> Mapping[str, Any]:
    """Empty where none are there, or in another form."""
    for name in ("settings.json", "training.json"):
        if (adapter / name).exists():
            found = read_json(adapter / name, "name another --adapter")
            for key in ("settings", "identity", "settings"):
                inner = found.get(key) if isinstance(found, dict) else None
                found = inner if isinstance(inner, dict) else found
            return found if isinstance(found, dict) else {}
    return {}
