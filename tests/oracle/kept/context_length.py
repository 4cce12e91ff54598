"""context-length."""

from maskwise.probes.library.context_length import FEW, metrics
from maskwise.scoring.estimates import NATS, mean, wide
from oracle.kept import curve_rows, of_claim, of_estimate

MORE = "20% masks"


def rows(tables):
    table = tables["context-length"]
    yield from curve_rows(table, ["distractors", "masks", "relevant"], {"masks": FEW})
    for one in metrics(table, tables)[:1]:
        yield from of_claim("gap-grows", {"relevant": 10}, one, sign=-1)
    first, last = min(table.distractors), max(table.distractors)
    for said, field in (("nats", "nll"), ("nats content", "nll_choice")):
        nats = wide(table, ["distractors", "masks"], field)
        grown = (nats[last, MORE] - nats[last, FEW]) - (nats[first, MORE] - nats[first, FEW])
        yield of_estimate(f"claim gap-grows, {said} value", {"relevant": 10}, mean("", grown, NATS))
