"""attribution, mask-attribution and attention."""

from maskwise.probes.library.attribution import (
    ATTENDED,
    TOKENS,
    by_example,
    by_layer,
    by_tokens,
    numbers,
)
from maskwise.scoring.estimates import curve
from oracle.kept import curve_rows

GONE = {
    r"gradient input|figure .*/gradient_input|claim masks-move-more.*": "left out in 0.3: the paper's norm is shown"
}
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
        (by_example, {"question": "question", "place": "example"}),
        (by_tokens, {"tokens": "tokens"}),
        (by_layer, {"tokens": "tokens", "place": "layer"}),
    ):
        for row in figure(table, tables).to_dict("records"):
            target = {name: row[column] - 1 if column == "place" else row[column] for column, name in by.items()}
            if "tokens" in target:
                target |= {"tokens": KIND[target["tokens"]], **extra}
            yield ["evidence", target, row["value"], row["low"], row["high"], row["n"]]
    for question, of_place in examples.groupby("question"):
        if of_place.masks_visible.notna().all():
            yield ["visible", {"question": question}, round(of_place.masks_visible.mean()), None, None, len(of_place)]
    own = numbers(table, "examples", {"question_found": "question"})
    for row in curve(own, ["question"], {"value": ""}).to_dict("records"):
        target = {"question": row["question"], "tokens": "question"}
        yield ["evidence", target, row["value"], row["low"], row["high"], row["n"]]
