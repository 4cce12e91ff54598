"""order."""

from maskwise.probes.library.order import MEASURES, metrics
from oracle.kept import curve_rows, of_claim
from oracle.kept.marginals import measured


def rows(tables):
    table = tables["order"]
    yield from curve_rows(table, ["rule"])
    yield from measured(table, ["rule"], MEASURES)
    for name, one in zip(("reading-order", "leftmost-first"), metrics(table, tables), strict=False):
        yield from of_claim(name, {}, one)
