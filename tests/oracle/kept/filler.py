"""filler."""

from oracle.kept import curve_rows

GONE = {r"claim fillers-cost-less.*": "left out in 0.3: the first screen compares full stops with masks"}


def rows(tables):
    table = tables["filler"]
    for quantity, condition, *numbers in curve_rows(table, ["filler", "fillers", "format", "relevant"], {"fillers": 0}):
        kept = {name: value for name, value in condition.items() if (name, value) != ("format", "A")}
        yield [quantity, kept, *numbers]
