"""templates."""

from maskwise.probes.library import templates as probe
from oracle.kept import curve_rows, of_estimate

GONE = {
    r"templates, skills .*": "whether a template can be answered: tests/probes/test_templates.py",
    r"templates, (spread \w+|effects) (questions|templates)": "n of the estimates, which is compared",
    r"templates, spread \w+ sd": "left out in 0.3: the predictive interval says how far templates differ",
}
EFFECTS = {"accuracy": probe.ACCURACY, "masks": probe.MASKS, "distance": probe.DISTANCE}


def rows(tables):
    table = tables["templates"]
    scored = table[table.questions != probe.OF_SKILL].assign(answer=table.answer_found)
    yield from curve_rows(scored, ["questions", "template", "answer", "examples", "masks"])
    for old, effect in EFFECTS.items():
        sign = 1 if effect == probe.ACCURACY else -1
        for answer in (probe.LETTER, probe.WORD):
            values = probe.effects(table, answer)[effect]
            for template in values:
                one, condition = probe.under(effect, template, values), {"effect": old, "template": template}
                # The interval of the example far is that of `paired`, as of any change.
                yield of_estimate("templates, effects value", condition, one, sign, effect != probe.DISTANCE)
        new = probe.over(effect, probe.effects(table)[effect])
        ends = (new.low, new.high) if sign > 0 else (-new.high, -new.low)
        for name, value in zip(("low", "high"), ends, strict=True):
            yield [f"templates, spread {old} new {name}", {}, value, None, None, new.n]
        # Its interval was by the variance components, which are left out.
        yield of_estimate(f"templates, spread {old} mean", {}, new, sign, interval=False)
