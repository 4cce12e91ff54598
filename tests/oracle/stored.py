"""Reads, writes and compares the stored values: JSON in xz, floats in 7 significant digits."""

import json
import lzma
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from helpers import same

DATA = Path(__file__).parent.parent / "data" / "oracle"
TOLERANCE = 1e-3  # relative or absolute, whichever allows more
DIGITS = 7


def names() -> list[str]:
    """The names of all stored entries, such as "asked/tiny-llada/recall"."""
    return sorted(path.relative_to(DATA).as_posix().removesuffix(".json.xz") for path in DATA.rglob("*.json.xz"))


def file_of(name: str) -> Path:
    return DATA / f"{name}.json.xz"


def read(name: str) -> Any:
    return json.loads(lzma.decompress(file_of(name).read_bytes()))


def write(name: str, value: Any) -> None:
    """Stores a value; the same value gives the same bytes."""
    text = json.dumps(_rounded(as_json(value)), ensure_ascii=False, separators=(",", ":"))
    file = file_of(name)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(lzma.compress(text.encode(), format=lzma.FORMAT_XZ, preset=9 | lzma.PRESET_EXTREME))


def as_json(value: Any) -> Any:
    """Nested mappings, sequences, tensors and arrays as JSON gives them back: string keys, lists, plain numbers."""
    if hasattr(value, "tolist"):  # tensors, arrays and their numbers
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): as_json(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [as_json(one) for one in value]
    return value


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def assert_same(found: Any, stored: Any, path: str = "") -> None:
    """Floats within the tolerance (NaN is NaN), everything else equal, or an error that lists what differs and where.

    `path` names the compared value in that list.
    """
    __tracebackhide__ = True
    found = as_json(found)
    if path:
        found, stored = {path: found}, {path: stored}
    same.assert_same(found, stored, rel=TOLERANCE, abs=TOLERANCE)
