"""GGUF files: the header of keys and values, and tensors in F32, Q8_0 and Q4_1; with the extra `gguf` in more formats.

The layout is that of versions 2 and 3 of the format (github.com/ggml-org/ggml, docs/gguf.md). Every count, length and
offset is checked against the size of the file before it is used, so a broken or hostile file ends in one line.
Imports no torch.
"""

import struct
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from maskwise.support.errors import UserError
from maskwise.support.files import open_regular

MAGIC = b"GGUF"
VERSIONS = (2, 3)
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
MOST_DIMENSIONS = 4
LARGEST_ALIGNMENT = 1 << 16


@dataclass(frozen=True)
class Format:
    """A tensor's storage: blocks of so many numbers in so many bytes."""

    name: str
    numbers: int
    size: int


FORMATS = {0: Format("F32", 1, 4), 3: Format("Q4_1", 32, 20), 8: Format("Q8_0", 32, 34)}


@dataclass(frozen=True)
class Stored:
    """Location of a tensor in the file. The shape is in torch's order, the reverse of the file's."""

    shape: tuple[int, ...]
    format: Format
    start: int  # from the beginning of the file
    size: int


@dataclass(frozen=True)
class GgufFile:
    path: Path
    fields: dict[str, Any]
    tensors: dict[str, Stored]

    def read(self, name: str) -> np.ndarray:
        """A tensor as float32, in its own shape."""
        stored = self.tensors[name]
        with open_regular(self.path) as opened:
            opened.seek(stored.start)
            data = np.frombuffer(opened.read(stored.size), np.uint8)
        if len(data) != stored.size:
            raise unreadable(self.path, f"{name!r} is cut short")
        decode = NUMBERS.get(stored.format.name)
        numbers = self._dequantised(data, name) if decode is None else decode(data)
        return numbers.reshape(stored.shape)

    def _dequantised(self, data: np.ndarray, name: str) -> np.ndarray:
        """By the gguf package, for the formats that are not written here."""
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize

        form = self.tensors[name].format.name
        try:
            with np.errstate(all="ignore"):  # damaged scales: what is not finite is refused with the weights
                return dequantize(data, GGMLQuantizationType[form])
        except NotImplementedError:
            raise unreadable(self.path, f"{name!r} is stored in {form}, which the gguf package does not read") from None


def unreadable(path: Path, reason: str) -> UserError:
    return UserError(f"{path} cannot be read as a GGUF file ({reason}): install or download it again")


def _q8_0(data: np.ndarray) -> np.ndarray:
    """Per block a half-precision scale, then 32 signed bytes."""
    blocks = data.reshape(-1, 34)
    return blocks[:, :2].copy().view("<f2").astype(np.float32) * blocks[:, 2:].view(np.int8)


def _q4_1(data: np.ndarray) -> np.ndarray:
    """Per block a half-precision scale and least value, then 16 bytes: the low halves are numbers 0-15, the high
    halves numbers 16-31."""
    blocks = data.reshape(-1, 20)
    scale, least = (blocks[:, at : at + 2].copy().view("<f2").astype(np.float32) for at in (0, 2))
    packed = blocks[:, 4:]
    return scale * np.concatenate([packed & 15, packed >> 4], axis=1) + least


NUMBERS = {"F32": lambda data: data.view("<f4").astype(np.float32), "Q8_0": _q8_0, "Q4_1": _q4_1}


