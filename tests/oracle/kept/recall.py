"""recall."""

from maskwise.probes.library.recall import CONDITION, by_distance, metrics
from oracle.kept import curve_rows, of_estimate

GONE = {
    r"errors .*|figure recall-errors/.*": "left out in 0.3: the figure tells neighbours' values from all others'",
    r"nats lost to distance, (allowed|choice) value": "the format's nats and the content's are in the records alone",
}


def rows(tables):
    table = tables["recall"]
    yield from curve_rows(table, CONDITION, {"distance": "near"})
    for one in metrics(table, tables):
        if one.name in ("locality", "nats lost to distance"):
            yield of_estimate(one.name, {}, one)
    between = by_distance(table, tables).drop_duplicates(CONDITION).set_index(CONDITION).between
    for key, own in table.groupby(CONDITION):
        condition = dict(zip(CONDITION, key, strict=True))
        yield ["chance", condition, 1 / own.pairs.iloc[0], None, None, len(own)]
        yield ["between", condition, between[key], None, None, len(own)]
        if own.masks_visible.notna().all():
            yield ["visible", condition, own.masks_visible.max(), None, None, len(own)]
