"""marginals."""

from maskwise.probes.library.marginals import metrics
from maskwise.scoring.estimates import curve
from oracle.kept import curve_rows, of_claim

GONE = {
    r"claim far-doubtful.*": "left out in 0.3: the top probability falls as the entropy rises",
    r"claim grow-alike.*": "left out in 0.3: far neighbours are compared with a threshold and with the near ones",
}
CLAIMS = {  # stored names
    "entropy, far less near": "far-unsure",
    "distance of neighbours, far": "far-identical",
    "most probable token is frequent, far": "far-frequent",
    "entropy, middle less ends, text after": "middle-unsure",
}
MEASURED = ("tv_next", "tv_unigram", "common", "mode_common")


def rows(tables):
    table = tables["marginals"]
    yield from curve_rows(table, ["suffix", "distance"])
    yield from measured(table, ["suffix", "distance"], MEASURED)
    for one in metrics(table, tables):
        yield from of_claim(CLAIMS[one.name], {}, one)


def measured(table, by, names):
    for row in curve(table, by, dict.fromkeys(names, "")).to_dict("records"):
        condition = {name: row[name] for name in by}
        yield [row["measure"].replace("_", " "), condition, row["value"], row["low"], row["high"], row["n"]]
