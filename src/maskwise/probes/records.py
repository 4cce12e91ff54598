"""Run folders: one record a test point in records.jsonl, appended as the run goes, and manifest.json beside it.

A record: {"model", "probe", "task", "point", "condition": {...}, "masks", "predicted", "answer", "correct",
"confidence", "entropy", "nll"}. The conditions, by probe:

    location            {"location": 20}                            distractors before the block
    question-position   {"question": "left", "location": 20}
    mask-count          {"masks": 50}
    filler              {"filler": ".", "fillers": 50}
    context-length      {"distractors": 20, "masks": "20% masks"}   or "2 masks", or "no masks" (autoregressive)
    location-masks      {"location": 20, "masks": 50}
    natural-text        {"after": "masks", "count": 50}             or "full stops": what follows the masked word
    attribution         {"question": "left"}                        with "evidence": {"examples": [...], "question"}
    mask-attribution    {"extra masks": 50}                         with "evidence": {"masks", "near", "all"}
    attention           {"extra masks": 50}                         with "evidence": {"masks": [a layer], "near", ...}
    unmasking           {"order": "confidence", "masks": 50}        or "random"
    few-steps           {"steps": 2, "masks": 50}
    shots-masks         {"shots": 25, "extra masks": 200}
    points              {"order": "nearest last"}                   tasks are shapes with a seed
    hotpotqa            {"share": 0.05}                             masks beyond the answer's, a share of the length
    labelled-text       {"share": 0.05}                             tasks are data sets
    nelbo               {"draws": 8}                                nll is the estimate, in nats a token
    marginals           {"suffix": "none", "distance": 8}           or "visible"; "evidence": {"tv_next", ...}
    total-correlation   {"distance": 8}                             with "evidence": {"tc", ...}
    order               {"rule": "margin"}                          with "evidence": {"tau", "global1", "local1", ...}
    coherence           {"puzzle": "copy", "rule": "random", "speed": "2 a step"}   tasks are puzzles

Under torchrun every process but the first appends to a file of its own (records.1.jsonl, ...); the first gathers them.
"""

import functools
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwise.errors import UserError
from maskwise.files import replace_file

Condition = dict[str, int | float | str]
Record = dict[str, Any]
Key = tuple[str, str, int, str]

RECORDS, MANIFEST = "records.jsonl", "manifest.json"
FIELDS = ("model", "probe", "task", "point", "condition", "masks", "predicted", "answer", "correct", "confidence",
          "entropy", "nll")  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A run folder as read: what was asked (manifest) and every record."""

    folder: Path
    manifest: dict[str, Any]
    records: list[Record]


def still_to_ask(
    probe: str, task: str, points: Sequence[int], conditions: Sequence[Condition], done: Collection[Key]
) -> Iterator[tuple[Key, int, Condition]]:
    """Each point under each condition that no record holds yet, with its key."""
    for point in points:
        for condition in conditions:
            key = make_key(probe, task, point, condition)
            if key not in done:
                yield key, point, condition


def make_key(probe: str, task: str, point: int, condition: Condition) -> Key:
    """What makes a record the only one of its kind in a run."""
    return probe, task, point, condition_text(condition)


def condition_text(condition: Condition) -> str:
    """A condition as one string, the same for equal conditions."""
    return _sorted_json(tuple(condition.items()))


@functools.cache  # a million records share a few dozen conditions
def _sorted_json(items: tuple[tuple[str, int | float | str], ...]) -> str:
    return json.dumps(dict(items), sort_keys=True)


def key_of(record: Record) -> Key:
    return make_key(record["probe"], record["task"], record["point"], record["condition"])


def condition_order(condition: Condition) -> tuple[Any, ...]:
    """A sort key that goes by the first entry, then the next, and puts 2 before 10 and numbers before words."""
    return tuple((name, isinstance(value, str), value) for name, value in condition.items())


def read_run(folder: str | Path) -> Run:
    """The run in a folder, finished or not."""
    folder = Path(folder)
    return Run(folder, _read_manifest(folder), _read_all_records(folder))


def start_run(folder: Path, manifest: dict[str, Any]) -> None:
    """Creates a run folder, or takes up one made with the same model and settings.

    A line torn by a kill is dropped, and the files of several processes become one.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"cannot make the run folder {folder}: {problem.strerror}; choose another --out") from None
    if (folder / MANIFEST).exists():
        _refuse_other_settings(folder, _read_manifest(folder), manifest)
        gather(folder, manifest)
        return
    if any(folder.glob("records*.jsonl")):
        raise UserError(f"{folder} holds records without a manifest; choose another --out or remove it")
    write_manifest(folder, manifest)


