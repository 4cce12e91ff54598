"""What a manifest and a record must hold. Run folders may come from strangers: they are checked when they are read."""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from maskwise.files import to_json

Test = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < math.inf


def _share(value: Any) -> bool:
    return _number(value) and -1e-6 <= value <= 1 + 1e-6  # rounding may leave it a hair outside


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _condition(value: Any) -> bool:
    return isinstance(value, dict) and all(_text(entry) or _flag(entry) or _number(entry) for entry in value.values())


def _evidence(value: Any) -> bool:
    """{name: a number, a text, null, or a list of numbers}."""
    return isinstance(value, dict) and all(
        entry is None
        or isinstance(entry, str | bool)
        or _number(entry)
        or (isinstance(entry, list) and all(map(_number, entry)))
        for entry in value.values()
    )


# name: (what it must be, in words; the test of it)
RECORD: Mapping[str, tuple[str, Test]] = {
    "model": ("a text", _text),
    "probe": ("a text", _text),
    "task": ("a text", _text),
    "point": ("a whole number, 0 or more", _count),
    "condition": ("an object of numbers and texts", _condition),
    "masks": ("a whole number, 0 or more", _count),
    "predicted": ("a text", _text),
    "answer": ("a text", _text),
    "correct": ("true or false", _flag),
    "confidence": ("a number from 0 to 1", _share),
    "entropy": ("a number", _number),
    "nll": ("a number", _number),
}
OPTIONAL: Mapping[str, tuple[str, Test]] = {
    "nll_allowed": ("a number", _number),
    "nll_choice": ("a number", _number),
    "evidence": ("an object of numbers, texts and lists of numbers", _evidence),
}


def _tops(value: Any) -> bool:
    """[[text, probability], ...]"""
    return isinstance(value, list) and all(
        isinstance(one, list) and len(one) == 2 and _text(one[0]) and _share(one[1]) for one in value
    )


SAMPLED: Mapping[str, tuple[str, Test]] = {
    "probe": ("a text", _text),
    "task": ("a text", _text),
    "point": ("a whole number, 0 or more", _count),
    "condition": ("an object of numbers and texts", _condition),
    "answer": ("a text", _text),
    "correct": ("true or false", _flag),
    "tokens": ("a list of texts", _texts),
    "row": ("a whole number, 0 or more", _count),
    "top": ("a list of texts with their probabilities", _tops),
    "probability": ("a number from 0 to 1", _share),
}
MANIFEST: Mapping[str, tuple[str, Test]] = {
    "model": ("an object", lambda value: isinstance(value, dict)),
    "settings": ("an object", lambda value: isinstance(value, dict)),
    "versions": ("an object of texts", lambda value: isinstance(value, dict) and all(map(_text, value.values()))),
    "complete": ("true or false", _flag),
    "notes": ("a list of texts", _texts),
}
MODEL: Mapping[str, tuple[str, Test]] = {
    "name": ("a text", _text),
    "kind": ("a text", _text),
    "parameters": ("a whole number, 0 or more", _count),
    "window": ("a whole number, 0 or more", _count),
    "mask_id": ("a token's number or null", lambda value: value is None or _count(value)),
    "shift": ("true or false", _flag),
    "causal": ("true or false", _flag),
    "dtype": ("a text", _text),
}
SETTINGS: Mapping[str, tuple[str, Test]] = {
    "preset": ("a text", _text),
    "probes": ("a list of names", _texts),
    "tasks": ("a list of names", _texts),
    "points": ("a whole number, 0 or more", _count),
    "seed": ("a whole number, 0 or more", _count),
    "chat": ("true or false", _flag),
}


def problem_of_manifest(manifest: Any) -> str | None:
    """What is wrong with a manifest, in words; None if nothing is."""
    if not isinstance(manifest, dict):
        return "it is not an object"
    found = _problem(manifest, MANIFEST)
    return (
        found or _problem(manifest["model"], MODEL, "model.") or _problem(manifest["settings"], SETTINGS, "settings.")
    )


def problem_of_record(record: Any, model: str, probes: Collection[str], condition_known: bool = False) -> str | None:
    """What is wrong with a record of a run of this model and these probes, in words; None if nothing is.

    condition_known: its condition was checked with another record.
    """
    if not isinstance(record, dict):
        return "it is not an object"
    if _is_plain(record, model, probes, condition_known):
        return None
    found = _problem(record, RECORD)
    for name, (wanted, fits) in OPTIONAL.items():
        if not found and name in record and not fits(record[name]):
            found = _not(name, record[name], wanted)
    if found:
        return found
    if not _is_finite(record):
        return "it holds a number that is too large"
    if record["model"] != model:
        return f"it is a record of another model, {_short(record['model'])}"
    if record["probe"] not in probes:
        return f"the run did not ask the probe {_short(record['probe'])}"
    return None


def problem_of_sampled(prompt: Any, probes: Collection[str]) -> str | None:
    """What is wrong with a prompt of a run's sample, in words; None if nothing is."""
    if not isinstance(prompt, dict):
        return "it is not an object"
    found = _problem(prompt, SAMPLED)
    if found:
        return found
    if prompt["probe"] not in probes:
        return f"the run did not ask the probe {_short(prompt['probe'])}"
    if prompt["row"] > len(prompt["tokens"]):
        return f"row {prompt['row']} is not one of its {len(prompt['tokens'])} tokens"
    weights = prompt.get("attribution", [])
    if not isinstance(weights, list) or not all(map(_share, weights)) or len(weights) not in (0, len(prompt["tokens"])):
        return "attribution is not a number from 0 to 1 for each token"
    return None


def _is_plain(record: dict[str, Any], model: str, probes: Collection[str], condition_known: bool) -> bool:
    """The same question for the records of which a run has a million, in one expression; False is not yet a problem."""
    get = record.get
    confidence, nll, entropy = get("confidence"), get("nll"), get("entropy")
    return (
        get("model") == model
        and type(get("probe")) is str
        and record["probe"] in probes
        and type(get("task")) is type(get("predicted")) is type(get("answer")) is str
        and type(get("point")) is type(get("masks")) is int
        and 0 <= record["point"] < 2**63
        and 0 <= record["masks"] < 2**63
        and type(get("correct")) is bool
        and type(confidence) is type(nll) is type(entropy) is float
        and 0 <= confidence <= 1
        and -math.inf < nll < math.inf
        and -math.inf < entropy < math.inf
        and type(get("nll_allowed", 0.0)) is type(get("nll_choice", 0.0)) is float
        and -math.inf < get("nll_allowed", 0.0) < math.inf
        and -math.inf < get("nll_choice", 0.0) < math.inf
        and len(record) == len(RECORD) + ("nll_allowed" in record) + ("nll_choice" in record)
        and (condition_known or _condition(get("condition")))
    )


def _is_finite(value: Any) -> bool:
    """Of whatever JSON holds, also under names that no schema knows."""
    try:
        to_json(value)
    except ValueError:
        return False
    return True


def _problem(value: Mapping[str, Any], schema: Mapping[str, tuple[str, Test]], within: str = "") -> str | None:
    for name, (wanted, fits) in schema.items():
        if name not in value:
            return f"{within}{name} is missing"
        if not fits(value[name]):
            return _not(within + name, value[name], wanted)
    return None


def _not(name: str, value: Any, wanted: str) -> str:
    return f"{name} is {_short(value)}, not {wanted}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
