"""Records grouped by probe and condition, their fields as columns: a run may have a million.

Everything that is summed over records goes through `groups_of`. A run that was read from a folder holds columns alone
(`StoredGroup`), and single records are made of them when they are needed; a list of records is grouped on the way.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import msgspec
import numpy as np

from maskwise.records.record import Condition, Record, condition_text

Column = np.ndarray
NUMBERS = ("confidence", "entropy", "nll", "offset", "visible", "nll_allowed", "nll_choice")
WHOLE = frozenset(("offset", "visible"))


class RecordSequence(Sequence[Record], ABC):
    """A sequence of records; a slice of it is a list."""

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        if isinstance(place, slice):
            return [self.record(one) for one in range(*place.indices(len(self)))]
        return self.record(place)

    @abstractmethod
    def record(self, place: int) -> Record:
        """The record at this place."""


class GroupedRecords(Sequence[Record]):
    """A sequence of records, group by group."""

    def __init__(self, groups: Iterable["Group"]) -> None:
        self.groups = list(groups)

    def __len__(self) -> int:
        return sum(map(len, self.groups))

    def __iter__(self) -> Iterator[Record]:
        for group in self.groups:
            yield from group

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        return list(self)[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __add__(self, other: Sequence[Record]) -> list[Record]:
        return [*self, *other]


class Group(RecordSequence):
    """The records of one probe under one condition; what they hold of a field is a column, made once."""

    def __init__(self, probe: str, condition: Condition, records: Sequence[Record]) -> None:
        self.probe, self.condition, self.records = probe, condition, records
        self._is_renamed = False
        self._columns: dict[str, Column] = {}
        self._rows: dict[str, np.ndarray] = {}

    def under(self, condition: Condition) -> "Group":
        """The same records under another condition."""
        found = Group(self.probe, condition, self.records)
        found._columns, found._rows, found._is_renamed = self._columns, self._rows, True
        return found

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        for record in self.records:
            yield self._renamed(record)

    def record(self, place: int) -> Record:
        return self._renamed(self.records[place])

    def _renamed(self, record: Record) -> Record:
        return msgspec.structs.replace(record, condition=self.condition) if self._is_renamed else record

    def column(self, field: str) -> Column:
        """float [n], in the order of the records; nan where a record has no such field."""
        if field not in self._columns:
            if isinstance(self.records, StoredRecords):
                self._columns[field] = self.records.column(field)
            else:
                values = [getattr(record, field) for record in self.records]
                self._columns[field] = np.array([np.nan if value is None else value for value in values], dtype=float)
        return self._columns[field]

    def has(self, field: str) -> bool:
        """Does every record hold it?"""
        return not len(self) or not np.isnan(self.column(field)).any()

    @property
    def rows(self) -> dict[str, np.ndarray]:
        """The places of each task's records, tasks in the order they come."""
        if not self._rows and len(self.records):
            if isinstance(self.records, StoredRecords):
                self._rows.update(self.records.rows())
                return self._rows
            places: dict[str, list[int]] = {}
            for place, record in enumerate(self.records):
                places.setdefault(record.task, []).append(place)
            self._rows.update((task, np.array(listed)) for task, listed in places.items())
        return self._rows

    def by_task(self, field: str) -> dict[str, Column]:
        """The values of each task's records."""
        column = self.column(field)
        return {task: column[rows] for task, rows in self.rows.items()}

    def points(self) -> np.ndarray:
        """int [n]: the test point of each record."""
        if isinstance(self.records, StoredRecords):
            return self.records.points
        if "point" not in self._columns:
            self._columns["point"] = np.array([record.point for record in self.records], dtype=np.int64)
        return self._columns["point"]


class ColumnGroup(Group):
    """Values by task and point that belong to no single records, such as means over several."""

    def __init__(
        self, probe: str, condition: Condition, tasks: Sequence[str], points: Sequence[int], columns: dict[str, Column]
    ) -> None:
        super().__init__(probe, condition, ())
        self._columns = {**columns, "point": np.array(points, dtype=np.int64)}
        self._rows = {
            task: np.array([place for place, own in enumerate(tasks) if own == task]) for task in dict.fromkeys(tasks)
        }

    def __len__(self) -> int:
        return len(self._columns["point"])

    def column(self, field: str) -> Column:
        return self._columns.get(field, np.full(len(self), np.nan))


