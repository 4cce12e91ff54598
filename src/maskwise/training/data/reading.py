"""Training data from a file or a list: read and checked once, before a model is opened."""

import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwise.support.errors import UserError
from maskwise.support.files import Records, parse_json, to_json

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")


@dataclass(frozen=True)
class DataEntry:
    """One line of a jsonl file, its form checked, or one paragraph of plain text."""

    where: str  # the file and the line or paragraph, for messages
    content: dict[str, Any] | str


@dataclass(frozen=True)
class DataFile:
    path: Path
    sha256: str
    entries: tuple[DataEntry, ...]


@dataclass(frozen=True)
class DataForm:
    """What a command takes for data: `check(content, where)` refuses a JSON object, `cut(path, lines)` makes entries of
    plain text, and `description` says both in words."""

    check: Callable[[Any, str], None]
    cut: Callable[[Path, Sequence[str]], list[DataEntry]]
    description: str  # "lines with text or messages"


def read_data(source: Records, form: DataForm) -> DataFile:
    """A file, or what a JSON lines file would hold: a list of dicts, a datasets.Dataset."""
    if isinstance(source, str | Path):
        return _read_file(Path(source), form)
    wanted = form.description.replace("lines", "objects")
    try:
        items = iter(source)
    except TypeError:
        what = "None" if source is None else f"of the type {type(source).__name__}"
        raise UserError(f"the data is {what}: give a file, or a list of {wanted}") from None
    entries, content = [], hashlib.sha256()
    for number, given in enumerate(items, 1):
        where = f"item {number}"
        item = dict(given) if isinstance(given, Mapping) else given
        form.check(item, where)
        entries.append(DataEntry(where, item))
        content.update(f"{to_json(item)}\n".encode())
    if not entries:
        raise UserError(f"the list is empty: it needs {wanted}")
    return DataFile(Path("the given list"), content.hexdigest(), tuple(entries))


def _read_file(path: Path, form: DataForm) -> DataFile:
    """Everything that can be checked without a tokenizer is checked; a broken line is refused by its number."""
    if not path.is_file():
        raise UserError(f"there is no data file {path}: give a .jsonl or .txt file")
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise UserError(f"{path} is not UTF-8 text ({problem.reason} at byte {problem.start}): convert it") from None
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror})") from None
    lines = [line.rstrip("\n") for line in io.StringIO(text, newline=None)]
    json_lines = path.suffix.lower() in JSON_SUFFIXES
    entries = _json_entries(path, lines, form) if json_lines else form.cut(path, lines)
    if not entries:
        raise UserError(f"{path} is empty: it needs {form.description}, or plain text")
    return DataFile(path, hashlib.sha256(content).hexdigest(), tuple(entries))


def _json_entries(path: Path, lines: Sequence[str], form: DataForm) -> list[DataEntry]:
    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            content = parse_json(line)
        except ValueError as problem:
            raise UserError(f"{where} is not valid JSON ({problem}): correct or delete it") from None
        form.check(content, where)
        entries.append(DataEntry(where, content))
    return entries


def check_messages(messages: Any, where: str) -> None:
    """Refuse what is not a chat that ends with the assistant's turn."""
    well_formed = isinstance(messages, list) and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in messages
    )
    if not well_formed or len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise UserError(f"{where}: messages must be a list of role and content that ends with the assistant's")
