"""`assert_same(found, wanted)`: equal, or an error that names every place where nested values differ."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import Any

MOST_SHOWN = 20


def assert_same(found: Any, wanted: Any, rel: float = 0.0, abs: float = 0.0) -> None:
    """Compares dicts, sequences, dataclasses, tensors, arrays and numbers; floats within `rel` or `abs`, NaN is NaN.

    A list and a tuple of the same values are the same, as after a round trip through JSON; 1 and True are not.
    """
    __tracebackhide__ = True
    differences = list(_differences(found, wanted, "value", rel, abs))
    if differences:
        shown = differences[:MOST_SHOWN]
        more = len(differences) - len(shown)
        lines = [f"{len(differences)} differences:", *shown, *([f"... and {more} more"] if more else [])]
        raise AssertionError("\n  ".join(lines))


def _differences(found: Any, wanted: Any, path: str, rel: float, abs: float) -> Iterator[str]:
    found, wanted = _plain(found), _plain(wanted)
    if isinstance(found, Mapping) and isinstance(wanted, Mapping):
        for key in [*wanted, *(key for key in found if key not in wanted)]:
            place = f"{path}[{key!r}]"
            if key not in found:
                yield f"{place}: missing, wanted {wanted[key]!r}"
            elif key not in wanted:
                yield f"{place}: found {found[key]!r}, not wanted"
            else:
                yield from _differences(found[key], wanted[key], place, rel, abs)
    elif _is_list(found) and _is_list(wanted):
        if len(found) != len(wanted):
            yield f"{path}: found {len(found)} items, wanted {len(wanted)}"
        for place, (one, other) in enumerate(zip(found, wanted, strict=False)):
            yield from _differences(one, other, f"{path}[{place}]", rel, abs)
    elif not _equal(found, wanted, rel, abs):
        yield f"{path}: found {found!r}, wanted {wanted!r}"


def _plain(value: Any) -> Any:
    """Tensors, arrays and their numbers as lists and numbers, dataclasses as dicts."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return value.tolist() if hasattr(value, "tolist") else value


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _equal(found: Any, wanted: Any, rel: float, abs: float) -> bool:
    if isinstance(found, bool) or isinstance(wanted, bool):
        return found is wanted
    if isinstance(found, float | int) and isinstance(wanted, float | int):
        if math.isnan(found) or math.isnan(wanted):
            return math.isnan(found) and math.isnan(wanted)
        if isinstance(found, float) or isinstance(wanted, float):
            return math.isclose(found, wanted, rel_tol=rel, abs_tol=abs)
    return bool(found == wanted)
