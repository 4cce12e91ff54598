"""Reading the record files of a run folder into columns. They may come from strangers: every line is checked."""

import math
import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from maskwise.records.groups import NUMBERS, Group, StoredRecords, StoredRun
from maskwise.records.manifest import Manifest
from maskwise.records.record import Condition, ProbeFields, Record, RecordFields
from maskwise.records.upgrade import upgrade
from maskwise.support.errors import UserError
from maskwise.support.files import open_regular
from maskwise.support.garbage_collection import collection_paused
from maskwise.support.removed import REMOVED
from maskwise.support.typed import decode_with

BLOCK = 1 << 20  # bytes of lines that are decoded together

Value = int | float | str | bool
EVIDENCE = msgspec.json.Decoder(dict[str, Value | list[int | float] | None])  # list[float] would turn 1 into 1.0
CONDITION = msgspec.json.Decoder(dict[str, Value])
NO_EVIDENCE = msgspec.Raw(b"{}")


class _Line(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A record whose condition is not decoded yet: a million records share a few dozen."""

    condition: msgspec.Raw  # type: ignore[assignment]
    evidence: msgspec.Raw = NO_EVIDENCE  # type: ignore[assignment]


LINE, LINES = msgspec.json.Decoder(_Line), msgspec.json.Decoder(list[_Line])


def read_records(files: Sequence[Path], manifest: Manifest, fields: Mapping[str, RecordFields]) -> StoredRun:
    """Every record once. A process that was killed while files were gathered leaves equal records in two of them."""
    reader = _Reader(manifest, fields)
    with collection_paused():
        for file in files:
            reader.read(file)
        return reader.finished()


class _Columns:
    """The records of one probe under one condition, as far as they are read."""

    def __init__(self, probe: str, condition: Condition) -> None:
        self.probe, self.condition = probe, condition
        self.written: set[str] = set()  # the probes of its lines, of which several became this one
        self.lines, self.points, self.masks, self.tasks = array("q"), array("q"), array("q"), array("i")
        self.correct = bytearray()
        self.numbers: dict[str, array] = {}
        self.texts: dict[str, list[str]] = {"predicted": [], "answer": []}
        self.evidence: list[dict[str, Any]] = []

    def extend(self, numbers: Sequence[int], lines: Sequence[_Line], tasks: dict[str, int]) -> None:
        before = len(self.points)
        self.lines.extend(numbers)
        self.points.extend([line.point for line in lines])
        self.masks.extend([line.masks for line in lines])
        self.tasks.extend([tasks.setdefault(line.task, len(tasks)) for line in lines])
        self.correct.extend([line.correct for line in lines])
        self.texts["predicted"] += [sys.intern(line.predicted) for line in lines]
        self.texts["answer"] += [sys.intern(line.answer) for line in lines]
        for name in NUMBERS:
            values = [getattr(line, name) for line in lines]
            if name not in self.numbers:
                if all(value is None for value in values):
                    continue
                self.numbers[name] = array("d", [math.nan]) * before
            column = self.numbers[name]
            column.extend([math.nan] * (before - len(column)))  # blocks in which no record had it
            column.extend([math.nan if value is None else value for value in values])

    def stored(self, model: str, tasks: Sequence[str]) -> StoredRecords:
        count = len(self.points)
        for column in self.numbers.values():
            column.extend([math.nan] * (count - len(column)))
        lines, points, masks = (np.frombuffer(one, dtype=np.int64) for one in (self.lines, self.points, self.masks))
        codes, correct = np.frombuffer(self.tasks, dtype=np.int32), np.frombuffer(self.correct, dtype=np.uint8)
        numbers = {name: np.frombuffer(column, dtype=float) for name, column in self.numbers.items()}
        columns = lines, tasks, codes, points, masks, correct, numbers, self.texts
        return StoredRecords(model, self.probe, self.condition, *columns, self.evidence if any(self.evidence) else None)


class _Reader:
    """Reads record files and checks every line."""

    def __init__(self, manifest: Manifest, fields: Mapping[str, RecordFields]) -> None:
        self.model, self.probes = manifest.model.name, frozenset(manifest.settings.probes)
        self.fields = fields
        self.skipped = self.probes & REMOVED["probe"].keys()
        self.columns: dict[tuple[str, tuple[Any, ...]], _Columns] = {}
        self.of_text: dict[tuple[str, bytes], _Columns] = {}  # by the probe and the condition as it was written
        self.tasks: dict[str, int] = {}
        self.files: list[Path] = []
        self.starts: list[int] = []  # the number of the first line of each file, over all files
        self.next_line = 0

    def read(self, file: Path) -> None:
        """A last line without its end was torn by a kill and is left out."""
        self.files.append(file)
        self.starts.append(self.next_line)
        try:
            with open_regular(file) as opened:
                while lines := opened.readlines(BLOCK):
                    if not lines[-1].endswith(b"\n"):
                        lines.pop()
                    self._take(self._decoded(lines))
        except OSError as problem:
            raise UserError(f"cannot read {file}: {problem.strerror}") from None

    def _decoded(self, lines: list[bytes]) -> list[_Line]:
        """All lines decoded together, which is faster; where that fails, one by one up to the one that is wrong."""
        try:
            found = LINES.decode(b"[%b]" % b",".join(lines))
            if len(found) == len(lines):
                return found
        except (ValueError, RecursionError):
            pass
        return [self._checked(number, line) for number, line in enumerate(lines, self.next_line)]

    def _checked(self, number: int, line: bytes) -> _Line:
        try:
            return decode_with(LINE, line)
        except ValueError as problem:
            raise self._refused(number, str(problem)) from None

    def _take(self, lines: list[_Line]) -> None:
        grouped: dict[tuple[str, bytes], tuple[list[int], list[_Line]]] = {}
        for number, line in enumerate(lines, self.next_line):
            if line.model != self.model:
                raise self._refused(number, f"it is a record of another model, {_short(line.model)}")
            if line.probe in self.skipped:
                continue
            key = line.probe, bytes(line.condition)
            found = grouped.get(key)
            if found is None:
                if key not in self.of_text:
                    self.of_text[key] = self._columns_of(number, line)
                found = grouped[key] = ([], [])
            found[0].append(number)
            found[1].append(line)
        for key, (numbers, some) in grouped.items():
            columns = self.of_text[key]
            columns.extend(numbers, some, self.tasks)
            columns.evidence += self._evidence(numbers, some, self.fields.get(columns.probe, RecordFields()).evidence)
        self.next_line += len(lines)

    def _columns_of(self, number: int, line: _Line) -> _Columns:
        """The columns of this condition, which is checked by its probe's struct; both as they are called today."""
        given = self._fitting(number, "condition", bytes(line.condition), CONDITION)
        probe, condition = upgrade(line.probe, given)
        if probe not in self.probes:
            raise self._refused(number, f"the run did not ask the probe {_short(line.probe)}")
        wanted = self.fields.get(probe, RecordFields()).condition
        if wanted is not None:
            self._fitting(number, "condition", msgspec.json.encode(condition), _decoder(wanted))
        identity = probe, _identity(condition)
        if identity not in self.columns:
            self.columns[identity] = _Columns(probe, condition)
        self.columns[identity].written.add(line.probe)
        return self.columns[identity]

    def _evidence(
        self, numbers: Sequence[int], lines: Sequence[_Line], wanted: type[ProbeFields] | None
    ) -> Iterable[dict[str, Any]]:
        if wanted is None and all(line.evidence is NO_EVIDENCE for line in lines):
            return [{}] * len(lines)
        found = []
        for number, line in zip(numbers, lines, strict=True):
            content = bytes(line.evidence)
            evidence = self._fitting(number, "evidence", content, EVIDENCE)
            if wanted is not None:
                self._fitting(number, "evidence", content, _decoder(wanted))
            found.append(evidence)
        return found

    def _fitting(self, number: int, name: str, content: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
        try:
            return decode_with(decoder, content)
        except ValueError as problem:
            where, _, what = str(problem).partition(": ")
            if not what:  # a field that is missing or not known
                text = where.removeprefix("it ")
                raise self._refused(number, f"{name}{' ' if text != where else '.'}{text}") from None
            place = name if where == "it" or where.startswith("[") else f"{name}.{where}"
            raise self._refused(number, f"{place}: {what}") from None

    def finished(self) -> StoredRun:
        """The records read; those that came again are dropped, and refused where they differ: two earlier probes that
        became one may have asked the same in two batches."""
        tasks = list(self.tasks)
        stored = [
            self._unique(columns.stored(self.model, tasks), len(columns.written) > 1)
            for columns in self.columns.values()
        ]
        groups = [Group(one.probe, one.condition, one) for one in stored]
        return StoredRun(groups, [one.lines for one in stored])

    def _unique(self, records: StoredRecords, may_differ: bool) -> StoredRecords:
        again: list[int] = []
        for rows in records.rows().values():
            points, first = np.unique(records.points[rows], return_index=True)
            if len(points) == len(rows):
                continue
            firsts = dict(zip(points.tolist(), rows[first].tolist(), strict=True))
            for row in np.setdiff1d(rows, rows[first]).tolist():
                if not may_differ and records[row] != records[firsts[int(records.points[row])]]:
                    raise self._refused(int(records.lines[row]), "its question was answered before, in another way")
                again.append(row)
        return records.without(again) if again else records

    def _refused(self, number: int, problem: str) -> UserError:
        file = bisect_right(self.starts, number) - 1
        return UserError(
            f"{self.files[file]} line {number - self.starts[file] + 1} is not a record of this run: {problem}; remove "
            "the line to go on"
        )


@cache
def _decoder(kind: type[ProbeFields]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind)


def _identity(condition: Condition) -> tuple[Any, ...]:
    """Equal for equal conditions alone: 1, 1.0 and true are equal to Python."""
    return tuple((name, value, type(value)) for name, value in sorted(condition.items()))


def _short(value: str) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
