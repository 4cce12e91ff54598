"""Run folders: a record per answer in records.jsonl, appended as the run goes, and manifest.json.

Under torchrun every process but the first appends to a file of its own (records.1.jsonl, ...); the first gathers them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from maskwise.records.manifest import FORMAT, Manifest
from maskwise.records.record import Record, RecordFields, condition_order
from maskwise.records.table import Answers, Table
from maskwise.records.upgrade import OLD, upgraded, with_todays_names
from maskwise.support.errors import UserError
from maskwise.support.files import open_own, open_regular, replace_file, short_json, to_json, writing
from maskwise.support.typed import InvalidJson, decode

RECORDS, MANIFEST = "records.jsonl", "manifest.json"
GO_ON = "the records so far are kept, run it again to go on"
CURES = ("cures.json", "cures.partial.jsonl")  # files of a command that 0.3 removed


@dataclass(frozen=True)
class RunOnDisk:
    """A run folder as read: its manifest and its answers."""

    folder: Path
    manifest: Manifest
    answers: Answers = field(repr=False, compare=False)

    @cached_property
    def tables(self) -> dict[str, Table]:
        """The answers of each probe that gave any, as a pandas table (records/table.py)."""
        return self.answers.tables()

    @cached_property
    def records(self) -> list[Record]:
        return self.answers.records()


def read_run(folder: str | Path, fields: Mapping[str, RecordFields] | None = None) -> RunOnDisk:
    """The run in a folder, finished or not.
    fields: by probe, what its records must hold (`maskwise.probes.record_fields`); other probes are not checked."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    return RunOnDisk(folder, manifest, Answers(record_files(folder), manifest, fields or {}))


def runs_in(folders: Sequence[Path]) -> list[Path]:
    """The run folders among these and directly in them, each once."""
    found: list[Path] = []
    for folder in folders:
        inner = sorted(one for one in folder.iterdir() if (one / MANIFEST).exists()) if folder.is_dir() else []
        own = [folder] if (folder / MANIFEST).exists() else inner
        if not own:
            raise UserError(f"{folder} is not a run folder, nor does it hold any: {no_run(folder)}")
        found += own
    return list({folder.resolve(): folder for folder in found}.values())


def start_run(folder: Path, manifest: Manifest) -> None:
    """Begins a run in a folder, or takes up one made with the same model and settings.
    A line torn by a kill is dropped, and the files of several processes become one."""
    if not (folder / MANIFEST).exists():
        if any(folder.glob("records*.jsonl")):
            raise UserError(f"{folder} holds records without a manifest; choose another --out or remove it")
        write_manifest(folder, manifest)
        return
    found = read_manifest(folder)
    if found.format < FORMAT and not found.complete:
        version = found.versions.get("maskwise", "")
        raise UserError(
            f"{folder} is unfinished and of maskwise {version}: it is read, not resumed; choose another --out"
        )
    _refuse_other_settings(folder, found, manifest)
    gather(folder, manifest)


def append(folder: Path, rank: int, records: Iterable[Record | dict[str, Any]]) -> None:
    """Adds records to this process's file, all of them on disk when it returns."""
    lines = "".join(_line(record) for record in records)
    name = RECORDS if rank == 0 else f"records.{rank}.jsonl"
    with writing(f"to {folder}", GO_ON), open_own(folder / name, append=True) as file:
        file.write(lines.encode("utf-8"))


def gather(folder: Path, manifest: Manifest) -> None:
    """All processes' records in one file, in an order that does not depend on how they were made."""
    probes, tasks = manifest.settings.probes, {name: place for place, name in enumerate(manifest.settings.tasks)}

    def order(one: Record) -> tuple[Any, ...]:
        task = tasks.get(one.task, len(tasks)), one.task
        return probes.index(one.probe), *task, one.point, condition_order(one.condition)

    records = sorted(Answers(record_files(folder), manifest, {}).records(), key=order)
    write_into(folder, RECORDS, (_line(record) for record in records))
    for file in record_files(folder):
        if file.name != RECORDS:
            file.unlink()


def write_manifest(folder: Path, manifest: Manifest) -> None:
    write_into(folder, MANIFEST, [to_json(manifest, indent=2) + "\n"])


def record_files(folder: Path) -> list[Path]:
    """One per process that has written records."""
    return sorted(file for file in folder.iterdir() if re.fullmatch(r"records(\.\d+)?\.jsonl", file.name))


def _line(record: Record | dict[str, Any]) -> str:
    return to_json(record) + "\n"


def write_into(folder: Path, name: str, parts: Iterable[str]) -> None:
    """A file of a run folder, whole or not at all."""
    with writing(f"to {folder}", GO_ON):
        replace_file(folder / name, parts)


def no_run(folder: Path) -> str:
    """Why a path is no run folder, and what to give instead."""
    if folder.is_file():
        return "give the folder that maskwise diagnose wrote"
    if any((folder / name).exists() for name in CURES):
        return f"it is of the command cures, removed in 0.3; {OLD}"
    return f"it has no readable {MANIFEST}; run maskwise diagnose first, and give the folder it writes"


def read_manifest(folder: Path) -> Manifest:
    """The manifest alone, without the records."""
    file = folder / MANIFEST
    try:
        with open_regular(file) as opened:
            content = opened.read()
    except OSError:
        raise UserError(f"{folder} is not a run folder: {no_run(folder)}") from None
    try:
        return upgraded(folder, decode(with_todays_names(content), Manifest))
    except InvalidJson as problem:
        raise UserError(f"{file} is not JSON ({problem}); remove the folder and run diagnose again") from None
    except ValueError as problem:
        if b'"command": "advise"' in content:
            raise UserError(f"{folder} is of advise in maskwise 0.2; {OLD}: choose another folder") from None
        raise UserError(f"{file} is not a manifest of maskwise diagnose: {problem}") from None


def _refuse_other_settings(folder: Path, found: Manifest, wanted: Manifest) -> None:
    for part, what in (("model", "another model"), ("settings", "other settings")):
        before, now = found[part], wanted[part]
        for name in {**before, **now}:
            old, new = before.get(name), now.get(name)
            if old != new:
                changed = f"{name} was {short_json(old)} and is {short_json(new)} now"
                raise UserError(f"{folder} was made with {what}: {changed}; choose another --out or remove it")
