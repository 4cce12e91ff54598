"""Records and manifests from the few fields that a test is about."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from maskwise.records.folder import append, record_files
from maskwise.records.manifest import FORMAT, Manifest, ModelDescription, RunSettings
from maskwise.records.record import Record
from maskwise.records.table import Answers, Table

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
        format=FORMAT,
        model=ModelDescription(**(described | model)),
        settings=RunSettings(**(asked | settings)),
        versions={},
        complete=complete,
        notes=[],
    )


def table_of(listed: Sequence[Record]) -> Table:
    """The table of records of one probe, as a run that wrote them is read."""
    model, probe = listed[0].model, listed[0].probe
    with TemporaryDirectory() as place:
        append(Path(place), 0, listed)
        answers = Answers(record_files(Path(place)), manifest(model={"name": model}, probes=[probe]), {})
    return answers.tables()[probe]
