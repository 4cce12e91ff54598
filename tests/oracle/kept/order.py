"""order."""

from maskwise.probes.library.order import MEASURES, metrics
from oracle.kept import curve_rows, of_claim
from oracle.kept.marginals import measured

GONE = {r"global4|local\d": "left out in 0.3: Kendall's tau and AR-ness@1 say how close the order is to reading order"}


def rows(tables):
    table = tables["order"]
    yield from curve_rows(table, ["rule"])
    yield from measured(table, ["rule"], MEASURES)
    for name, one in zip(("reading-order", "leftmost-first"), metrics(table, tables), strict=True):
        yield from of_claim(name, {}, one)
