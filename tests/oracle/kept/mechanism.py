"""mechanism."""

from maskwise.probes.library.mechanism import (
    FILLERS,
    INTERACTION,
    MASKS,
    PARTS,
    PLACES,
    column,
    effects,
    labelled,
    metrics,
)
from maskwise.scoring.estimates import NATS, POINTS, change, mean
from oracle.kept import curve_rows, of_estimate

ENTRIES = ["masks", "fillers", "place", "attention"]
BASELINE = {"masks": 2, "fillers": 0, "place": "", "attention": ""}
CHANGES = {"change of accuracy": "points", "change of nll": "nats", "change of nll choice": "content"}
VALUES = {"points": "correct", "nats": "nll", "content": "nll_choice"}
CALLED = dict(zip(PARTS, ("total", "answer", "others", "interaction"), strict=True))


def rows(tables):
    table = labelled(tables["mechanism"])
    filled = table.assign(fillers=table.fillers.fillna(0).astype(int))
    filled = filled.assign(**{name: filled[name].fillna("") for name in ("place", "attention")})
    for quantity, condition, *numbers in curve_rows(filled, ENTRIES, lambda one: BASELINE):
        condition = {name: value for name, value in condition.items() if value}
        yield [quantity, condition, *numbers]
        if quantity in CHANGES:
            value, *ends, n = numbers
            ends = [..., ...] if quantity == "change of accuracy" else ends
            yield [f"mechanism, changes {CHANGES[quantity]} value", condition, value, *ends, n]
    for unit, value in VALUES.items():
        for tokens in (MASKS, FILLERS):
            for part, (after, before) in effects(table, tokens, 200, value).items():
                if unit != "points":
                    one = mean("", after - before, NATS)
                elif part == INTERACTION:
                    one = mean("", after - before, POINTS, (-2.0, 2.0))
                else:
                    one = change("", after, before)
                named = {"tokens": tokens, "masks": 200}
                name = f"mechanism, paths {unit} {CALLED[part]} value"
                yield of_estimate(name, named, one, interval=unit != "points" or part == INTERACTION)
        for place in PLACES:
            masks, fillers = (column(table, tokens, 200, value, place) for tokens in (MASKS, FILLERS))
            one = change("", masks, fillers) if unit == "points" else mean("", masks - fillers, NATS)
            where = {"masks": 200, "place": place}
            yield of_estimate(f"mechanism, places {unit} value", where, one, interval=unit != "points")
    for one in metrics(tables["mechanism"], tables):
        if one.name.startswith("largest difference"):
            yield ["mechanism, largest difference", {}, one.value, None, None, None]