class _Cursor:
    """Bounds-checked sequential reader."""

    def __init__(self, path: Path, data: memoryview) -> None:
        self.path, self.data, self.at = path, data, 0

    def take(self, count: int) -> memoryview:
        if count > len(self.data) - self.at:
            raise unreadable(self.path, "it is cut short")
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, code: str) -> Any:
        return struct.unpack(f"<{code}", self.take(struct.calcsize(f"<{code}")))[0]

    def count(self, smallest: int) -> int:
        """A number of things, each of at least `smallest` bytes."""
        found = self.number("Q")
        if found * smallest > len(self.data) - self.at:
            raise unreadable(self.path, f"it announces {found} entries, more than it has room for")
        return found

    def text(self) -> str:
        try:
            return bytes(self.take(self.count(1))).decode("utf-8")
        except UnicodeDecodeError:
            raise unreadable(self.path, "a text in it is not UTF-8") from None

    def value(self, kind: int) -> Any:
        if kind == STRING:
            return self.text()
        if kind == ARRAY:
            return self.array()
        if kind not in SCALARS:
            raise unreadable(self.path, f"unknown type of value {kind}")
        return self.number(SCALARS[kind])

    def array(self) -> list[Any]:
        kind = self.number("I")
        if kind == STRING:
            return [self.text() for _ in range(self.count(8))]
        if kind not in SCALARS:  # arrays of arrays among them, which no model needs
            raise unreadable(self.path, f"an array of unknown type {kind}")
        width = struct.calcsize(f"<{SCALARS[kind]}")
        count = self.count(width)
        return list(struct.unpack(f"<{count}{SCALARS[kind]}", self.take(count * width)))


def read_gguf(path: Path) -> GgufFile:
    """The fields, and where the tensors are; no tensor is read."""
    try:
        state = path.stat()
        return _read(path, state.st_mtime_ns, state.st_size)
    except OSError as problem:
        raise UserError(f"cannot read {path}: {problem.strerror}") from None


@lru_cache(maxsize=1)  # opening a model asks several times
def _read(path: Path, changed: int, size: int) -> GgufFile:
    cursor = _Cursor(path, np.memmap(path, np.uint8, "r").data if size else memoryview(b""))
    if bytes(cursor.take(4)) != MAGIC:
        raise unreadable(path, "it does not begin with GGUF")
    version = cursor.number("I")
    if version not in VERSIONS:
        raise unreadable(path, f"version {version}; known are {' and '.join(map(str, VERSIONS))}")
    tensor_count, field_count = cursor.count(24), cursor.count(13)
    fields: dict[str, Any] = {}
    for _ in range(field_count):
        name = cursor.text()
        if name in fields:
            raise unreadable(path, f"{name!r} stands in it twice")
        fields[name] = cursor.value(cursor.number("I"))
    described = [_described(cursor) for _ in range(tensor_count)]
    alignment = fields.get("general.alignment", 32)
    if type(alignment) is not int or not 1 <= alignment <= LARGEST_ALIGNMENT:
        raise unreadable(path, f"alignment {alignment!r}")
    data = -(-cursor.at // alignment) * alignment
    tensors: dict[str, Stored] = {}
    for name, shape, form, offset in described:
        length = prod(shape) // form.numbers * form.size
        if name in tensors:
            raise unreadable(path, f"{name!r} stands in it twice")
        if data + offset + length > size:
            raise unreadable(path, f"{name!r} ends outside it")
        tensors[name] = Stored(shape, form, data + offset, length)
    return GgufFile(path, fields, tensors)


def _described(cursor: _Cursor) -> tuple[str, tuple[int, ...], Format, int]:
    """Name, shape, format and offset of one tensor."""
    name, dimensions = cursor.text(), cursor.number("I")
    if not 1 <= dimensions <= MOST_DIMENSIONS:
        raise unreadable(cursor.path, f"{name!r} has {dimensions} dimensions")
    shape = tuple(cursor.number("Q") for _ in range(dimensions))[::-1]
    kind, offset = cursor.number("I"), cursor.number("Q")
    form = FORMATS.get(kind) or _format_of_package(kind)
    if form is None:
        known = ", ".join(form.name for form in FORMATS.values())
        more = "" if find_spec("gguf") else ", and more with pip install '.[gguf]' in a clone"
        raise unreadable(cursor.path, f"{name!r} is stored in format {kind}; known are {known}{more}")
    if min(shape) < 1 or shape[-1] % form.numbers:
        raise unreadable(cursor.path, f"{name!r} has the shape {list(shape)}")
    return name, shape, form, offset


def _format_of_package(kind: int) -> Format | None:
    """A format that the gguf package knows, if it is installed."""
    if find_spec("gguf") is None:
        return None
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    known = {one.value: one for one in GGML_QUANT_SIZES if isinstance(one, GGMLQuantizationType)}
    return Format(known[kind].name, *GGML_QUANT_SIZES[known[kind]]) if kind in known else None
