"""natural-text."""

from oracle.kept import curve_rows


def rows(tables):
    yield from curve_rows(tables["natural-text"], ["after", "count"], {"count": 0})