def append(folder: Path, rank: int, records: Iterable[Record]) -> None:
    """Adds records to this process's file, all of them on disk when it returns."""
    lines = "".join(_line(record) for record in records)
    try:
        with (folder / _file_name(rank)).open("a", encoding="utf-8") as file:
            file.write(lines)
    except OSError as problem:
        raise _cannot_write(folder, problem) from None


def gather(folder: Path, manifest: dict[str, Any]) -> None:
    """All processes' records in one file, in an order that does not depend on how they were made."""
    settings = manifest["settings"]
    probes, tasks = settings["probes"], {name: place for place, name in enumerate(settings["tasks"])}
    unique = {key_of(record): record for record in _read_all_records(folder)}
    records = sorted(
        unique.values(),
        key=lambda r: (
            *(probes.index(r["probe"]), tasks.get(r["task"], len(tasks)), r["task"], r["point"]),
            condition_order(r["condition"]),
        ),
    )
    _write(folder, RECORDS, (_line(record) for record in records))
    for file in _record_files(folder):
        if file.name != RECORDS:
            file.unlink()


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    _write(folder, MANIFEST, [json.dumps(manifest, indent=2, ensure_ascii=False) + "\n"])


def _file_name(rank: int) -> str:
    return RECORDS if rank == 0 else f"records.{rank}.jsonl"


def _record_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if re.fullmatch(r"records(\.\d+)?\.jsonl", file.name))


def _line(record: Record) -> str:
    return json.dumps(record, ensure_ascii=False) + "\n"


def _write(folder: Path, name: str, parts: Iterable[str]) -> None:
    try:
        replace_file(folder / name, parts)
    except OSError as problem:
        raise _cannot_write(folder, problem) from None


def _cannot_write(folder: Path, problem: OSError) -> UserError:
    return UserError(
        f"cannot write to {folder}: {problem.strerror}; the records so far are kept, run it again to go on"
    )


def _read_manifest(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"{folder} is not a run folder: it has no readable {MANIFEST}") from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise UserError(f"{folder / MANIFEST} is not JSON; remove the folder and run diagnose again") from None
    whole = isinstance(manifest, dict) and {"model", "settings", "versions", "complete", "notes"} <= manifest.keys()
    if not whole or not manifest["settings"] or not manifest["model"]:
        raise UserError(f"{folder / MANIFEST} is not a manifest of maskwise diagnose")
    return manifest


def _refuse_other_settings(folder: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for part in ("model", "settings"):
        for name in {**found[part], **wanted[part]}:
            old, new = found[part].get(name), _as_stored(wanted[part].get(name))
            if old != new:
                what = "another model" if part == "model" else "other settings"
                raise UserError(
                    f"{folder} was made with {what}: {name} was {_short(old)} and is {_short(new)} now; "
                    "choose another --out or remove it"
                )


def _as_stored(value: Any) -> Any:
    """Tuples come back from JSON as lists."""
    return json.loads(json.dumps(value))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def _read_all_records(folder: Path) -> list[Record]:
    return [record for file in _record_files(folder) for record in _read_records(file)]


def _read_records(file: Path) -> Sequence[Record]:
    """The records of one file. A last line without its end was torn by a kill and is left out."""
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError as problem:
        raise UserError(f"cannot read {file}: {problem.strerror}") from None
    records = []
    for number, line in enumerate(lines[:-1], start=1):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            record = None
        if not isinstance(record, dict) or not all(name in record for name in FIELDS):
            raise UserError(f"{file} line {number} is not a record of maskwise diagnose; remove the line to go on")
        records.append(record)
    return records
