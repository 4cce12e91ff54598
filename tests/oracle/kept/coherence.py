"""coherence."""

from maskwise.probes.library.coherence import BY, areas, metrics, speeds
from maskwise.tasks.word_puzzles import NAMES
from oracle.kept import masks_of, of_claim


def rows(tables):
    table = tables["coherence"]
    yield from masks_of(table, BY)
    for row in speeds(table, tables).to_dict("records"):
        condition = {name: row[name] for name in BY}
        yield ["accuracy", condition, row["value"], row["low"], row["high"], row["n"]]
        ends = (row["tokens_per_pass_low"], row["tokens_per_pass_high"])
        yield ["tokens per pass", condition, row["tokens_per_pass"], *ends, row["n"]]
        for name in ("ideal", "ideal_speed"):
            yield [name.replace("_", " "), condition, row[name], None, None, row["n"]]
    for row in areas(table, tables).to_dict("records"):
        yield [f"aup, {row['puzzle']} {row['rule']} aup", {}, row["value"], None, None, ...]
        yield [f"aup, {row['puzzle']} {row['rule']} ideal", {}, row["ideal"], None, None, ...]
    found = metrics(table, tables)
    for puzzle, cost, skill in zip(reversed(NAMES), found[: len(NAMES)], found[len(NAMES) :], strict=True):
        yield from of_claim(f"speed-{puzzle}", {}, cost, sign=-1, interval=False)
        yield [f"claim speed-{puzzle}, skill", {}, skill.value, None, None, skill.n]
