"""block-offset."""

from oracle.kept import curve_rows


def rows(tables):
    table = tables["block-offset"]
    first = table.groupby("after").offset.min()
    yield from curve_rows(table, ["after", "offset", "relevant"], lambda one: {"offset": first[one["after"]]})
    for (after, at, relevant), own in table.groupby(["after", "offset", "relevant"]):
        condition = {"after": after, "offset": at, "relevant": relevant}
        yield ["visible", condition, own.masks_visible.mean(), None, None, len(own)]
