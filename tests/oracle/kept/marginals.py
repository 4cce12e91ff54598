"""marginals."""

from maskwise.probes.library.marginals import metrics
from maskwise.scoring.estimates import curve
from oracle.kept import curve_rows, of_claim

CLAIMS = {  # stored name, and whether it was near less far
    "entropy, far less near": ("far-unsure", 1),
    "top probability, far less near": ("far-doubtful", -1),
    "distance of neighbours, far less near": ("grow-alike", -1),
    "distance of neighbours, far": ("far-identical", 1),
    "most probable token is frequent, far": ("far-frequent", 1),
    "entropy, middle less ends, text after": ("middle-unsure", 1),
}
MEASURED = ("tv_next", "tv_unigram", "common", "mode_common")


def rows(tables):
    table = tables["marginals"]
    yield from curve_rows(table, ["suffix", "distance"])
    yield from measured(table, ["suffix", "distance"], MEASURED)
    for one in metrics(table, tables):
        name, sign = CLAIMS[one.name]
        yield from of_claim(name, {}, one, sign)


def measured(table, by, names):
    for row in curve(table, by, dict.fromkeys(names, "")).to_dict("records"):
        condition = {name: row[name] for name in by}
        yield [row["measure"].replace("_", " "), condition, row["value"], row["low"], row["high"], row["n"]]
