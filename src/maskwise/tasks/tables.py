"""Tables in .csv, .tsv, .json, .jsonl and .parquet files: rows as dictionaries by column name."""

import csv
import io
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from maskwise.support.errors import UserError, UserNotice
from maskwise.support.files import Records, open_regular, parse_json, read_bytes, read_text

SUFFIXES = (".tsv", ".txt", ".csv", ".jsonl", ".json", ".parquet")

MOST_BYTES, MOST_ROWS = 1 << 30, 20_000_000  # of a parquet file, as texts
TABLES = (".csv", ".tsv", ".parquet")  # of rows with named columns

TableRow = tuple[int, dict[str, Any]]  # its line (or number) and its content
LocatedRow = tuple[str, Any]  # its place, for messages, and its unchecked content


def read_rows(file: Path, unnamed: Sequence[str] = ()) -> Iterator[TableRow]:
    """The rows of a file by its ending. `unnamed` are the columns of a .csv file without a header."""
    suffix = file.suffix.lower()
    if suffix in (".tsv", ".txt"):
        return _named(file, _tab_separated(file), ())
    if suffix == ".csv":
        return _named(file, _comma_separated(file), unnamed)
    if suffix in (".json", ".jsonl"):
        return _objects(file)
    if suffix == ".parquet":
        return _parquet(file)
    raise UserError(f"{file} is neither {', '.join(SUFFIXES[:-1])} nor {SUFFIXES[-1]}: save it as one of them")


def located_rows(source: Records) -> list[LocatedRow]:
    """The rows of a file, or of an iterable such as a list or a datasets.Dataset; none is checked yet."""
    rows: list[LocatedRow]
    if not isinstance(source, str | Path):
        rows = [(f"item {number}", row) for number, row in enumerate(items_of(source), 1)]
    elif Path(source).suffix.lower() in TABLES:
        rows = [(f"{source} line {number}", row) for number, row in read_rows(Path(source))]
    else:
        rows = list(json_rows(Path(source), read_text(Path(source), "save it as .jsonl, .csv or .parquet")))
    if not rows:
        listed = not isinstance(source, str | Path)
        raise UserError(
            "the list is empty: give one object a row" if listed else f"{source} is empty: give one JSON object a line"
        )
    return rows


def items_of(source: object) -> Iterator[Any]:
    """The items of a list or a datasets.Dataset; of what holds rows in another way, what to give instead."""
    remedy = "give a file, or a list of objects"
    if isinstance(source, Mapping):
        held = ", ".join(map(str, list(source)[:6])) or "nothing"
        remedy = f"it holds {held}; give one split of a DatasetDict, or a list of objects"
    elif hasattr(source, "to_dict") and hasattr(source, "columns"):
        remedy = 'give data.to_dict("records")'
    elif isinstance(source, Iterable) and not isinstance(source, bytes):
        return iter(source)
    what = "None" if source is None else f"of the type {type(source).__name__}"
    raise UserError(f"the data is {what}: {remedy}")


def json_rows(file: Path, text: str) -> Iterator[LocatedRow]:
    """The rows of JSON lines, or of one JSON array."""
    text = text.removeprefix("\ufeff")
    array = _array(text)
    if array is not None:
        yield from ((f"{file} item {number}", row) for number, row in enumerate(array, start=1))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{file} line {number}"
            try:
                yield where, parse_json(line)
            except ValueError as problem:
                raise UserError(f"{where} is not valid JSON ({problem}): correct or delete it") from None


def _array(text: str) -> list[Any] | None:
    """The items of a text that is one JSON array; None for any other text."""
    if not text.lstrip().startswith("["):
        return None
    try:
        found = parse_json(text)
    except ValueError:
        return None
    return found if isinstance(found, list) else None


def note_json_lines(file: Path, text: str) -> None:
    """One line where what is read as plain text looks like JSON lines."""
    if text.lstrip("\ufeff \n").startswith('{"'):
        line = f"{file} looks like JSON lines and is read as plain text: name it .jsonl to have its columns read"
        warnings.warn(line, UserNotice, stacklevel=3)


def read_text_leniently(file: Path) -> str:
    """UTF-8 with or without a byte order mark; what is not UTF-8 is Latin-1."""
    content = read_bytes(file)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("latin-1")


