"""steps: what was unmasking (40 steps, in two orders) and few-steps (a random order)."""

from maskwise.probes.library.mask_count import few_shots
from maskwise.probes.library.steps import metrics
from maskwise.scoring.estimates import NATS, mean, of_relevant, wide
from oracle.kept import curve_rows, of_claim, of_estimate

SUREST = "accuracy with {most} masks in 40 steps, most confident first"
CLAIMS = {f"{SUREST}, less in one step": "steps-recover", f"{SUREST} less random order": "surest-first-best"}


def rows(tables):
    table = tables["steps"]
    for one, part in (("order", table.steps == 40), ("steps", table.steps < 40)):
        if part.any():
            yield from curve_rows(table[part], [one, "masks", "relevant"], {"masks": table[part].masks.min()})
    yield from claims(table, {name: of_relevant(own, 10, True) for name, own in tables.items()})


def claims(table, tables):
    table = table[table.steps == 40]
    if table.empty:
        return
    most = table.masks.max()
    found = {one.name: one for one in metrics(table, tables)}
    for name, claim in CLAIMS.items():
        if name.format(most=most) in found:
            yield from of_claim(claim, {"relevant": 10}, found[name.format(most=most)], interval=False)
            for said, field in (("nats", "nll"), ("nats content", "nll_choice")):
                nats = wide(table[table.masks == most], "order", field)
                random = claim == "surest-first-best"
                before = nats["random"] if random else wide(few_shots(tables["mask-count"]), "masks", field)[most]
                gained = mean("", before - nats["confidence"], NATS)
                yield of_estimate(f"claim {claim}, {said} value", {"relevant": 10}, gained)
