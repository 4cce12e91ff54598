"""confidence."""

from maskwise.probes.known_tokens import GUESSING, source_checks
from maskwise.probes.library.confidence import by_source, gaps, ranking, scored, settings
from maskwise.scoring import reliability
from maskwise.scoring.estimates import answers, share

SOURCE = "confidence by source"
ALONE = ("auroc", "temperature", "sure")
RANKED = ("right", "error", "auroc")
GONE = {
    r"above": "how many predictions are above the threshold is not said",
    r"confidence by source, .* skill (skill|high)": "the check is a test of guessing, without a verdict or a bound",
}


def rows(tables):
    table = tables["confidence"]
    for one in scored(table):
        key, n = one.labels, one.found.sequences
        accuracy = share("", answers(one.rows))
        temperature, tau, held = settings(one)
        yield ["masks", key, round(one.rows.masks_seen.mean()), None, None, n]
        yield ["accuracy", key, accuracy.value, accuracy.low, accuracy.high, n]
        measured = {"gap": gaps(one)[0], **dict(zip(RANKED, ranking(one), strict=True)), "temperature": temperature}
        for name, found in (measured | {"verified": held}).items():
            yield [name, key, found.value, found.low, found.high, n]
        single = {"predictions": len(one.found.sure), "sure": one.found.sure.mean(), "threshold": tau.value}
        single |= {"chosen on": tau.n, "verified on": held.n}
        for name, value in single.items():
            yield [name, key, value, None, None, n]
        for number, tenth in enumerate(reliability.reliability(one.found)):
            yield ["bins right", key | {"number": number}, tenth["value"], tenth["low"], tenth["high"], tenth["n"]]
            yield ["bins sure", key | {"number": number}, tenth["x"], None, None, tenth["n"]]
        for words, here in one.by_share.items():
            yield ["by share gap", key | {"share": words}, *reliability.overconfidence(here), len(here.sure)]
    for row in by_source(table, tables).to_dict("records"):
        what = f"{SOURCE}, {row['source']}"
        yield [f"{what} error", {}, row["error"], row["error_low"], row["error_high"], ...]
        values = {"right": row["value"], "predictions": row["n"]} | {name: row[name] for name in ALONE}
        for name, value in values.items():
            yield [f"{what} {name}", {}, value, None, None, ...]
    for source, check in source_checks(table).iterrows():
        for name, value in (("right", check["right in check"]), ("guessing", GUESSING[source]), ("p", check.p)):
            yield [f"{SOURCE}, {source} skill {name}", {}, value, None, None, check.checked]
