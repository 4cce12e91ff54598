"""mechanism: masks at the end, and which rows see them."""

from maskwise.probes.library.mechanism import INTERACTION, effects, labelled
from maskwise.scoring.estimates import NATS, POINTS, change, mean
from oracle.kept import curve_rows, of_estimate

GONE = {
    r"mechanism, places .*|figure mask-places/.*": "left out in 0.3: masks stand at the end",
    r'.*"place": "(front|middle|scattered)".*': "left out in 0.3: masks stand at the end",
    r'.*"(fillers"|tokens": "fillers").*|.*figure mechanism.*"curve": 1.*': "left out in 0.3: filler asks full stops",
    r'.*"one position".*|.*figure mask-weight.*"point": 2.*': "left out in 0.3: biased keys tell number from place",
    r"mechanism, largest difference": "left out in 0.3: the figure shows it",
}
ENTRIES = ["masks", "place", "attention"]
BASELINE = {"masks": 2, "place": "", "attention": ""}
CHANGES = {"change of accuracy": "points", "change of nll": "nats", "change of nll choice": "content"}
VALUES = {"points": "correct", "nats": "nll", "content": "nll_choice"}
CALLED = ("total", "answer", "others", "interaction")


def rows(tables):
    table = labelled(tables["mechanism"])
    filled = table.assign(**{name: table[name].fillna("") for name in ("place", "attention")})
    for quantity, condition, *numbers in curve_rows(filled, ENTRIES, lambda one: BASELINE):
        condition = {name: value for name, value in condition.items() if value}
        yield [quantity, condition, *numbers]
        if quantity in CHANGES:
            value, *ends, n = numbers
            ends = [..., ...] if quantity == "change of accuracy" else ends
            yield [f"mechanism, changes {CHANGES[quantity]} value", condition, value, *ends, n]
    for unit, value in VALUES.items():
        for called, (part, (after, before)) in zip(CALLED, effects(table, 200, value).items(), strict=False):
            if unit != "points":
                one = mean("", after - before, NATS)
            elif part == INTERACTION:
                one = mean("", after - before, POINTS, (-2.0, 2.0))
            else:
                one = change("", after, before)
            named = {"tokens": "masks", "masks": 200}
            name = f"mechanism, paths {unit} {called} value"
            yield of_estimate(name, named, one, interval=unit != "points" or part == INTERACTION)
