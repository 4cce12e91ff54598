"""recall."""

from maskwise.probes.library.recall import CONDITION, ERRORS, NO_VALUE, by_distance, errors, metrics
from maskwise.scoring.estimates import answers, share
from oracle.kept import curve_rows, of_estimate

NAMES = {
    "locality": "locality",
    "nats lost to distance": "nats lost to distance",
    "nats of the format lost to distance": "nats lost to distance, allowed value",
    "nats of the choice lost to distance": "nats lost to distance, choice value",
}


def rows(tables):
    table = tables["recall"]
    yield from curve_rows(table, CONDITION, {"distance": "near"})
    for one in metrics(table, tables):
        if one.name in NAMES:
            yield of_estimate(NAMES[one.name], {}, one)
    between = by_distance(table, tables).set_index(CONDITION).between
    for key, own in errors(table).groupby(CONDITION):
        condition = dict(zip(CONDITION, key, strict=True))
        yield ["chance", condition, 1 / own.pairs.iloc[0], None, None, len(own)]
        yield ["between", condition, between[key], None, None, len(own)]
        if own.masks_visible.notna().all():
            yield ["visible", condition, own.masks_visible.max(), None, None, len(own)]
        for kind in (*ERRORS, NO_VALUE):
            one = share("", answers(own.assign(is_kind=(own.error == kind).astype(float)), "is_kind"))
            yield of_estimate(f"errors {kind} share", condition, one)
