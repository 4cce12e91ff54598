"""Suggestions for mistyped names, for the end of a message."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name most like a mistyped one, if one is like it."""
    by_small_letters = {one.lower(): one for one in known}
    found = get_close_matches(name.lower(), by_small_letters, 1)
    return by_small_letters[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`: did you mean X? There are X, Y`, or `: choose one of X, Y` where no known name is like the given one."""
    known = list(known)
    found = nearest(name, known)
    start = ": choose one of" if found is None else f": did you mean {found}? There are"
    return f"{start} {', '.join(known) or 'none'}"
