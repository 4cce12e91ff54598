"""The fields of `condition` and `evidence` in the records of each probe; what they mean is said in the probe's file.

A probe counts on them when it sums its records up, and a stranger's may lack any. Probes that are not listed, those of
a user, are not checked.
"""

from collections.abc import Mapping
from typing import Any

from maskwise.records.schema import COUNT, NUMBER, NUMBER_OR_NULL, NUMBERS, TEXT, Field, Test, problem_within

Kinds = Mapping[str, tuple[str, Test]]
Fields = Mapping[str, Field]


def _fields(always: Kinds, sometimes: Kinds | None = None) -> Fields:
    return {
        **{name: Field(*kind, "") for name, kind in always.items()},
        **{name: Field(*kind, "", False) for name, kind in (sometimes or {}).items()},
    }


AT_LEAST_1 = ("a whole number, 1 or more", lambda value: COUNT[1](value) and value > 0)
RELEVANT = {"relevant": COUNT}  # where a run asks with several numbers of relevant examples
CONDITIONS: Mapping[str, Fields] = {
    "location": _fields({"location": COUNT}, RELEVANT),
    "question-position": _fields({"question": TEXT, "location": COUNT}, RELEVANT),
    "recall": _fields({"question": TEXT, "distance": TEXT, "masks": COUNT, "fillers": COUNT}),
    "mask-count": _fields({"masks": COUNT}, RELEVANT),
    "block-offset": _fields({"after": TEXT, "offset": COUNT}, RELEVANT),
    "filler": _fields({"filler": TEXT, "fillers": COUNT}, {"format": TEXT} | RELEVANT),
    "context-length": _fields({"distractors": COUNT, "masks": TEXT}, RELEVANT),
    "location-masks": _fields({"location": COUNT, "masks": COUNT}, RELEVANT),
    "contrast": _fields({"examples": TEXT, "masks": COUNT}),
    "calibration": _fields({"masks": COUNT}),
    "natural-text": _fields({"after": TEXT, "count": COUNT}),
    "attribution": _fields({"question": TEXT}),
    "mask-attribution": _fields({"extra masks": COUNT}),
    "attention": _fields({"extra masks": COUNT}),
    "mechanism": _fields({"masks": COUNT}, {"fillers": COUNT, "place": TEXT, "attention": TEXT}),
    "unmasking": _fields({"order": TEXT, "masks": COUNT}, RELEVANT),
    "few-steps": _fields({"steps": COUNT, "masks": COUNT}, RELEVANT),
    "shots-masks": _fields({"shots": COUNT, "extra masks": COUNT}),
    "hotpotqa": _fields({"share": NUMBER}),
    "points": _fields({"order": TEXT}, {"question": TEXT, "examples": COUNT, "share": NUMBER}),  # 0.1 has the order
    "labelled-text": _fields({"share": NUMBER}),
    "generation-length": _fields({"layout": TEXT, "canvas": COUNT}),
    "likelihood-masks": _fields({"masks": COUNT}),
    "nelbo": _fields({"draws": COUNT}),
    "marginals": _fields({"suffix": TEXT, "distance": COUNT}),
    "total-correlation": _fields({"distance": COUNT}),
    "order": _fields({"rule": TEXT}),
    "coherence": _fields({"puzzle": TEXT, "rule": TEXT, "speed": TEXT}),
}
EVIDENCE: Mapping[str, Fields] = {
    "recall": _fields({"pairs": AT_LEAST_1, "between": COUNT, "offset": NUMBER_OR_NULL}),
    "attribution": _fields({"examples": NUMBERS, "question": NUMBER}),
    "mask-attribution": _fields({"masks": NUMBER, "near": NUMBER, "all": NUMBER}),
    "attention": _fields({"answer": NUMBERS, "masks": NUMBERS, "near": NUMBERS, "far": NUMBERS}),
    "generation-length": _fields({"length": COUNT, "ended": NUMBER, "end_share": NUMBER}, {"end_step": NUMBER}),
    "marginals": _fields({"tv_unigram": NUMBER, "common": NUMBER}, {"mode_common": NUMBER, "tv_next": NUMBER}),
    "total-correlation": _fields({"tc": NUMBER, "forth": NUMBER, "back": NUMBER}),
    "order": _fields({"tau": NUMBER, "global1": NUMBER, "global4": NUMBER, "local1": NUMBER, "local4": NUMBER}),
    "coherence": _fields({"tokens_per_pass": NUMBER, "ideal": NUMBER, "ideal_speed": NUMBER}),
}


def problem_of_condition(probe: str, condition: Mapping[str, Any]) -> str | None:
    """What is wrong with a condition of a probe's records, in words; None if nothing is."""
    return _problem(CONDITIONS.get(probe), condition, "condition")


def problem_of_evidence(probe: str, record: Mapping[str, Any]) -> str | None:
    """What is wrong with the evidence of a probe's record, in words; None if nothing is."""
    return _problem(EVIDENCE.get(probe), record.get("evidence", {}), "evidence")


def _problem(fields: Fields | None, value: Mapping[str, Any], within: str) -> str | None:
    if fields is None:
        return None
    odd = next((name for name in value if name not in fields), None)
    return problem_within(value, fields, f"{within}.") if odd is None else f"{within} has a field {odd[:40]!r}"
