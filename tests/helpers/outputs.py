"""Is a file or a --json output what the schema of `maskwise.records.outputs` says?"""

from collections.abc import Iterator
from typing import Any

from maskwise.records.paths import Schema, problem_of


def problem_of_output(value: Any, schema: Schema, closed: bool = True) -> str | None:
    """What is wrong with a file or an output, in words; None if nothing is.

    closed: a field that the schema does not know is wrong too.
    """
    found = set(_paths(value, schema)) - set(schema) if closed else set()
    strange = sorted(path for path in found if f"{path.rpartition('.')[0]}.*" not in schema)
    return problem_of(value, schema) or (f"{strange[0]} is in no schema" if strange else None)


def _paths(value: Any, schema: Schema, within: str = "") -> Iterator[str]:
    """The paths of all fields of a value, as far as the schema looks into it."""
    if not isinstance(value, dict):
        return
    anything = within + "*"
    open_names = any(path.startswith((anything + ".", anything + "[].")) for path in schema)
    for name, entry in value.items():
        path = anything if open_names else within + name
        if not open_names:
            yield path
        if isinstance(entry, list):
            path += "[]"
        if any(known.startswith(path + ".") for known in schema):
            for one in entry if isinstance(entry, list) else [entry]:
                yield from _paths(one, schema, path + ".")
