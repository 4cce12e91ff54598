"""Is a file or a --json output what its struct in `maskwise.cli.outputs` says?"""

from dataclasses import asdict, is_dataclass
from typing import Any

from maskwise.support.typed import Typed, convert


def problem_of_output(value: Any, kind: type[Typed], closed: bool = True) -> str | None:
    """What is wrong with a file or an output, in words; None if nothing is.

    closed: a field that the struct does not know is wrong too.
    """
    try:
        known = convert(value, kind)
    except ValueError as problem:
        return str(problem)
    return _unknown(value, known, "") if closed else None


def _unknown(value: Any, known: Any, path: str) -> str | None:
    """The first field of a value that its struct does not have. Null may be as good as no field."""
    known = asdict(known) if is_dataclass(known) and not isinstance(known, type) else known
    if isinstance(value, dict):
        is_open = isinstance(known, Typed) and known.OPEN
        for name, inner in value.items():
            place, found = f"{path}.{name}" if path else name, None
            if name in known:
                found = _unknown(inner, known[name], place)
            elif inner is not None and not is_open:
                found = f"{place} is in no struct"
            if found:
                return found
    if isinstance(value, list):
        pairs = zip(value, known, strict=True)
        return next(filter(None, (_unknown(*pair, f"{path}[]") for pair in pairs)), None)
    return None
