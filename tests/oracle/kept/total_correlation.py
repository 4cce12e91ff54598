"""total-correlation."""

from maskwise.probes.library.total_correlation import ORDERS, metrics
from oracle.kept import curve_rows, of_claim
from oracle.kept.marginals import measured


def rows(tables):
    table = tables["total-correlation"]
    yield from curve_rows(table, ["distance"])
    yield from measured(table, ["distance"], ORDERS)
    yield from of_claim("coupled", {}, metrics(table, tables)[0])
