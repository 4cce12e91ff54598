"""total-correlation."""

from maskwise.probes.library.total_correlation import metrics
from oracle.kept import curve_rows, of_claim
from oracle.kept.marginals import measured

GONE = {r'forth|back|\["figure .*"curve": [12].*': "left out in 0.3: tc is their mean"}


def rows(tables):
    table = tables["total-correlation"]
    yield from curve_rows(table, ["distance"])
    yield from measured(table, ["distance"], ["tc"])
    yield from of_claim("coupled", {}, metrics(table, tables)[0])
