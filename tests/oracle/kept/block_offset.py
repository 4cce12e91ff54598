"""block-offset."""

from oracle.kept import curve_rows


def rows(tables):
    table = tables["block-offset"]
    first = table.groupby("after").offset.min()
    yield from curve_rows(table, ["after", "offset", "relevant"], lambda one: {"offset": first[one["after"]]})
