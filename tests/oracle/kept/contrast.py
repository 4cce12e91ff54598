"""contrast."""

from oracle.kept import curve_rows, of_estimate

GONE = {r"mask tax": "left out in 0.3: mask-count has it"}


def rows(tables):
    from maskwise.probes.library.contrast import BY, by_masks, metrics
    from maskwise.tasks.contrast_questions import RULES

    table = tables["contrast"]
    fewest = table.masks.min()

    def baseline(condition):
        return {"examples": "near"} if condition["examples"] == "far" else {"masks": fewest}

    yield from curve_rows(table, BY, baseline, RULES)
    assert not by_masks(table, {}).empty
    for one in metrics(table, {}):
        if one.name.startswith("locality"):
            yield of_estimate("locality", {}, one)
