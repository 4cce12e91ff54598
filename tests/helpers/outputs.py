"""Are the fields of a file or a --json output those that docs/fields.md lists?"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "fields.md"


@cache
def sections() -> dict[str, dict[str, bool]]:
    """{heading: {field: is it always there?}}"""
    parts = re.findall(r"^### (\S+)\n(.*?)(?=^##|\Z)", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    rows = {name: re.findall(r"^\| `(\S+)` \|(.*)", text, re.MULTILINE) for name, text in parts}
    return {name: {field: "*not always*" not in about for field, about in found} for name, found in rows.items()}


def departures(value: Any, heading: str, path: str = "") -> list[str]:
    """The fields that the page does not list, and those it lists that are missing."""
    return list(_departures(value, sections()[heading], path))


def _departures(value: Any, listed: dict[str, bool], path: str) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _departures(one, listed, f"{path}[]")
    below = {name: always for name, always in listed.items() if re.match(rf"{re.escape(path)}(\.|$)", name) or not path}
    names = {re.split(r"[.\[]", name.removeprefix(path).lstrip("."))[0]: always for name, always in below.items()}
    names.pop("", None)
    if not isinstance(value, dict) or not names:
        return
    for name, always in names.items():
        if always and name not in value and name != "*":
            yield f"{path}.{name} is missing".lstrip(".")
    for name, inner in value.items():
        own = name if name in names else "*"
        if own not in names:
            yield f"{path}.{name} is not listed".lstrip(".")
        else:
            yield from _departures(inner, listed, f"{path}.{own}".lstrip("."))
