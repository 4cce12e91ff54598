"""confidence."""

from maskwise.probes.known_tokens import GUESSING
from maskwise.probes.library.confidence import curves, threshold
from maskwise.scoring import reliability
from maskwise.scoring.estimates import LEVEL, answers, share
from maskwise.scoring.intervals import p_by_guessing

GONE = {
    r"figure confidence-by-share/.*": "left out in 0.3: over- and underconfidence by the share still masked",
    r"above": "how many predictions are above the threshold is not said",
    r"gap|by share gap|sure|right|temperature": "left out in 0.3: over- and underconfidence are seen in the diagram",
    r"confidence by source, .*": "left out in 0.3: the sources are pooled; baseline answers decide which",
}


def pooled(table):
    """Of the sources that 0.2 pooled, by other sequences of them."""
    right = table[table.rule == "skill"].groupby("task", observed=True).correct.agg(["sum", "size"])
    able = [
        name for name, own, n in right.itertuples() if p_by_guessing(int(own), n, GUESSING[name]) < LEVEL / len(right)
    ]
    return table[table.task.isin(able)]


def rows(tables):
    for key, found, own in curves(pooled(tables["confidence"])):
        accuracy, n = share("", answers(own)), found.sequences
        tau, held = threshold(found, own)
        yield ["masks", key, round(own.masks_seen.mean()), None, None, n]
        yield ["accuracy", key, accuracy.value, accuracy.low, accuracy.high, n]
        yield ["verified", key, held.value, held.low, held.high, n]
        for name, measured in (("error", reliability.calibration_error), ("auroc", reliability.auroc)):
            yield [name, key, *measured(found), n]
        single = {"predictions": len(found.sure), "threshold": tau.value, "chosen on": tau.n, "verified on": held.n}
        for name, value in single.items():
            yield [name, key, value, None, None, n]
        for number, tenth in enumerate(reliability.reliability(found)):
            yield ["bins right", key | {"number": number}, tenth["value"], tenth["low"], tenth["high"], tenth["n"]]
            yield ["bins sure", key | {"number": number}, tenth["x"], None, None, tenth["n"]]