@dataclass(frozen=True, eq=False)
class StoredRecords(RecordSequence):
    """The records of one probe under one condition as columns; a record is made when it is read."""

    model: str
    probe: str
    condition: Condition
    lines: np.ndarray  # the number of each record's line, over all files of the run
    tasks: Sequence[str]
    task_codes: np.ndarray  # indices into `tasks`
    points: np.ndarray
    masks: np.ndarray
    correct: np.ndarray
    numbers: dict[str, np.ndarray]
    texts: dict[str, list[str]]
    evidence: list[dict[str, Any]] | None

    def __len__(self) -> int:
        return len(self.points)

    def record(self, place: int) -> Record:
        numbers = {name: float(column[place]) for name, column in self.numbers.items()}
        known: dict[str, Any] = {
            name: int(value) if name in WHOLE else value for name, value in numbers.items() if not np.isnan(value)
        }
        return Record(
            model=self.model,
            probe=self.probe,
            task=self.tasks[self.task_codes[place]],
            point=int(self.points[place]),
            condition=self.condition,
            masks=int(self.masks[place]),
            predicted=self.texts["predicted"][place],
            answer=self.texts["answer"][place],
            correct=bool(self.correct[place]),
            evidence={} if self.evidence is None else self.evidence[place],
            **known,
        )

    def without(self, places: Sequence[int]) -> "StoredRecords":
        """The records but those at these places."""
        kept = np.setdiff1d(np.arange(len(self)), places)
        columns = {name: getattr(self, name)[kept] for name in ("lines", "task_codes", "points", "masks", "correct")}
        return replace(
            self,
            **columns,
            numbers={name: column[kept] for name, column in self.numbers.items()},
            texts={name: [values[place] for place in kept] for name, values in self.texts.items()},
            evidence=None if self.evidence is None else [self.evidence[place] for place in kept],
        )

    def column(self, field: str) -> Column:
        """float [n]; nan where a record has no such field."""
        if field in NUMBERS:
            return self.numbers.get(field, np.full(len(self), np.nan))
        return np.asarray(getattr(self, {"point": "points"}.get(field, field)), dtype=float)

    def rows(self) -> dict[str, np.ndarray]:
        """The places of each task's records, tasks in the order they come."""
        codes, first = np.unique(self.task_codes, return_index=True)
        return {self.tasks[code]: np.flatnonzero(self.task_codes == code) for code in codes[np.argsort(first)]}


class StoredRun(RecordSequence, GroupedRecords):
    """All records of a run folder, in the order of its files."""

    def __init__(self, groups: Iterable[Group], lines: Sequence[np.ndarray]) -> None:
        super().__init__(groups)
        sizes = [len(group) for group in self.groups]
        order = np.argsort(np.concatenate([*lines, np.empty(0, dtype=np.int64)]))
        self._group = np.repeat(np.arange(len(sizes)), sizes)[order]
        self._row = np.concatenate([*map(np.arange, sizes), np.empty(0, dtype=np.int64)]).astype(np.int64)[order]

    def __iter__(self) -> Iterator[Record]:
        for group, row in zip(self._group, self._row, strict=True):
            yield self.groups[group][int(row)]

    def record(self, place: int) -> Record:
        return self.groups[self._group[place]][int(self._row[place])]

    def places(self) -> list[np.ndarray]:
        """For each group, the places of its records in the order of the files."""
        order = np.argsort(self._group, kind="stable")
        return np.split(order, np.cumsum([len(group) for group in self.groups])[:-1])


def places_by_group(records: Sequence[Record]) -> list[list[int]]:
    """The places of the records of each probe and condition, in the order in which these come."""
    if isinstance(records, StoredRun):
        return [places.tolist() for places in records.places()]
    found: dict[tuple[str, str], list[int]] = {}
    for place, record in enumerate(records):
        found.setdefault((record.probe, condition_text(record.condition)), []).append(place)
    return list(found.values())


def groups_of(records: Sequence[Record]) -> list[Group]:
    """The records by probe and condition, in the order in which these come."""
    if isinstance(records, GroupedRecords):
        return records.groups
    if isinstance(records, Group):
        return [records]
    known: dict[tuple[str, int], list[Record]] = {}  # records that were read share their conditions
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        condition, probe = record.condition, record.probe
        listed = known.get((probe, id(condition)))
        if listed is None:
            listed = found.setdefault((probe, condition_text(condition)), [])
            known[probe, id(condition)] = listed
        listed.append(record)
    return [Group(probe, listed[0].condition, listed) for (probe, _), listed in found.items()]


def joined(*parts: Sequence[Record]) -> GroupedRecords:
    return GroupedRecords(group for part in parts for group in groups_of(part))


def records_of(records: Sequence[Record], probe: str) -> GroupedRecords:
    return GroupedRecords(group for group in groups_of(records) if group.probe == probe)


def conditions_of(records: Sequence[Record]) -> list[Condition]:
    """Each condition once, in the order in which they come."""
    return list({condition_text(group.condition): group.condition for group in groups_of(records)}.values())


def values_of(records: Sequence[Record], name: str) -> list[Any]:
    """The values of this name in the conditions, each once, sorted."""
    return sorted({group.condition[name] for group in groups_of(records)})


def as_group(records: Sequence[Record]) -> Group:
    """The records as one group, also if they are of several conditions."""
    if isinstance(records, Group):
        return records
    if isinstance(records, GroupedRecords) and len(records.groups) == 1:
        return records.groups[0]
    return Group("", {}, list(records))


def paired(sides: Sequence[Group], field: str) -> dict[str, np.ndarray]:
    """Paired values by task: the points for which all sides hold the field, [points in order, sides]."""
    found = {}
    for task in sides[0].rows if sides else ():
        if not all(task in side.rows for side in sides):
            continue
        points = [side.points()[side.rows[task]] for side in sides]
        values = [side.column(field)[side.rows[task]] for side in sides]
        common = points[0]
        if not all(np.array_equal(common, other) for other in points[1:]) or not (np.diff(common) > 0).all():
            for other in points:
                common = np.intersect1d(common, other)
            # Where a point comes again, the last of its values counts.
            orders = [np.argsort(own, kind="stable") for own in points]
            values = [
                own[order[np.searchsorted(at[order], common, side="right") - 1]]
                for own, at, order in zip(values, points, orders, strict=True)
            ]
        table = np.stack(values, axis=1)
        table = table[~np.isnan(table).any(1)]
        if len(table):
            found[task] = table
    return found
