"""Records grouped by probe and condition, their fields as columns: a run may have a million.

Everything that is summed over records goes through `groups_of`. The groups of a run are made once (`Run.by_probe`), and
so are their columns; a list of records is grouped on the way.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from maskwise.records.record import Condition, Record, condition_text

Column = np.ndarray


class Records(Sequence[Record]):
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


class Group(Sequence[Record]):
    """The records of one probe under one condition; what they hold of a field is a column, made once."""

    def __init__(self, probe: str, condition: Condition, records: Sequence[Record]) -> None:
        self.probe, self.condition, self.records = probe, condition, records
        self._is_renamed = False
        self._columns: dict[str, Column] = {}
        self._rows: dict[str, np.ndarray] = {}

    def under(self, condition: Condition) -> "Group":
        """The same records, their condition called otherwise."""
        found = Group(self.probe, condition, self.records)
        found._columns, found._rows, found._is_renamed = self._columns, self._rows, True
        return found

    def __len__(self) -> int:
        return len(self.records)

    def __iter__(self) -> Iterator[Record]:
        for record in self.records:
            yield self._called(record)

    @overload
    def __getitem__(self, place: int) -> Record: ...
    @overload
    def __getitem__(self, place: slice) -> list[Record]: ...
    def __getitem__(self, place: int | slice) -> Record | list[Record]:
        found = self.records[place]
        return self._called(found) if isinstance(found, dict) else list(map(self._called, found))

    def _called(self, record: Record) -> Record:
        return {**record, "condition": self.condition} if self._is_renamed else record

    def column(self, field: str) -> Column:
        """float [n], in the order of the records; nan where a record has no such field."""
        if field not in self._columns:
            try:
                listed = [record[field] for record in self.records]
            except KeyError:
                listed = [record.get(field, np.nan) for record in self.records]
            self._columns[field] = np.array(listed, dtype=float)
        return self._columns[field]

    def has(self, field: str) -> bool:
        """Does every record hold it?"""
        return not len(self) or (field in self.records[0] and not np.isnan(self.column(field)).any())

    @property
    def rows(self) -> dict[str, np.ndarray]:
        """Of each task, in the order in which they come, the places of its records."""
        if not self._rows and len(self.records):
            places: dict[str, list[int]] = {}
            for place, record in enumerate(self.records):
                places.setdefault(record["task"], []).append(place)
            self._rows.update((task, np.array(listed)) for task, listed in places.items())
        return self._rows

    def by_task(self, field: str) -> dict[str, Column]:
        """The values of each task's records."""
        column = self.column(field)
        return {task: column[rows] for task, rows in self.rows.items()}

    def points(self) -> np.ndarray:
        """int [n]: the test point of each record."""
        if "point" not in self._columns:
            self._columns["point"] = np.array([record["point"] for record in self.records], dtype=np.int64)
        return self._columns["point"]


def groups_of(records: Sequence[Record]) -> list[Group]:
    """The records by probe and condition, in the order in which these come."""
    if isinstance(records, Records):
        return records.groups
    if isinstance(records, Group):
        return [records]
    known: dict[tuple[str, int], list[Record]] = {}  # records that were read share their conditions
    found: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        condition, probe = record["condition"], record.get("probe", "")
        listed = known.get((probe, id(condition)))
        if listed is None:
            listed = found.setdefault((probe, condition_text(condition)), [])
            known[probe, id(condition)] = listed
        listed.append(record)
    return [Group(probe, listed[0]["condition"], listed) for (probe, _), listed in found.items()]


def joined(*parts: Sequence[Record]) -> Records:
    return Records(group for part in parts for group in groups_of(part))


def records_of(records: Sequence[Record], probe: str) -> Records:
    return Records(group for group in groups_of(records) if group.probe == probe)


def conditions_of(records: Sequence[Record]) -> list[Condition]:
    """Each condition once, in the order in which they come."""
    return list({condition_text(group.condition): group.condition for group in groups_of(records)}.values())


def values_of(records: Sequence[Record], name: str) -> list[Any]:
    """What conditions say under this name, each value once, in order."""
    return sorted({group.condition[name] for group in groups_of(records)})


def as_group(records: Sequence[Record]) -> Group:
    """Records of one condition, or of several that are not told apart."""
    if isinstance(records, Group):
        return records
    if isinstance(records, Records) and len(records.groups) == 1:
        return records.groups[0]
    return Group("", {}, list(records))


def paired(sides: Sequence[Group], field: str) -> dict[str, np.ndarray]:
    """Of each task of the first side, the points for which all sides hold the field: [points in order, sides]."""
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
            values = [_at(common, *side) for side in zip(points, values, strict=True)]
        table = np.stack(values, axis=1)
        table = table[~np.isnan(table).any(1)]
        if len(table):
            found[task] = table
    return found


def _at(wanted: np.ndarray, points: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The values at these points; where one comes again the last one counts."""
    order = np.argsort(points, kind="stable")
    return values[order[np.searchsorted(points[order], wanted, side="right") - 1]]
