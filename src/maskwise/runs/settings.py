"""The presets of a run, made from the tuple of probes, and the checks of what a user asks for."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from maskwise.errors import UserError
from maskwise.probes import PROBES
from maskwise.probes.probe import Preset, Probe, Settings
from maskwise.tasks.rules import TASKS

QUICK_NUMBERS: Mapping[str, Any] = {
    "tasks": ("country-smallest", "capitalised-largest", "animal-smallest", "verb-largest"),
    "points": 9,
    "relevant": 5,
    "distractors": 15,
    "passages": 40,
    "passage_words": 50,
}
NUMBERS: Mapping[Preset, Mapping[str, Any]] = {
    "quick": QUICK_NUMBERS,
    "default": {"tasks": tuple(task.name for task in TASKS)},
    "full": {"tasks": tuple(task.name for task in TASKS), "points": 1000, "passages": 1000},
}


def preset(name: Preset, probes: Sequence[Probe] = PROBES) -> Settings:
    """What a preset asks: its probes, the shared numbers, and the parameters of every probe that could be named."""
    quick = name == "quick"
    return Settings(
        preset=name,
        probes=tuple(probe.name for probe in probes if name in probe.presets),
        parameters={probe.name: {**probe.parameters, **(probe.quick if quick else {})} for probe in probes},
        **NUMBERS[name],
    )


QUICK, DEFAULT, FULL = preset("quick"), preset("default"), preset("full")


def fit_to_model(settings: Settings, causal: bool, probes: Sequence[Probe] = PROBES) -> tuple[Settings, list[str]]:
    """The settings without the probes that make no sense for the model, and a note on each."""
    why = {probe.name: probe.not_causal for probe in probes if causal and probe.not_causal}
    left_out = [name for name in settings.probes if name in why]
    kept = tuple(name for name in settings.probes if name not in why)
    if not kept:
        raise UserError(f"no probe to run: {left_out[0]} does not apply, {why[left_out[0]]}")
    return replace(settings, probes=kept), [f"{name} was not run: {why[name]}" for name in left_out]


def check(settings: Settings, probes: Sequence[Probe] = PROBES) -> None:
    """Refuses unknown probes and impossible numbers."""
    known = [probe.name for probe in probes]
    for name in settings.probes:
        if name not in known:
            raise UserError(f"unknown probe {name!r}: choose among {', '.join(known)}")
    if not settings.probes:
        raise UserError(f"no probe named: choose among {', '.join(known)}")
    if min(settings.points, settings.passages) < 1:
        raise UserError(f"--points must be at least 1, not {min(settings.points, settings.passages)}")
