"""mask-count, with what was shots-masks."""

from maskwise.scoring.estimates import NATS, answers, mean, of_relevant, relevant_numbers, wide
from oracle.kept import curve_rows, of_claim, of_estimate

GONE = {r"(nats lost|claim).*(allowed|choice|content).*": "the format's nats and the content's are in the curves alone"}


def rows(tables):
    from maskwise.probes.library.mask_count import by_task, few_shots, metrics, of_shots

    table = tables["mask-count"]
    masks = few_shots(table)
    yield from curve_rows(masks, ["masks", "relevant"], {"masks": 2})
    for number in relevant_numbers(masks):
        own, named = of_relevant(masks, number, True), {"relevant": number}
        found = {one.name.partition(" ")[0]: one for one in metrics(own, {})}
        if not found:
            continue
        for quantity, name in (("mask tax", "mask"), ("degradation", "degradation"), ("nats lost to masks", "nats")):
            yield of_estimate(quantity, named, found[name])
        yield from of_claim("masks-cost", named, metrics(own, {})[0], sign=-1, interval=False)
        nats = wide(own, "masks", "nll")
        yield of_estimate("claim masks-cost, nats value", named, mean("", nats[max(nats)] - nats[2], NATS))
    if "shots" not in table:
        return
    asked = table[table.shots.notna()]
    asked = asked.astype({"shots": int, "extra": int})

    for (shots, extra), own in asked.groupby(["shots", "extra"]):
        condition = {"shots": shots, "extra masks": extra}
        base = asked[(asked.shots == shots) & (asked.extra == asked.extra.min())]
        for row in curve_rows(own, ["shots", "extra"]):
            yield [row[0], condition, *row[2:]]
        if extra > asked.extra.min():
            yield from changes(condition, own, base)
    drawn = by_task(table, {})
    for one in drawn.to_dict("records"):
        for quantity, value in (("gain", one["gain"]), ("change", one["value"])):
            yield [f"shots against masks, tasks {one['task']} {quantity}", {}, value, None, None, ...]
    for one, name in zip(of_shots(table), ("together", "apart"), strict=False):
        yield [*of_estimate(f"shots against masks, {name} value", {}, one)[:5], ...]


def changes(condition, here, before):
    from maskwise.scoring.estimates import change

    found = change("", answers(here), answers(before))
    yield ["change of accuracy", condition, found.value, found.low, found.high, ...]
    yield ["p of change", condition, found.p, None, None, ...]
    for name in ("nll", "nll_allowed", "nll_choice"):
        if here[name].notna().all() and before[name].notna().all():
            found = mean("", answers(here, name) - answers(before, name), NATS)
            yield [f"change of {name.replace('_', ' ')}", condition, found.value, found.low, found.high, ...]
