"""points."""

from maskwise.probes.library.points import BY, LAST, metrics, usual
from maskwise.scoring.estimates import mean
from oracle.kept import curve_rows, of_claim, of_estimate


def rows(tables):
    table = tables["points"]
    yield from curve_rows(table, BY, {"order": "random"})
    nats = {said: usual(table, field) for said, field in (("nats", "nll"), ("nats content", "nll_choice"))}
    for one, other in zip(metrics(table, tables), ("random", "nearest first"), strict=True):
        claim = f"nearest-last-{other.split()[-1]}"
        yield from of_claim(claim, {}, one, interval=False)
        for said, by_order in nats.items():
            yield of_estimate(f"claim {claim}, {said} value", {}, mean("", by_order[other] - by_order[LAST]))
