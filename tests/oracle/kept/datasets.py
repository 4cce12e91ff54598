"""hotpotqa and labelled-text."""

from oracle.kept import curve_rows


def rows(tables):
    table = tables["datasets"]
    hotpot = table.task == "hotpotqa"
    for data, own in (("hotpotqa", table[hotpot]), ("labelled-text", table[~hotpot])):
        if len(own):
            yield from curve_rows(own, ["share"], {"share": 0.0}, data=data)
