"""nelbo."""

from oracle.kept import curve_rows


def rows(tables):
    yield from curve_rows(tables["nelbo"], ["draws"])
