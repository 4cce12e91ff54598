"""Run folders: one record per test point in records.jsonl, appended as the run goes, and manifest.json.

Under torchrun every process but the first appends to a file of its own (records.1.jsonl, ...); the first gathers them.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from msgspec import structs

from maskwise.records.groups import GroupedRecords, groups_of
from maskwise.records.manifest import Manifest
from maskwise.records.record import Record, RecordFields, condition_order
from maskwise.records.record_files import read_records
from maskwise.records.table import Table
from maskwise.records.table import table_of as table_of_records
from maskwise.records.upgrade import upgraded, with_todays_names
from maskwise.support.errors import UserError
from maskwise.support.files import (
    open_own,
    open_regular,
    refuse_checkpoint_folder,
    replace_file,
    short_json,
    to_json,
    writing,
)
from maskwise.support.grouping import grouped
from maskwise.support.removed import REMOVED
from maskwise.support.typed import InvalidJson, decode

RECORDS, MANIFEST = "records.jsonl", "manifest.json"
GO_ON = "the records so far are kept, run it again to go on"
CURES = ("cures.json", "cures.partial.jsonl")  # files of a command that 0.3 removed
EARLIER = ("0.1", "0.2")
OLD = "maskwise at commit cc8a75cd reads it"


@dataclass(frozen=True)
class RunOnDisk:
    """A run folder as read: its manifest and every record."""

    folder: Path
    manifest: Manifest
    records: Sequence[Record]
    fields: Mapping[str, RecordFields] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def tables(self) -> dict[str, Table]:
        """The answers of each probe that gave any, as a pandas table (records/table.py)."""
        return tables_of(self, [name for name, own in self.fields.items() if own.names_relevant])

    @cached_property
    def by_probe(self) -> dict[str, GroupedRecords]:
        """The records of each probe that gave any, grouped by condition."""
        found = grouped((group.probe, group) for group in groups_of(self.records))
        return {probe: GroupedRecords(groups) for probe, groups in found.items()}


def tables_of(run: RunOnDisk, few_shot: Collection[str]) -> dict[str, Table]:
    """The table of each probe. few_shot: those whose conditions have the number of relevant examples."""
    return {name: table_of_records(records, name in few_shot) for name, records in run.by_probe.items()}


def read_run(folder: str | Path, fields: Mapping[str, RecordFields] | None = None) -> RunOnDisk:
    """The run in a folder, finished or not.
    fields: by probe, what its records must hold (`maskwise.probes.record_fields`); other probes are not checked."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    return RunOnDisk(folder, manifest, read_records(record_files(folder), manifest, fields or {}), fields or {})


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


def make_run_folder(folder: Path) -> None:
    refuse_checkpoint_folder(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"cannot make the run folder {folder}: {problem.strerror}; choose another --out") from None


def start_run(folder: Path, manifest: Manifest) -> None:
    """Creates a run folder, or takes up one made with the same model and settings.
    A line torn by a kill is dropped, and the files of several processes become one."""
    make_run_folder(folder)
    if (folder / MANIFEST).exists():
        found = read_manifest(folder)
        version = found.versions.get("maskwise", "")
        if version.startswith(EARLIER) and not found.complete:
            raise UserError(
                f"{folder} is unfinished and of maskwise {version}: it is read, not resumed; choose another --out"
            )
        _refuse_other_settings(folder, found, manifest)
        gather(folder, manifest)
        return
    if any(folder.glob("records*.jsonl")):
        raise UserError(f"{folder} holds records without a manifest; choose another --out or remove it")
    write_manifest(folder, manifest)


def append(folder: Path, rank: int, records: Iterable[Record | dict[str, Any]]) -> None:
    """Adds records to this process's file, all of them on disk when it returns."""
    lines = "".join(_line(record) for record in records)
    name = RECORDS if rank == 0 else f"records.{rank}.jsonl"
    with writing(f"to {folder}", GO_ON), open_own(folder / name, append=True) as file:
        file.write(lines.encode("utf-8"))


def gather(folder: Path, manifest: Manifest) -> None:
    """All processes' records in one file, in an order that does not depend on how they were made."""
    probes, tasks = manifest.settings.probes, {name: place for place, name in enumerate(manifest.settings.tasks)}
    records = sorted(
        read_records(record_files(folder), manifest, {}),
        key=lambda r: (
            *(probes.index(r.probe), tasks.get(r.task, len(tasks)), r.task, r.point),
            condition_order(r.condition),
        ),
    )
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
        return upgrade(folder, decode(with_todays_names(content), Manifest))
    except InvalidJson as problem:
        raise UserError(f"{file} is not JSON ({problem}); remove the folder and run diagnose again") from None
    except ValueError as problem:
        if b'"command": "advise"' in content:
            raise UserError(f"{folder} is of advise in maskwise 0.2; {OLD}: choose another folder") from None
        raise UserError(f"{file} is not a manifest of maskwise diagnose: {problem}") from None


def upgrade(folder: Path, manifest: Manifest) -> Manifest:
    """The manifest of a run of version 0.2 with today's probes, and a note on those removed since: their answers are
    skipped.

    Removed probes stay in its list. A run with no other probe, or of a model behind a server, is refused.
    """
    if manifest.model.kind == "served":
        raise UserError(f"{folder} is a run of --endpoint, removed in 0.3; {OLD}")
    manifest = upgraded(manifest)
    removed = [name for name in manifest.settings.probes if name in REMOVED["probe"]]
    if not removed:
        return manifest
    named = ", ".join(removed)
    if len(removed) == len(manifest.settings.probes):
        raise UserError(f"{folder} holds nothing but answers of probes removed in 0.3 ({named}); {OLD}")
    note = f"answers of {named} are skipped: these probes were removed in 0.3; maskwise at commit cc8a75cd shows them"
    return structs.replace(manifest, notes=[*manifest.notes, note])


def _refuse_other_settings(folder: Path, found: Manifest, wanted: Manifest) -> None:
    for part in ("model", "settings"):
        before, now = found[part], wanted[part]
        for name in {**before, **now}:
            old, new = before.get(name), now.get(name)
            if old != new:
                what = "another model" if part == "model" else "other settings"
                raise UserError(
                    f"{folder} was made with {what}: {name} was {short_json(old)} and is {short_json(new)} now; "
                    "choose another --out or remove it"
                )
