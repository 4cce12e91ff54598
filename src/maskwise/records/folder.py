"""Run folders: one record per test point in records.jsonl, appended as the run goes, and manifest.json beside it.

Under torchrun every process but the first appends to a file of its own (records.1.jsonl, ...); the first gathers them.
"""

import gc
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import count, repeat
from pathlib import Path
from typing import Any

from maskwise.records.conditions import EVIDENCE, problem_of_condition, problem_of_evidence
from maskwise.records.groups import Group, Records, groups_of
from maskwise.records.record import Condition, Record, condition_order, key_of
from maskwise.records.schema import problem_of_manifest, problem_of_record
from maskwise.support.errors import UserError
from maskwise.support.files import open_own, parse_json, replace_file, short_json, to_json

BLOCK = 1 << 20  # bytes of lines that are parsed together
RECORDS, MANIFEST = "records.jsonl", "manifest.json"
ADVISE = "advise"  # the command in the manifest of a search of advise; that of a run is a whole command line


@dataclass(frozen=True)
class Run:
    """A run folder as read: what was asked (manifest) and every record."""

    folder: Path
    manifest: dict[str, Any]
    records: list[Record]

    @cached_property
    def by_probe(self) -> dict[str, Records]:
        """The records of each probe that gave any, grouped by condition."""
        found: dict[str, list[Group]] = {}
        for group in groups_of(self.records):
            found.setdefault(group.probe, []).append(group)
        return {probe: Records(groups) for probe, groups in found.items()}


def read_run(folder: str | Path) -> Run:
    """The run in a folder, finished or not."""
    folder = Path(folder)
    manifest = _read_manifest(folder)
    return Run(folder, manifest, _read_all_records(folder, manifest))


def make_run_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UserError(f"cannot make the run folder {folder}: {problem.strerror}; choose another --out") from None


def start_run(folder: Path, manifest: dict[str, Any]) -> None:
    """Creates a run folder, or takes up one made with the same model and settings.

    A line torn by a kill is dropped, and the files of several processes become one.
    """
    make_run_folder(folder)
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
        with open_own(folder / _file_name(rank), append=True) as file:
            file.write(lines.encode("utf-8"))
    except OSError as problem:
        raise _cannot_write(folder, problem) from None


def gather(folder: Path, manifest: dict[str, Any]) -> None:
    """All processes' records in one file, in an order that does not depend on how they were made."""
    settings = manifest["settings"]
    probes, tasks = settings["probes"], {name: place for place, name in enumerate(settings["tasks"])}
    records = sorted(
        _read_all_records(folder, manifest),
        key=lambda r: (
            *(probes.index(r["probe"]), tasks.get(r["task"], len(tasks)), r["task"], r["point"]),
            condition_order(r["condition"]),
        ),
    )
    _write(folder, RECORDS, (_line(record) for record in records))
    for file in record_files(folder):
        if file.name != RECORDS:
            file.unlink()


def write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    _write(folder, MANIFEST, [to_json(manifest, indent=2) + "\n"])


def _file_name(rank: int) -> str:
    return RECORDS if rank == 0 else f"records.{rank}.jsonl"


def record_files(folder: Path) -> list[Path]:
    """One per process that has written records."""
    return sorted(file for file in folder.iterdir() if re.fullmatch(r"records(\.\d+)?\.jsonl", file.name))


