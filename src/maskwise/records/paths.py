"""Schemas of nested objects: fields named by their paths, and what is wrong with a value by such a schema.

`a.b` is b of the object a, `a.*` each entry of the object a, `a[]` each entry of the list a. An object without fields
in the schema is open, and so is one with the field `*`: what it holds is said in words.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from maskwise.records.schema import Field

Schema = Mapping[str, Field]


def within(path: str, schema: Schema) -> dict[str, Field]:
    """The fields of an object at this path."""
    return {f"{path}.{name}": field for name, field in schema.items()}


def maybe(schema: Schema) -> dict[str, Field]:
    """The same fields, each of which may be missing."""
    return {name: field._replace(always=False) for name, field in schema.items()}


def problem_of(value: Any, schema: Schema) -> str | None:
    """What is wrong with a file that may be a stranger's, in words; None if nothing is.

    Fields that the schema does not know are let pass. It names an object before what the object holds.
    """
    if not isinstance(value, dict):
        return "it is not an object"
    for path, field in schema.items():
        name = path.rpartition(".")[2]
        for holder in _holders(value, path):
            if not isinstance(holder, dict):
                return f"an entry of {path.rpartition('[]')[0]} is not an object"
            if name not in holder:
                if field.always:
                    return f"{path} is missing"
            elif not field.fits(holder[name]):
                return f"{path} is {holder[name]!r:.40}, not {field.kind}"
    return None


def _holders(value: Any, path: str) -> Iterator[Any]:
    """What holds, or should hold, the field of a path."""
    first, dot, rest = path.partition(".")
    if not dot or not isinstance(value, dict):
        yield value
        return
    name = first.removesuffix("[]")
    inner = list(value.values()) if name == "*" else [value[name]] if value.get(name) is not None else []
    for one in inner:
        for entry in one if first.endswith("[]") else [one]:
            yield from _holders(entry, rest)
