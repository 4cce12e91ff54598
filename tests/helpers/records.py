"""Records and manifests from the few fields that a test is about."""

from collections.abc import Iterable, Mapping
from typing import Any

from maskwise.records.manifest import Manifest, ModelDescription, RunSettings
from maskwise.records.record import Record

PLAIN = {"model": "m", "probe": "p", "task": "t", "point": 0, "condition": {}, "masks": 2, "predicted": "A",
         "answer": "A", "correct": True}  # fmt: skip


def record(**fields: Any) -> Record:
    return Record(**(PLAIN | fields))


def records(listed: Iterable[Mapping[str, Any]]) -> list[Record]:
    return [record(**fields) for fields in listed]


def manifest(complete: bool = True, model: Mapping[str, Any] = {}, **settings: Any) -> Manifest:
    described = {
        "name": "m",
        "kind": "llada",
        "parameters": 1,
        "window": 9,
        "mask_id": 7,
        "shift": False,
        "causal": False,
        "dtype": "float32",
    }
    asked = {"preset": "quick", "probes": ["p"], "tasks": ["t"], "questions": 3, "seed": 0, "chat": False}
    return Manifest(
        model=ModelDescription(**(described | model)),
        settings=RunSettings(**(asked | settings)),
        versions={},
        complete=complete,
        notes=[],
    )
