"""Training data from a file or a list: read and checked once, before a model is opened."""

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwise.support.errors import UserError
from maskwise.support.files import Records, read_bytes, refusal_of_bytes, to_json
from maskwise.tasks.columns import RowContent
from maskwise.tasks.tables import TABLES, LocatedRow, items_of, json_rows, note_json_lines, read_rows

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class DataEntry:
    """One row of a file, or one paragraph of plain text."""

    where: str  # the file and the line or paragraph, for messages
    content: RowContent


@dataclass(frozen=True)
class DataFile:
    path: Path
    sha256: str
    entries: tuple[DataEntry, ...]


@dataclass(frozen=True)
class DataForm:
    """The data format of a command: `read(row, where)` reads a row or refuses it, `cut(path, lines)` makes entries of
    plain text, and `description` says both in words."""

    read: Callable[[Any, str], RowContent]
    cut: Callable[[Path, Sequence[str]], list[DataEntry]]
    description: str  # "lines with text or messages"


def read_data(source: Records, form: DataForm) -> DataFile:
    """A file, or what a JSON lines file would hold: a list of dicts, a datasets.Dataset."""
    if isinstance(source, str | Path):
        return _read_file(Path(source), form)
    entries, content = [], hashlib.sha256()
    for number, given in enumerate(items_of(source), 1):
        where = f"item {number}"
        item = dict(given) if isinstance(given, Mapping) else given
        entries.append(DataEntry(where, form.read(item, where)))
        content.update(f"{_written(item)}\n".encode())
    if not entries:
        raise UserError(f"the list is empty: it needs {form.description.replace('lines', 'objects')}")
    return DataFile(Path("the given list"), content.hexdigest(), tuple(entries))


def _read_file(path: Path, form: DataForm) -> DataFile:
    """Everything that can be checked without a tokenizer is checked; a broken line is refused by its number."""
    if not path.is_file():
        raise UserError(f"there is no data file {path}: give a .jsonl or .txt file")
    content = read_bytes(path)
    suffix = path.suffix.lower()
    rows: Iterable[LocatedRow] | None
    if suffix in TABLES:
        rows = ((f"{path} line {number}", row) for number, row in read_rows(path))
        entries = _entries(rows, form)
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as problem:
            raise refusal_of_bytes(path, content, f"save it as .jsonl, .csv or .txt (byte {problem.start})") from None
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        rows = json_rows(path, text) if suffix in JSON_SUFFIXES else None
        if rows is None:
            note_json_lines(path, text)
        entries = form.cut(path, text.split("\n")) if rows is None else _entries(rows, form)
    if not entries:
        holds = "is too short to be cut into examples" if rows is None else "holds no row"
        what = holds if content.strip() else "is empty"
        raise UserError(f"{path} {what}: it needs {form.description}, or plain text")
    return DataFile(path, hashlib.sha256(content).hexdigest(), tuple(entries))


def _written(item: Any) -> str:
    """A row as text, for the hash; other columns may hold dates, bytes or NaN, which are no JSON."""
    try:
        return to_json(item)
    except (TypeError, ValueError):
        return repr(item)


def _entries(rows: Iterable[LocatedRow], form: DataForm) -> list[DataEntry]:
    return [DataEntry(where, form.read(row, where)) for where, row in rows]
