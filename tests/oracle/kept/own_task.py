"""own-task: what generation-length and likelihood-masks measured."""

from maskwise.probes.library import generation_length, likelihood_masks
from maskwise.probes.library.generation_length import BY, ends
from maskwise.scoring.estimates import TOKENS, curve
from oracle.kept import curve_rows, of_estimate

ONLY_NLL = ("accuracy", "confidence", "entropy")  # likelihood-masks did not say these


def rows(tables):
    written, scored = tables["generation-length"], tables["likelihood-masks"]
    smallest = written.groupby("layout").canvas.min()
    yield from curve_rows(written, BY, lambda condition: {"canvas": smallest[condition["layout"]]})
    lengths = curve(written, BY, {"length": TOKENS, "ended": ""}).to_dict("records")
    for row in [*lengths, *ends(written, tables).to_dict("records")]:
        condition, name = {name: row[name] for name in BY}, row["measure"].replace("_", " ")
        yield [name, condition, row["value"], row["low"], row["high"], row["n"]]
    sooner, _ = generation_length.metrics(written, tables)
    yield of_estimate("end flood", {}, sooner, sign=-1)
    for name, canvas in (("short", written.canvas.min()), ("long", written.canvas.max())):
        yield [f"end flood, {name}", {}, int(canvas), None, None, sooner.n]
    yield from (row for row in curve_rows(scored, ["masks"], {"masks": 0}) if row[0] not in ONLY_NLL)
    for row in likelihood_masks.by_masks(scored, tables).to_dict("records"):
        yield [f"score movement, {row['masks']} mean", {}, row["moved"], None, None, ...]
        yield [f"score movement, {row['masks']} largest", {}, row["moved_most"], None, None, ...]
