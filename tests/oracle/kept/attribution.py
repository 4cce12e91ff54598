"""attribution, mask-attribution and attention."""

from maskwise.probes.library.attribution import (
    ATTENDED,
    GRADIENTS,
    TOKENS,
    by_example,
    by_layer,
    by_tokens,
    metrics,
    numbers,
)
from maskwise.scoring.estimates import curve
from oracle.kept import curve_rows, of_claim

CALLED = {"gradient x input": "gradient input", "gradient norm": "evidence"}
KIND = {called: name.removesuffix("_found") for kinds in (ATTENDED, TOKENS) for name, called in kinds.items()}


def rows(tables):
    table = tables["attribution"]
    examples, others = table[table["of"] == "examples"], table[table["of"] != "examples"]
    yield from curve_rows(examples, ["question"])
    extra = {} if others.empty else {"extra masks": int(others["extra masks"].max())}
    for part in ("masks", "attention"):  # the same prompts, so the same numbers
        if len(of_part := others[others["of"] == part]):
            yield from ([name, extra, *more] for name, _, *more in curve_rows(of_part, ["extra masks"]))
    for figure, by in (
        (by_example, ("question", "example")),
        (by_tokens, ("tokens",)),
        (by_layer, ("tokens", "layer")),
    ):
        for row in figure(table, tables).to_dict("records"):
            target = {name: row[name] - 1 if name in ("example", "layer") else row[name] for name in by}
            if "tokens" in target:
                target |= {"tokens": KIND[target["tokens"]], **extra}
            yield [CALLED.get(row.get("gradient"), "evidence"), target, row["value"], row["low"], row["high"], row["n"]]
    for question, of_place in examples.groupby("question"):
        if of_place.masks_visible.notna().all():
            yield ["visible", {"question": question}, round(of_place.masks_visible.mean()), None, None, len(of_place)]
    columns = dict(zip(("question_times_input", "question_found"), GRADIENTS.values(), strict=True))
    own = numbers(examples, {name: {"gradient": called} for name, called in columns.items()})
    for row in curve(own, ["gradient", "question"], {"value": ""}).to_dict("records"):
        target = {"question": row["question"], "tokens": "question"}
        yield [CALLED[row["gradient"]], target, row["value"], row["low"], row["high"], row["n"]]
    for one in metrics(table, tables)[:1]:
        if one.claim:
            yield from of_claim("masks-move-more", {}, one)
