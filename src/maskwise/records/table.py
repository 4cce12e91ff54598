"""The answers of a run: its record files, which may come from strangers, as one pandas table per probe, a row each.

Columns: probe, task, point, masks_seen, predicted, answer, correct (0 or 1), confidence, entropy, nll, nll_allowed,
nll_choice, place_in_block, masks_visible (nan where a record has none), one for each entry of the condition and one for
each entry of the evidence. An entry called like one of the others ends in _found.
"""

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import count
from math import nan
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import numpy as np

from maskwise.records.manifest import Manifest
from maskwise.records.record import Condition, Key, Record, RecordFields
from maskwise.records.upgrade import upgrade
from maskwise.support.errors import UserError
from maskwise.support.files import open_regular
from maskwise.support.garbage_collection import collection_paused
from maskwise.support.removed import REMOVED
from maskwise.support.typed import decode_with

Table: TypeAlias = Any  # a pandas.DataFrame; pandas takes half a second, so it is imported where a table is made
Tables = Mapping[str, Table]  # by probe

BLOCK = 1 << 20  # bytes of lines that become columns together
TEXTS, COUNTS, OF_BLOCKS = ("task", "predicted", "answer"), ("point", "masks"), ("offset", "visible")
NUMBERS = ("correct", "confidence", "entropy", "nll", "nll_allowed", "nll_choice", *OF_BLOCKS)
COLUMNS = ("asked", "task", *COUNTS, "predicted", "answer", *NUMBERS)
DTYPES = {"asked": np.int32} | dict.fromkeys(TEXTS, np.int32) | dict.fromkeys(COUNTS, np.int64)
NAMES = {"masks": "masks_seen", "offset": "place_in_block", "visible": "masks_visible"}  # in tables
QUESTION = ["asked", "task", "point"]

Value = int | float | str | bool
CONDITION, EVIDENCE = dict[str, Value], dict[str, Value | list[int | float] | None]  # list[float] turns 1 into 1.0
NO_EVIDENCE, NONE = msgspec.Raw(b"{}"), dict[str, Any]()


class _Line(Record, frozen=True, kw_only=True, omit_defaults=True):
    """A record whose condition is not decoded yet: a million records share a few dozen."""

    condition: msgspec.Raw  # type: ignore[assignment]
    evidence: msgspec.Raw = NO_EVIDENCE  # type: ignore[assignment]


LINE = msgspec.json.Decoder(_Line)


@cache
def _decoder(field: str, kind: Any) -> msgspec.json.Decoder[Any]:
    """Of an object with this field alone, so that problems name it."""
    return msgspec.json.Decoder(msgspec.defstruct("Line", [(field, kind)]))


