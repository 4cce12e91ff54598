"""Typed values: msgspec structs that keep the keys of the JSON they are written as.

A field that is UNSET, or None in a struct with `omit_defaults`, is not written, and by key it does not exist.
"""

import re
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from functools import cache
from typing import Annotated, Any, Self, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct

from maskwise.support.files import parse_json

T = TypeVar("T")

Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
AtLeast1 = Annotated[int, Meta(ge=1, le=2**63 - 1)]
Share = Annotated[float, Meta(ge=-1e-6, le=1 + 1e-6)]  # rounding may leave a probability slightly outside 0 to 1


class Typed(Struct, kw_only=True, frozen=True):
    """A struct whose fields can also be read by key, as when these values were dictionaries (until version 0.4)."""

    def _has(self, name: str) -> bool:
        value = getattr(self, name)
        return value is not UNSET and not ((value is None or value == {}) and name in _omitted_if_empty(type(self)))

    def keys(self) -> KeysView[str]:
        return dict.fromkeys(name for name in self.__struct_fields__ if self._has(name)).keys()

    def to_dict(self) -> dict[str, Any]:
        """The fields that are written, by name; values are not converted."""
        return {name: self[name] for name in self.keys()}

    def __getitem__(self, name: str) -> Any:
        if name not in self.__struct_fields__ or not self._has(name):
            raise KeyError(name)
        return getattr(self, name)

    def __or__(self, values: Mapping[str, Any]) -> Self:
        """The same with other values."""
        return msgspec.structs.replace(self, **values)

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def get(self, name: str, default: Any = None) -> Any:
        try:
            return self[name]
        except KeyError:
            return default

    def items(self) -> ItemsView[str, Any]:
        return self.to_dict().items()

    def values(self) -> ValuesView[Any]:
        return self.to_dict().values()


@cache
def _omitted_if_empty(kind: type[Struct]) -> frozenset[str]:
    """The fields of a struct with `omit_defaults` that are not written while they are None or an empty object."""
    if not kind.__struct_config__.omit_defaults:
        return frozenset()
    fields = msgspec.structs.fields(kind)
    return frozenset(field.name for field in fields if field.default is None or field.default_factory is dict)


class InvalidJson(ValueError):
    """The error of a text that is not JSON, as opposed to JSON of other types."""


def decode(content: bytes | str, kind: type[T]) -> T:
    """Decodes untrusted JSON as a value of this type.
    Whatever is wrong with it is a ValueError of one line, InvalidJson where it is no JSON at all."""
    return decode_with(msgspec.json.Decoder(kind), content)


def decode_with(decoder: msgspec.json.Decoder[T], content: bytes | str) -> T:
    """`decode` with a decoder made before."""
    try:
        return decoder.decode(content)
    except msgspec.ValidationError as problem:
        raise ValueError(in_words(str(problem))) from None
    except (ValueError, RecursionError) as problem:
        raise InvalidJson(_syntax_problem(content) or str(problem)) from None


def _syntax_problem(content: bytes | str) -> str:
    """The message of Python's json: msgspec calls a lone surrogate truncated input."""
    try:
        parse_json(content if isinstance(content, str) else content.decode("utf-8"))
    except ValueError as problem:
        return str(problem)
    return ""


def convert(value: Any, kind: type[T]) -> T:
    """A parsed JSON value as a value of this type; ValueError as from `decode`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as problem:
        raise ValueError(in_words(str(problem))) from None


def in_words(problem: str) -> str:
    """msgspec's message with the path first: "model.name: expected str, got int"."""
    what, _, path = problem.partition(" - at ")
    path = path.strip("`").removeprefix("$").removeprefix(".")
    missing = re.fullmatch(r"Object missing required field `(.*)`", what)
    if missing:
        return f"{path + '.' if path else ''}{missing[1]} is missing"
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", what, re.DOTALL)
    if unknown:
        return f"{path or 'it'} has an unknown field {unknown[1][:40]!r}"
    what = what.replace("`", "").replace("Expected", "expected").replace("Number out", "number out")
    return f"{path or 'it'}: {what}"
