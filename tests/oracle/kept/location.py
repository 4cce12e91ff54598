"""location, with what was question-position and location-masks."""

from maskwise.scoring.estimates import NATS, mean, of_relevant, relevant_numbers, wide
from oracle.kept import curve_rows, of_claim, of_estimate

GONE = {
    r"nats lost to distance, (allowed|choice) value": "the format's nats and the content's are in the curves alone",
    r"claim distance-costs.*": "left out in 0.3: the claim is about the change from near to far",
}


def rows(tables):
    from maskwise.probes.library.location import metrics, nearest_first

    table = tables["location"]
    places = sorted(table.location.unique())
    nearest = {place: nearest_first(places, place)[0] for place in table.question.unique()}
    alone = table[table.masks == 0]
    yield from curve_rows(alone[alone.question == "right"], ["location", "relevant"], {"location": places[-1]})
    main = of_relevant(alone, relevant_numbers(table)[0], True)
    by = ["question", "location", "relevant"]
    yield from curve_rows(main, by, lambda one: {"location": nearest[one["question"]]})
    more = table[table.masks > 0]
    if len(more):
        yield from curve_rows(more, ["location", "masks", "relevant"], {"masks": more.masks.min()})
    for number in relevant_numbers(table):
        own, named = of_relevant(table, number, True), {"relevant": number}
        found = {one.name: one for one in metrics(own, {})}
        yield from of_all_claims(own, named, found)
        for name in ("locality", "nats lost to distance"):
            yield of_estimate(name, named, found[name])


def of_all_claims(table, named, found):
    """claims by the start of the estimate's name; nats by the same weights, a gain of nats is a loss."""
    from maskwise.probes.library.location import nearest_first

    def weighed(claim, name, sign, weigh, own):
        for one in (one for start, one in found.items() if start.startswith(name)):
            yield from of_claim(claim, named, one, sign, interval=False)
            for said, field in (("nats", "nll"), ("nats content", "nll_choice")):
                nats = weigh(wide(own, ["masks", "location"], field))
                yield of_estimate(f"claim {claim}, {said} value", named, mean("", -sign * nats, NATS))

    last = table[table.question == "right"]
    for place, name in (("left", "question first"), ("right", "question last")):
        own = table[(table.question == place) & (table.masks == 0)]

        def nearest(nats, place=place):
            first, *further = nearest_first(nats[0].columns, place)
            return nats[0, first] - nats[0][further].mean(axis=1)

        yield from weighed(f"near-best-{place}", name, 1, nearest, own)
    more = last[last.masks > 0]
    few, most = more.masks.min(), more.masks.max()

    def lost(nats):
        return nats[most] - nats[few]

    def near(nats):
        places = lost(nats)
        return places[max(places)] - places[min(places)]

    name = f"change of accuracy with {most} masks instead of {few},"
    yield from weighed("masks-lower-all", f"{name} mean", -1, lambda nats: lost(nats).mean(axis=1), more)
    yield from weighed("masks-lower-near", f"{name} near", -1, near, more)
