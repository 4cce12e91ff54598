"""coherence."""

from maskwise.probes.library.coherence import BLIND, PERFECT, SPEEDS, by_rule, metrics
from maskwise.tasks.word_puzzles import NAMES
from oracle.kept import masks_of, of_claim

BY = ["puzzle", "rule", "speed"]
BLIND_RULES = "|".join(BLIND)
GONE = {
    r"tokens per pass|ideal speed|aup, .*": "left out in 0.3: speeds are one, two and four tokens a step",
    r".*\"rule\": \"(threshold|factor|entropy-bound|klass)\".*": "left out in 0.3: adaptive ones have other speeds",
    rf"\[\"ideal\"(?!.*\"rule\": \"({BLIND_RULES})\").*": "left out in 0.3: closed forms hold for the other strategies",
}


def rows(tables):
    table = tables["coherence"]
    yield from masks_of(table[table.speed.isin(SPEEDS)], BY)
    for row in by_rule(table, tables).to_dict("records"):
        condition = {name: row[name] for name in BY}
        yield ["accuracy", condition, row["value"], row["low"], row["high"], row["n"]]
        if row["rule"] in BLIND:
            perfect = PERFECT[row["puzzle"]][[*SPEEDS].index(row["speed"])]
            yield ["ideal", condition, perfect, None, None, row["n"]]
    found = metrics(table, tables)
    for puzzle, cost, skill in zip(reversed(NAMES), found[: len(NAMES)], found[len(NAMES) :], strict=True):
        yield from of_claim(f"speed-{puzzle}", {}, cost, sign=-1, interval=False)
        yield [f"claim speed-{puzzle}, skill", {}, skill.value, None, None, skill.n]