class Answers:
    """The answers in record files: `lines` is a table of those that count, in codes and with evidence as structs.

    fields: by probe, what its records must hold; other probes are not checked. A last line without its end was torn by
    a kill and is left out. A process that was killed while files were gathered leaves equal records in two of them: one
    counts. Two answers to one question are refused.
    """

    def __init__(self, files: Sequence[Path], manifest: Manifest, fields: Mapping[str, RecordFields]) -> None:
        import pandas as pd

        self.files, self.manifest, self.fields = files, manifest, fields
        self.starts: list[int] = []  # the number of each file's first line, over all files
        self.codes: dict[tuple[str, str, bytes], int] = {}  # of model, probe and condition as they were written
        self.asked: dict[tuple[str, str], int] = {}  # the same codes, of probe and condition as they are today
        self.conditions: list[Condition] = []  # by their code
        self.kinds: list[Any] = []  # what evidence is decoded as, by the same code
        self.texts: dict[str, int] = defaultdict(count().__next__)  # with their codes
        self.columns, self.evidence = {name: bytearray() for name in COLUMNS}, list[Any]()
        with collection_paused():
            for file in files:
                self._read(file)
        found = {name: np.frombuffer(column, DTYPES.get(name, float)) for name, column in self.columns.items()}
        self.lines = pd.DataFrame(found | {"evidence": np.array(self.evidence, object)}, copy=False)
        gone = [code for (probe, _), code in self.asked.items() if probe in REMOVED["probe"]]
        if gone:
            self.lines = self.lines[~self.lines.asked.isin(gone)]
        self._leave_out_repeated()

    def __len__(self) -> int:
        return len(self.lines)

    def _read(self, file: Path) -> None:
        self.starts.append(len(self.evidence))
        try:
            with open_regular(file) as opened:
                while lines := opened.readlines(BLOCK):
                    self._take(lines if lines[-1].endswith(b"\n") else lines[:-1])
        except OSError as problem:
            raise UserError(f"cannot read {file}: {problem.strerror}") from None

    def _take(self, encoded: list[bytes]) -> None:
        lines, first = list[_Line](), len(self.evidence)
        with suppress(ValueError, RecursionError):
            lines.extend(map(LINE.decode, encoded))
        if len(lines) < len(encoded):
            self._fitting(first + len(lines), LINE, encoded[len(lines)])
        written = [(line.model, line.probe, bytes(line.condition)) for line in lines]
        codes: list[Any] = [*map(self.codes.get, written)]
        for place, one in enumerate(written if None in codes else ()):
            if one not in self.codes:
                self.codes[one] = self._new_code(first + place, *one)
            codes[place] = self.codes[one]
        self.evidence += map(self._evidence, count(first), lines, codes)
        for name in COLUMNS:
            values = codes if name == "asked" else [*map(attrgetter(name), lines)]
            if name in TEXTS:
                values = [*map(self.texts.__getitem__, values)]
            if name in NUMBERS:  # numpy takes None too, but slowly
                values = [nan if one is None else one for one in values]
            self.columns[name] += np.array(values, DTYPES.get(name, float)).tobytes()

    def _new_code(self, number: int, model: str, probe: str, written: bytes) -> int:
        """The code of a probe and a condition, which are checked as they are called today."""
        if model != self.manifest.model.name:
            raise self._refused(number, f"it is a record of another model, {model!r:.40}")
        given = self._field(number, "condition", CONDITION, written)
        probe, condition = upgrade(probe, given, self.manifest.settings.relevant)
        if probe not in self.manifest.settings.probes:
            raise self._refused(number, f"the run did not ask the probe {probe!r:.40}")
        wanted = self.fields.get(probe, RecordFields())
        if wanted.condition is not None:
            self._field(number, "condition", wanted.condition, msgspec.json.encode(condition))
        identity = probe, json.dumps(condition, sort_keys=True)  # 1, 1.0 and true are equal to Python
        if identity not in self.asked:
            self.asked[identity] = len(self.asked)
            self.conditions.append(condition)
            self.kinds.append(wanted.evidence or EVIDENCE)
        return self.asked[identity]

    def _evidence(self, number: int, line: _Line, code: int) -> Any:
        """A struct, or a dict of a probe whose evidence is not checked."""
        if line.evidence is NO_EVIDENCE and self.kinds[code] is EVIDENCE:
            return NONE
        return self._field(number, "evidence", self.kinds[code], bytes(line.evidence))

    def _field(self, number: int, name: str, kind: Any, content: bytes) -> Any:
        line = b'{"%b":%b}' % (name.encode(), content)
        return getattr(self._fitting(number, _decoder(name, kind), line), name)

    def _fitting(self, number: int, decoder: msgspec.json.Decoder[Any], content: bytes) -> Any:
        try:
            return decode_with(decoder, content)
        except ValueError as problem:
            raise self._refused(number, str(problem)) from None

    def _refused(self, number: int, problem: str) -> UserError:
        file = bisect_right(self.starts, number) - 1
        where = f"{self.files[file]} line {number - self.starts[file] + 1}"
        return UserError(f"{where} is not a record of this run: {problem}; remove the line to go on")

    def _leave_out_repeated(self) -> None:
        """Two earlier probes that became one may have asked the same in two batches: the first answer counts."""
        twice = self.lines[self.lines.duplicated(QUESTION, keep=False)]
        if twice.empty:
            return
        probes_of = Counter(code for _, code in {(probe, code) for (_, probe, _), code in self.codes.items()})
        again = twice.duplicated(QUESTION)
        differ = again & ~twice.assign(evidence=twice.evidence.map(repr)).duplicated()
        differ &= twice.asked.map(probes_of) == 1
        if differ.any():
            raise self._refused(twice.index[differ][0], "its question was answered before, in another way")
        self.lines = self.lines.drop(twice.index[again])

    def tables(self) -> dict[str, Table]:
        """Of each probe that gave any answers."""
        import pandas as pd

        texts, tables, codes = pd.Series([*self.texts]).array, {}, defaultdict(list)
        for (probe, _), code in self.asked.items():
            codes[probe].append(code)
        for probe, listed in codes.items():
            rows = np.flatnonzero(self.lines.asked.isin(listed))
            if not len(rows):
                continue
            follow = rows[-1] - rows[0] + 1 == len(rows)  # in a file that was gathered: then nothing is copied
            own = self.lines.iloc[rows[0] : rows[-1] + 1] if follow else self.lines.iloc[rows]
            conditions, evidence = [self.conditions[code] for code in listed], own.evidence.tolist()
            found: dict[str, Any] = {"probe": pd.Categorical.from_codes(np.zeros(len(own), np.int8), [probe])}
            for name in COLUMNS[1:]:
                found[NAMES.get(name, name)] = texts.take(own[name]) if name in TEXTS else own[name].array
            for name in dict.fromkeys(name for condition in conditions for name in condition):
                values = pd.Series([condition.get(name) for condition in conditions], listed)
                found[f"{name}_found" if name in found else name] = values.reindex(own.asked).array
            plain = msgspec.to_builtins(evidence) if any(evidence) else []  # without entries that are missing
            for name in dict.fromkeys(name for one in plain for name in one):
                found[f"{name}_found" if name in found else name] = pd.Series([one.get(name) for one in plain])
            tables[probe] = pd.DataFrame(found, copy=False).astype({"task": "category"})
        return tables

    def records(self) -> list[Record]:
        """In the order of the files."""
        texts, probes, found = [*self.texts], [probe for probe, _ in self.asked], []
        for row in zip(*(self.lines[name].tolist() for name in self.lines), strict=True):
            held = {name: value for name, value in zip(self.lines, row, strict=True) if value == value}  # not nan
            held |= {name: texts[held[name]] for name in TEXTS} | {"correct": bool(held["correct"])}
            held |= {name: int(held[name]) for name in OF_BLOCKS if name in held}
            held |= {"evidence": msgspec.to_builtins(held["evidence"]), "model": self.manifest.model.name}
            code = held.pop("asked")
            found.append(Record(probe=probes[code], condition=self.conditions[code], **held))
        return found

    def keys(self) -> set[Key]:
        """Those of the questions that were answered."""
        asked, texts = [*self.asked], [*self.texts]
        rows = zip(*(self.lines[name].tolist() for name in QUESTION), strict=True)
        return {(asked[code][0], texts[task], point, asked[code][1]) for code, task, point in rows}
