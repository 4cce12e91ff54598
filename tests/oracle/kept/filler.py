"""filler."""

from maskwise.scoring.estimates import NATS, mean, wide
from oracle.kept import curve_rows, of_claim, of_estimate

GONE = {r"claim.*content.*": "the content's nats are in the curves alone"}


def rows(tables):
    from maskwise.probes.library.filler import beyond_fillers
    from maskwise.probes.library.mask_count import few_shots

    table = tables["filler"]
    masks = few_shots(tables["mask-count"]).query("relevant == 10")
    for quantity, condition, *numbers in curve_rows(table, ["filler", "fillers", "format", "relevant"], {"fillers": 0}):
        kept = {name: value for name, value in condition.items() if (name, value) != ("format", "A")}
        yield [quantity, kept, *numbers]
    found = beyond_fillers(table, masks)
    if found is not None:
        yield from of_claim("fillers-cost-less", {"relevant": 10}, found, sign=-1)
        nats, own = wide(masks, "masks", "nll"), wide(table[table.format == "B"], ["fillers", "filler"], "nll")
        most = max(own)[0]
        lost = nats[most + 2] - nats[2] - (own[most].mean(axis=1) - own[0].mean(axis=1))
        yield of_estimate("claim fillers-cost-less, nats value", {"relevant": 10}, mean("", lost.dropna(), NATS))
