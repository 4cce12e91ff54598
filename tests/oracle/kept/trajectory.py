"""trajectory."""

from maskwise.probes.library.trajectory import BY, KINDS, along, metrics
from maskwise.scoring.estimates import SHARE, curve
from oracle.kept import masks_of, of_estimate

GONE = {
    r"figure overwritten/.*": "left out in 0.3: the estimates say what is lost and gained above chance",
    r"ever|unparsable|first seen|changed": "left out in 0.3: what else there is to say of the answers",
    r"(lost|gained)( chance)?": "left out in 0.3: the estimates are the difference of the two",
}
PACES = {"1 token per step": 1, "2 tokens per step": 2}


def rows(tables):
    table = tables["trajectory"]
    yield from masks_of(table, BY)
    for row in curve(table, BY, {"correct": SHARE}).to_dict("records"):
        yield ["accuracy", {name: row[name] for name in BY}, row["value"], row["low"], row["high"], row["n"]]
    named = {**{f"{words}, above chance": kind for kind, words in KINDS.items()}, "steps until the answer stands": ""}
    for one in metrics(table, tables):
        (rule, pace), what = one.name.partition(": ")[0].split(", "), one.name.partition(": ")[2]
        key, kind = {"rule": rule, "tokens_per_step": PACES[pace]}, named[what]
        yield of_estimate(f"{kind} excess" if kind else "settled", key, one)
        if kind:
            yield [f"{kind} p", key, one.p, None, None, one.n]
    for row in along(table, tables).to_dict("records"):
        key = {"rule": row["rule"], "tokens_per_step": PACES[row["pace"]], "share": row["steps"] / 100}
        yield ["along right", key, row["value"], row["low"], row["high"], row["n"]]