def _line(record: Record) -> str:
    return to_json(record) + "\n"


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
        manifest = parse_json((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError:
        raise UserError(f"{folder} is not a run folder: it has no readable {MANIFEST}") from None
    except ValueError as problem:
        raise UserError(
            f"{folder / MANIFEST} is not JSON ({problem}); remove the folder and run diagnose again"
        ) from None
    wrong = problem_of_manifest(manifest)
    if wrong:
        raise UserError(f"{folder / MANIFEST} is not a manifest of maskwise diagnose: {wrong}")
    return manifest


def _refuse_other_settings(folder: Path, found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for part in ("model", "settings"):
        for name in {**found[part], **wanted[part]}:
            old, new = found[part].get(name), _as_stored(wanted[part].get(name))
            if old != new:
                what = "another model" if part == "model" else "other settings"
                raise UserError(
                    f"{folder} was made with {what}: {name} was {short_json(old)} and is {short_json(new)} now; "
                    "choose another --out or remove it"
                )


def _as_stored(value: Any) -> Any:
    """Tuples come back from JSON as lists."""
    return parse_json(to_json(value))


def _read_all_records(folder: Path, manifest: dict[str, Any]) -> list[Record]:
    """Every record once. A process that was killed while files were gathered leaves equal records in two of them."""
    reader = _Reader(manifest)
    with uncollected():
        for file in record_files(folder):
            reader.read(file)
    return reader.records


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the garbage collector, which looks through a million records again and again and finds no cycle."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


class _Reader:
    """Reads record files and checks every line. Equal texts and conditions are kept once: a run may have a million."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        self.model = manifest["model"]["name"]
        self.probes = frozenset(manifest["settings"]["probes"])
        self.records: list[Record] = []
        self.conditions: dict[tuple[Any, ...], Condition] = {}
        self.fitting: set[tuple[str, int]] = set()  # probes and the conditions that fit them
        self.points: dict[tuple[str, str, int], set[int]] = defaultdict(set)
        self.places: dict[Any, int] | None = None  # of each key among the records, made when one comes again

    def read(self, file: Path) -> None:
        """A last line without its end was torn by a kill and is left out."""
        try:
            with file.open("rb") as opened:
                first = 1
                while lines := opened.readlines(BLOCK):
                    if not lines[-1].endswith(b"\n"):
                        lines.pop()
                    for number, record in enumerate(self._parsed(file, first, lines), first):
                        self._take(file, number, record)
                    first += len(lines)
        except OSError as problem:
            raise UserError(f"cannot read {file}: {problem.strerror}") from None

    def _parsed(self, file: Path, first: int, lines: list[bytes]) -> Iterable[Any]:
        """What the lines say. They are parsed together: faster, and equal keys are one text instead of many."""
        try:
            found = parse_json(f"[{b','.join(lines).decode('utf-8')}]", finite=False)
        except ValueError:
            found = []
        return found if len(found) == len(lines) else map(_parse_line, repeat(file), count(first), lines)

    def _take(self, file: Path, number: int, record: Any) -> None:
        known = self._known_condition(record)
        problem = problem_of_record(record, self.model, self.probes, known is not None)
        if problem:
            raise _bad_line(file, number, problem)
        for name in ("model", "probe", "task", "predicted", "answer"):
            record[name] = sys.intern(record[name])
        if known is None:
            known = self.conditions[_identity(record["condition"])] = record["condition"]
        condition = record["condition"] = known
        place = record["probe"], id(condition)
        if place not in self.fitting or record["probe"] in EVIDENCE:
            self._refuse_unfit(file, number, record)
            self.fitting.add(place)
        asked = self.points[record["probe"], record["task"], id(condition)]
        if record["point"] not in asked:
            asked.add(record["point"])
            self.records.append(record)
        elif record != self._first_like(record):
            raise _bad_line(file, number, "its question was answered before, in another way")

    def _refuse_unfit(self, file: Path, number: int, record: Record) -> None:
        """A record without what its probe counts on."""
        problem = problem_of_condition(record["probe"], record["condition"])
        problem = problem or problem_of_evidence(record["probe"], record)
        if problem:
            raise _bad_line(file, number, problem)

    def _known_condition(self, record: Any) -> Condition | None:
        """The condition of an earlier record that is the same, and was checked with it."""
        condition = record.get("condition") if isinstance(record, dict) else None
        try:
            return self.conditions.get(_identity(condition)) if isinstance(condition, dict) else None
        except TypeError:  # it holds a list or an object, which problem_of_record names
            return None

    def _first_like(self, record: Record) -> Record:
        if self.places is None:
            self.places = {}
        for place in range(len(self.places), len(self.records)):
            self.places.setdefault(key_of(self.records[place]), place)
        return self.records[self.places[key_of(record)]]


def _identity(condition: Condition) -> tuple[Any, ...]:
    """Equal for equal conditions alone: 1, 1.0 and true are equal to Python."""
    return (*condition.items(), *map(type, condition.values()))


def _parse_line(file: Path, number: int, line: bytes) -> Any:
    try:
        return parse_json(line.decode("utf-8"))
    except ValueError as reason:
        raise _bad_line(file, number, f"it is not JSON ({reason})") from None


def _bad_line(file: Path, number: int, problem: str) -> UserError:
    return UserError(f"{file} line {number} is not a record of this run: {problem}; remove the line to go on")
