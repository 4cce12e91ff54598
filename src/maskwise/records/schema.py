"""What a manifest and a record must hold. Run folders may come from strangers: they are checked when they are read."""

import math
import sys
from collections.abc import Callable, Collection, Mapping
from operator import itemgetter
from typing import Any, NamedTuple

from maskwise.support.files import to_json

Test = Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _flag(value: Any) -> bool:
    return isinstance(value, bool)


def _count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _share(value: Any) -> bool:
    return _number(value) and -1e-6 <= value <= 1 + 1e-6  # rounding may leave it a hair outside


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_text, value))


def _counts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_count, value))


def _objects(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(entry, dict) for entry in value.values())


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


def _tops(value: Any) -> bool:
    """[[text, probability], ...]"""
    return isinstance(value, list) and all(
        isinstance(one, list) and len(one) == 2 and _text(one[0]) and _share(one[1]) for one in value
    )


class Field(NamedTuple):
    """What a value must be, in words and as a test, and what it says. The site's page of fields is made of these."""

    kind: str
    fits: Test
    about: str
    always: bool = True  # False: it may be left out


TEXT = ("a text", _text)
COUNT = ("a whole number, 0 or more", _count)
NUMBER = ("a number", _number)
FLAG = ("true or false", _flag)
NUMBERS = ("a list of numbers", lambda value: isinstance(value, list) and all(map(_number, value)))
OBJECT = ("an object", lambda value: isinstance(value, dict))


def or_null(kind: tuple[str, Test]) -> tuple[str, Test]:
    words, fits = kind
    return f"{words}, or null", lambda value: value is None or fits(value)


TEXT_OR_NULL, COUNT_OR_NULL, NUMBER_OR_NULL, FLAG_OR_NULL = map(or_null, (TEXT, COUNT, NUMBER, FLAG))

RECORD: Mapping[str, Field] = {
    "model": Field(*TEXT, "the model's name, as in the manifest"),
    "probe": Field(*TEXT, "the probe that asked"),
    "task": Field(*TEXT, "the task, list or passage that was asked"),
    "point": Field(*COUNT, "the number of the test point within its task; the same under every condition"),
    "condition": Field(
        "an object of numbers and texts", _condition, "what the probe varies, such as masks, location or relevant"
    ),
    "masks": Field(*COUNT, "masks that the model saw, the answer's own included"),
    "predicted": Field(*TEXT, "the most probable token of the whole vocabulary, or the one that decoding wrote"),
    "answer": Field(*TEXT, "the right answer"),
    "correct": Field(*FLAG, "is predicted the answer?"),
    "confidence": Field("a number from 0 to 1", _share, "probability of predicted"),
    "entropy": Field(*NUMBER, "of the prediction, in nats"),
    "nll": Field(*NUMBER, "negative log-likelihood of the answer's (first) token, in nats"),
}
OPTIONAL: Mapping[str, Field] = {
    "offset": Field(*COUNT, "of a block diffusion model: the answer's place in its block", False),
    "visible": Field(*COUNT, "of a block diffusion model: masks that the answer sees, its own included", False),
    "nll_allowed": Field(*NUMBER, "-log P(one of the listed answers), in nats: the format", False),
    "nll_choice": Field(*NUMBER, "-log P(the right one, given one of them), in nats: the content", False),
    "evidence": Field(
        "an object of numbers, texts and lists of numbers", _evidence, "what the probe measures beside", False
    ),
}
PLAIN_OPTIONAL = {"nll_allowed", "nll_choice", "offset", "visible"}  # numbers alone
SAMPLED: Mapping[str, Field] = {
    **{name: RECORD[name] for name in ("probe", "task", "point", "condition", "answer", "correct")},
    "tokens": Field("a list of texts", _texts, "of the prompt, as the model saw it"),
    "row": Field(*COUNT, "the answer's place among them"),
    "top": Field("a list of texts with their probabilities", _tops, "the likeliest answers"),
    "probability": Field("a number from 0 to 1", _share, "of the right answer"),
}
MANIFEST: Mapping[str, Field] = {
    "model": Field(*OBJECT, "the model that was asked"),
    "settings": Field(*OBJECT, "what was asked; a run with other settings is refused"),
    "versions": Field(
        "an object of texts",
        lambda value: isinstance(value, dict) and all(map(_text, value.values())),
        "of maskwise, Python, torch and transformers",
    ),
    "complete": Field(*FLAG, "was everything asked?"),
    "notes": Field("a list of texts", _texts, "what a reader must know: probes that do not apply, shorter contexts"),
    "command": Field(*TEXT_OR_NULL, "the command line that was run", False),
    "not_visible": Field(
        "an object of lists of whole numbers",
        lambda value: (
            isinstance(value, dict) and all(isinstance(one, list) and all(map(_count, one)) for one in value.values())
        ),
        "by probe, numbers of masks or fillers that no answer of a block diffusion model sees; they were not asked",
        False,
    ),
}
MODEL: Mapping[str, Field] = {
    "name": Field(*TEXT, "its name or folder"),
    "kind": Field(*TEXT, "its family; ar is autoregressive"),
    "parameters": Field(*COUNT, "how many"),
    "window": Field(*COUNT, "context length in tokens"),
    "mask_id": Field(
        "a token's number or null", lambda value: value is None or _count(value), "the mask; null if autoregressive"
    ),
    "shift": Field(*FLAG, "is position i predicted from hidden state i - 1?"),
    "causal": Field(*FLAG, "does attention see the past alone?"),
    "dtype": Field(*TEXT, "of the weights"),
    "weights": Field(*TEXT, "fp8 or int4, where the layers' maps were quantised at opening", False),
    "planted": Field(*TEXT_OR_NULL, "the fault that was planted in it, to be found", False),
    "block": Field(
        "a whole number, 1 or more",
        lambda value: _count(value) and value > 0,
        "of a block diffusion model: tokens of a block; attention sees no block after a token's own",
        False,
    ),
}
SETTINGS: Mapping[str, Field] = {
    "preset": Field(*TEXT, "quick, default, full or paper"),
    "probes": Field("a list of names", _texts, "in the order in which they were asked"),
    "tasks": Field("a list of names", _texts, "of the few-shot probes"),
    "points": Field(*COUNT, "test points per task"),
    "seed": Field(*COUNT, "draws the examples and questions"),
    "chat": Field(*FLAG, "was it asked through the chat template?"),
    "relevant": Field(
        "a list of whole numbers",
        lambda value: _counts(value) or _count(value),  # one number in runs of version 0.1
        "numbers of relevant examples that were asked",
        False,
    ),
    "distractors": Field(*COUNT, "examples of other rules among them", False),
    "filler": Field(*TEXT, "what stands in place of masks where they are compared with text", False),
    "precision": Field(*NUMBER_OR_NULL, "the half-width in points that was asked for", False),
    "parameters": Field("an object of objects", _objects, "each probe's own, by its name", False),
}


