"""order."""

from maskwise.probes.library.order import MEASURES, metrics
from oracle.kept import LEFT_OUT, curve_rows, of_claim
from oracle.kept.marginals import measured

GONE = {r"global4|local\d": f"{LEFT_OUT} Kendall's tau and AR-ness@1 say how close the order is to reading order"}


def rows(tables):
    table = tables["order"]
    yield from curve_rows(table, ["rule"])
    yield from measured(table, ["rule"], MEASURES)
    for name, one in zip(("reading-order", "leftmost-first"), metrics(table, tables), strict=True):
        yield from of_claim(name, {}, one)
