"""trajectory."""

from maskwise.probes.library.trajectory import KINDS, along, by_chance, conditions, excess, stands
from maskwise.scoring.estimates import SHARE, answers, mean, share
from oracle.kept import of_estimate

SHARES = {"accuracy": "correct", **{name: name for name in ("lost", "gained", "ever", "unparsable")}}


def labels(one):
    return {"rule": one["rule"], "tokens_per_step": int(one["pace"].split()[0])}


def rows(tables):
    table = tables["trajectory"]
    for one, own in conditions(table):
        key = labels(one)
        yield ["masks", key, round(own.masks_seen.mean()), None, None, len(own)]
        for name, column in SHARES.items():
            yield of_estimate(name, key, share("", answers(own, column)))
        yield of_estimate("first seen", key, mean("", answers(own, "first_seen"), SHARE, (0.0, 1.0)))
        yield of_estimate("changed", key, mean("", answers(own, "changed").astype(float), ""))
        for kind in KINDS:
            above = excess("", own, kind)
            yield of_estimate(f"{kind} chance", key, by_chance("", own, kind))
            yield of_estimate(f"{kind} excess", key, above)
            yield [f"{kind} p", key, above.p, None, None, above.n]
    for row in stands(table, tables).to_dict("records"):
        yield ["settled", labels(row), row["value"], row["low"], row["high"], row["n"]]
    for row in along(table, tables).to_dict("records"):
        key = labels(row) | {"share": row["steps"] / 100}
        yield ["along right", key, row["value"], row["low"], row["high"], row["n"]]