def problem_of_manifest(manifest: Any) -> str | None:
    """What is wrong with a manifest, in words; None if nothing is."""
    if not isinstance(manifest, dict):
        return "it is not an object"
    found = problem_within(manifest, MANIFEST)
    return (
        found
        or problem_within(manifest["model"], MODEL, "model.")
        or problem_within(manifest["settings"], SETTINGS, "settings.")
    )


def problem_of_record(record: Any, model: str, probes: Collection[str], condition_known: bool = False) -> str | None:
    """What is wrong with a record of a run of this model and these probes, in words; None if nothing is.

    condition_known: its condition was checked with another record.
    """
    if not isinstance(record, dict):
        return "it is not an object"
    if _is_plain(record, model, probes, condition_known):
        return None
    found = problem_within(record, {**RECORD, **OPTIONAL})
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
    found = problem_within(prompt, SAMPLED)
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


_PLAIN = itemgetter(*RECORD)


def _is_plain(record: dict[str, Any], model: str, probes: Collection[str], condition_known: bool) -> bool:
    """The same question for the records of which a run has a million, in one expression; False is not yet a problem."""
    try:
        own, probe, task, point, condition, masks, predicted, answer, correct, confidence, entropy, nll = _PLAIN(record)
    except KeyError:
        return False
    allowed, choice = record.get("nll_allowed", 0.0), record.get("nll_choice", 0.0)
    offset, visible = record.get("offset", 0), record.get("visible", 0)
    return (
        own == model
        and type(probe) is type(task) is type(predicted) is type(answer) is str
        and probe in probes
        and type(point) is type(masks) is type(offset) is type(visible) is int
        and 0 <= point < 2**63
        and 0 <= masks < 2**63
        and 0 <= offset < 2**63
        and 0 <= visible < 2**63
        and type(correct) is bool
        and type(confidence) is type(nll) is type(entropy) is type(allowed) is type(choice) is float
        and 0 <= confidence <= 1
        and -math.inf < nll < math.inf
        and -math.inf < entropy < math.inf
        and -math.inf < allowed < math.inf
        and -math.inf < choice < math.inf
        and len(record) == len(RECORD) + len(PLAIN_OPTIONAL & record.keys())
        and (condition_known or _condition(condition))
    )


def _is_finite(value: Any) -> bool:
    """Of whatever JSON holds, also under names that no schema knows."""
    try:
        to_json(value)
    except ValueError:
        return False
    return True


def problem_within(value: Mapping[str, Any], schema: Mapping[str, Field], within: str = "") -> str | None:
    """What is wrong with an object of these fields, in words; None if nothing is."""
    for name, field in schema.items():
        if name not in value:
            if field.always:
                return f"{within}{name} is missing"
        elif not field.fits(value[name]):
            return _not(within + name, value[name], field.kind)
    return None


def _not(name: str, value: Any, wanted: str) -> str:
    return f"{name} is {_short(value)}, not {wanted}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
