"""templates."""

from maskwise.probes.library import templates as probe
from oracle.kept import curve_rows, of_estimate

GONE = {
    r"templates, skills .*": "whether a template can be answered: tests/probes/test_templates.py",
    r"templates, (spread \w+|effects) (questions|templates)": "n of the estimates, which is compared",
}
EFFECTS = {"accuracy": probe.ACCURACY, "masks": probe.MASKS, "distance": probe.DISTANCE}


def rows(tables):
    table = tables["templates"]
    scored = table[table.questions != probe.OF_SKILL].assign(answer=table.answer_found)
    yield from curve_rows(scored, ["questions", "template", "answer", "examples", "masks"])
    for old, effect in EFFECTS.items():
        sign = 1 if effect == probe.ACCURACY else -1
        for answer in (probe.LETTER, probe.WORD):
            sides = probe.sides_of(table, effect, answer)
            for template in sides[0]:
                one, condition = probe.under(effect, sides, template), {"effect": old, "template": template}
                yield of_estimate("templates, effects value", condition, one, sign)
        new, mean, deviation = probe.over(effect, probe.difference(probe.sides_of(table, effect)))
        ends = (new.low, new.high) if sign > 0 else (-new.high, -new.low)
        for name, value in zip(("low", "high"), ends, strict=True):
            yield [f"templates, spread {old} new {name}", {}, value, None, None, new.n]
        yield of_estimate(f"templates, spread {old} mean", {}, mean, sign)
        yield of_estimate(f"templates, spread {old} sd", {}, deviation)