def broken(file: Path, number: int, wanted: str) -> UserError:
    return UserError(f"{file} line {number} should hold {wanted}")


def _tab_separated(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Quotation marks are only text, and nothing but a line break ends a line."""
    for number, line in enumerate(read_text_leniently(file).split("\n"), start=1):
        if line.rstrip("\r"):
            yield number, line.rstrip("\r").split("\t")


def _comma_separated(file: Path) -> Iterator[tuple[int, list[str]]]:
    """Cells in double quotes may hold commas, line breaks and doubled quotes."""
    reader = csv.reader(io.StringIO(read_text_leniently(file), newline=""))
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as problem:
        raise UserError(f"{file} line {reader.line_num} is not comma-separated text ({problem})") from None


def _named(file: Path, rows: Iterator[tuple[int, list[str]]], unnamed: Sequence[str]) -> Iterator[TableRow]:
    names: Sequence[str] = ()
    for number, row in rows:
        if not names and unnamed and row[0].isdecimal():
            names = unnamed
        elif not names:
            names = row
            continue
        if len(row) != len(names):
            raise broken(file, number, f"{len(names)} columns, not {len(row)}")
        yield number, dict(zip(names, row, strict=True))


def _objects(file: Path) -> Iterator[TableRow]:
    text = read_text_leniently(file)
    if file.suffix == ".json":
        try:
            rows = list(enumerate(parse_json(text), start=1))
        except (ValueError, TypeError):
            raise UserError(f"{file} is not a JSON list of objects") from None
    else:
        rows = []
        for number, line in enumerate(text.rstrip("\n").split("\n"), start=1):
            try:
                rows.append((number, parse_json(line)))
            except ValueError:
                raise broken(file, number, "one JSON object") from None
    for number, row in rows:
        if not isinstance(row, dict):
            raise broken(file, number, "a JSON object")
        yield number, row


def _parquet(file: Path) -> Iterator[TableRow]:
    if find_spec("pyarrow") is None:
        raise UserError(f"{file}: parquet files need pyarrow; pip install '.[data]' in a clone, or save it as .jsonl")
    import pyarrow
    from pyarrow import parquet

    try:
        with open_regular(file) as opened:
            source = parquet.ParquetFile(opened)
            _refuse_large(file, source.metadata)
            names = [source.metadata.row_group(0).column(n).path_in_schema for n in range(source.metadata.num_columns)]
            # Repeated texts stay one text each: a small file may repeat a long one a million times.
            table = parquet.read_table(opened, read_dictionary=names) if source.metadata.num_row_groups else None
            if table is not None and _characters(table) > MOST_BYTES:
                raise _too_large(file)
            rows = [] if table is None else table.to_pylist()
    except (pyarrow.ArrowException, OSError, ValueError) as problem:  # a text in it may be no UTF-8
        raise UserError(f"{file} is not a parquet file that can be read ({str(problem).splitlines()[0]})") from None
    yield from enumerate(rows, start=1)


def _refuse_large(file: Path, metadata: Any) -> None:
    """Refuses by the file's metadata: a few kilobytes may hold gigabytes, compressed."""
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    columns = [group.column(n) for group in groups for n in range(group.num_columns)]
    size = sum(column.total_uncompressed_size for column in columns)
    if size > MOST_BYTES or max([metadata.num_rows, *(column.num_values for column in columns)]) > MOST_ROWS:
        raise _too_large(file)


def _too_large(file: Path) -> UserError:
    return UserError(f"{file} holds more than {MOST_BYTES >> 30} GiB or {MOST_ROWS:,} rows: cut it into smaller files")


def _characters(table: Any) -> int:
    """Bytes of the texts of all columns, each counted as often as it stands there."""
    from pyarrow import compute, types

    total, waiting = 0, [chunk for column in table.columns for chunk in column.chunks]
    while waiting:
        one = waiting.pop()
        if types.is_dictionary(one.type):
            kind = one.dictionary.type
            if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind):
                total += compute.sum(compute.binary_length(one.dictionary).take(one.indices)).as_py() or 0
            total += one.nbytes
        elif types.is_list(one.type) or types.is_large_list(one.type):
            waiting.append(one.flatten())
        elif types.is_struct(one.type):
            waiting += one.flatten()
        else:
            total += one.nbytes
    return total
