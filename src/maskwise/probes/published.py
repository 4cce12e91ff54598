"""Published values of the paper's models, as expectations fixed before a run (Piskorz et al., arXiv 2511.21338).

`maskwise diagnose MODEL --paper` asks the paper's setting. Where the model is one of the paper's, known by the name it
is published under or by that of its folder, each of these values is shown next to the measured one. Only end points are
listed, those the paper states as numbers; its probing runs had 4-bit weights.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from msgspec import UNSET

from maskwise.probes import FEW_SHOT_PROBES, PROBES
from maskwise.probes.one_probe import estimates
from maskwise.probes.section import PublishedValue, Summary
from maskwise.records.folder import RunOnDisk, tables_of

ValueAndEnds = tuple[float, float | None, float | None]  # value, low, high
PublishedUnit = Literal["points", "share", "norm", "r"]

# The names under which the checkpoints are published, in lower case, and what the paper calls them.
PAPER_MODELS = {
    "llada-8b-base": "LLaDA-8B-Base",
    "llada-8b-instruct": "LLaDA-8B-Instruct",
    "dream-v0-base-7b": "Dream-7B-Base",
    "dream-7b-base": "Dream-7B-Base",
    "dream-v0-instruct-7b": "Dream-7B-Instruct",
    "dream-7b-instruct": "Dream-7B-Instruct",
    "llada-moe-7b-a1b-base": "LLaDA-MoE-Base",
    "llada-moe-7b-a1b-instruct": "LLaDA-MoE-Instruct",
}


@dataclass(frozen=True)
class Expectation:
    """One published number: of which probe, what it measures, its value for each model, and how a run measures it."""

    probe: str
    measure: str
    unit: PublishedUnit
    values: Mapping[str, float]
    measured: Callable[[Summary], ValueAndEnds | None] | str  # of a probe of the new kind: the name of an estimate
    at: int | None = None  # of a change from the probe's baseline: the number of masks or fillers


def paper_model(name: str) -> str | None:
    """The paper's name of a model, by the last part of a hub name or path: GSAI-ML/LLaDA-8B-Base, ./LLaDA-8B-Base."""
    return PAPER_MODELS.get(last_part(name))


def last_part(name: str) -> str:
    """The last part of a hub name or path, in lower case."""
    return name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1].lower()


def other_format(summary: Summary) -> str:
    """Why a run of `--paper` is not comparable with the published values of its model; empty where it is.

    The paper asks Instruct models through the chat template and the other models without it. A run in the other format
    is a legitimate measurement, so it is labelled rather than refused.
    """
    instruct = "instruct" in last_part(summary.model)
    of_paper = paper_model(summary.model) is not None
    if summary.settings.preset != "paper" or instruct == bool(summary.settings.chat) or not (instruct or of_paper):
        return ""
    if instruct:
        return (
            "The prompt format differs from the paper's: it asks Instruct models through the chat template and this "
            "run was made without --chat, so no published values are shown. Run it with --chat to compare"
        )
    return (
        "The prompt format differs from the paper's: it asks Base models without a chat template and this run was made "
        "with --chat, so no published values are shown. Run it without --chat to compare"
    )


def asks_other_words(tasks: Sequence[str]) -> bool:
    """Whether `--words` replaced the sixteen tasks by sets of words, which the paper did not ask."""
    return any(" among " in task for task in tasks)


def published_values(summary: Summary, run: RunOnDisk) -> list[PublishedValue]:
    """Each published value with the one measured: only of the paper's models, in the paper's setting and format."""
    name = paper_model(summary.model)
    other = other_format(summary) or asks_other_words(summary.settings.tasks)
    if name is None or summary.settings.preset != "paper" or other:
        return []
    found = []
    for expected in EXPECTATIONS:
        if name not in expected.values:
            continue
        by_name = isinstance(expected.measured, str)
        measured = _estimated(expected, run) if by_name else expected.measured(summary)  # type: ignore[operator]
        if measured is not None:
            value, low, high = measured
            found.append(
                PublishedValue(
                    probe=expected.probe,
                    measure=expected.measure,
                    unit=expected.unit,
                    model=name,
                    published=expected.values[name],
                    value=value,
                    low=low,
                    high=high,
                )
            )
    return found


# How each is measured, from a run and its summary


def _estimated(expected: Expectation, run: RunOnDisk) -> ValueAndEnds | None:
    """The estimate of this name."""
    probe = next(probe.measured for probe in PROBES if probe.name == expected.probe)
    tables = tables_of(run, FEW_SHOT_PROBES)
    named = {one.name: one for one in (estimates(probe, tables) if probe.name in tables else ())}
    one = named.get(str(expected.measured))
    return None if one is None or one.value is None else (one.value, one.low, one.high)


def _change(probe: str, key: str, at: int, summary: Summary) -> ValueAndEnds | None:
    """The paired difference from the probe's baseline at one place of the curve."""
    for entry in summary.probes.get(probe, []):
        paired = entry.paired
        if entry.condition.get(key) == at and "format" not in entry.condition and paired is not UNSET:
            return paired.difference, paired.low, paired.high
    return None


def _shots_against_masks(summary: Summary) -> ValueAndEnds | None:
    found = summary.extras.get("shots_against_masks", {}).get("together")
    return (found.value, found.low, found.high) if found is not None and found.value is not None else None


def _of(family: str, base: float, instruct: float) -> dict[str, float]:
    return {f"{family}-Base": base, f"{family}-Instruct": instruct}


_llada, _dream, _moe = (partial(_of, family) for family in ("LLaDA-8B", "Dream-7B", "LLaDA-MoE"))


def _changes(probe: str, measure: str, values: Mapping[str, float], key: str, at: int) -> Expectation:
    return Expectation(probe, measure, "points", values, partial(_change, probe, key, at), at)


def _gradients(tokens: str, words: str, values: Mapping[str, float]) -> Expectation:
    return Expectation("attribution", f"gradient norm of {words}", "norm", values, f"gradient norm of {tokens}")


def _degradations(steps: int, base: float, instruct: float) -> Expectation:
    values = _llada(base, instruct)
    name = f"degradation in {steps} steps"
    return Expectation("steps", name, "share", values, name)


EXPECTATIONS = (
    _changes("mask-count", "200 masks against 2", _llada(-0.23, -0.27), "masks", 200),
    _changes("mask-count", "20 masks against 2", _dream(-0.06, -0.08), "masks", 20),
    _changes("filler", "200 full stops against none", _llada(-0.03, -0.10), "fillers", 200),
    _degradations(2, 0.197, 0.332),
    _degradations(4, 0.145, 0.265),
    _degradations(6, 0.124, 0.228),
    Expectation(
        "shots-masks",
        "gain from shots against change from masks, Pearson's r",
        "r",
        _llada(-0.15, -0.16) | _dream(-0.21, -0.02),
        _shots_against_masks,
    ),
    _gradients("masks", "50 masks", _llada(0.234, 0.220) | _dream(0.282, 0.144) | _moe(0.237, 0.188)),
    _gradients(
        "the nearest other tokens",
        "the nearest 50 other tokens",
        _llada(0.005, 0.057) | _dream(0.012, 0.030) | _moe(0.094, 0.150),
    ),
    _gradients(
        "all other tokens", "all other tokens", _llada(0.005, 0.017) | _dream(0.005, 0.018) | _moe(0.029, 0.028)
    ),
)
