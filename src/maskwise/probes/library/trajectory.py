"""Trajectory: do the last steps destroy right answers?

    step 1     Q Q _ a _ _ _
    step 2     Q Q _ a a _ a
    last step  Q Q a a ! a a

Questions with a known answer (few-shot ones, or yours with --data) are decoded greedily under several strategies, with
one and several tokens per step. After each step every mask that is left is filled with its likeliest token, and the
answer is read from that text; a text without an answer is neither right nor wrong.

Right then wrong: right after some step, wrong at the end; wrong then right is its mirror. By chance: what the same
answers give in random order, as many looks at the same distribution of answers: with R right and W wrong of T looks,
W/T of the questions with a right look are lost and R/T of those with a wrong one gained. Only losses above chance are
due to the order of the steps. The answer stands from the step after which it does not change any more. Changed are
committed tokens that a later step masked or replaced; 0 unless a strategy masks again, as remdm does.

Not in the paper. Wang et al. (arXiv 2508.09138) report right answers in the middle that are overwritten later.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from msgspec import UnsetType

from maskwise.probes.checked import AskedSet, asked_sets
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring import intervals
from maskwise.scoring.estimates import SHARE, Estimate, answers, mean, share, strata
from maskwise.scoring.power import questions_for
from maskwise.scoring.verdicts import holm
from maskwise.tasks.checkable import EMBEDDED
from maskwise.tasks.datasets import is_checkable
from maskwise.tasks.prompts import Prompt

NAME = "trajectory"
STRATEGIES = ("low-confidence", "random", "remdm")
PACES = (1, 2)  # tokens per step
BY = ["rule", "tokens_per_step"]
PLACES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # shares of the steps at which the accuracy is drawn
KINDS = {"lost": "right then wrong", "gained": "wrong then right"}
ABOVE, CHANGED = ", above chance", "answers that late steps changed"
LITTLE = 0.05  # of the questions
DECODING_COST = 4


def ask(
    setup: Setup,
    questions: int = 20,
    canvas: int = 8,
    data_canvas: int = 128,
    rules: tuple[str, ...] = STRATEGIES,
    tokens_per_step: tuple[int, ...] = PACES,
) -> Iterator[Questions]:
    from maskwise.probes.answers.looks import watch_looks

    for asked in asked_sets(setup, min(setup.settings.questions, questions)):
        masks = canvas if asked.name == EMBEDDED else data_canvas
        if asked.longest + masks > setup.model.window:
            setup.note(f"{NAME} was not run on {asked.name}: a canvas of {masks} masks exceeds the context length")
            continue

        def prompt(point: int, _: Mapping[str, Any], asked: AskedSet = asked, masks: int = masks) -> Prompt:
            one = asked.questions[point]
            return Prompt((*one.ids, *[setup.asker.mask] * masks), len(one.ids), one.answer_ids[0], masks)

        def answer(point: int, asked: AskedSet = asked) -> str:
            return asked.questions[point].answer.strip()

        source = Points(asked.name, range(len(asked.questions)))
        look = partial(watch_looks, asked=asked, canvas=masks, seed=setup.settings.seed)
        for rule in rules:
            for pace in (pace for pace in tokens_per_step if pace <= masks):
                condition = {"rule": rule, "tokens_per_step": pace}
                watch = partial(look, rule=rule, steps=masks // pace)
                yield Questions(source, [condition], prompt, answer, watch, DECODING_COST)


def looked(given: Sequence[int], right: int) -> dict[str, float]:
    """The measures of one question, from the class of the answer after each step and that of the right answer."""
    seen, final = np.array(given), given[-1]
    is_right = (seen == right) & (right >= 0)
    is_wrong = ~is_right & (seen >= 0)
    changes = np.flatnonzero(seen != final)
    return {
        "lost": float(is_wrong[-1] and is_right.any()),
        "lost_chance": float(is_wrong.mean() if is_right.any() else 0.0),
        "gained": float(is_right[-1] and is_wrong.any()),
        "gained_chance": float(is_right.mean() if is_wrong.any() else 0.0),
        "ever": float(is_right.any()),
        "unparsable": float(final < 0),
        "first_seen": float(((seen == final).argmax() + 1) / len(seen)),
        "settled": float((changes[-1] + 2) / len(seen) if len(changes) else 1 / len(seen)),
    }


def conditions(table: Table) -> Iterator[tuple[dict[str, str], Table]]:
    """The questions of each strategy and pace with their measures, in the order in which they were asked."""
    import pandas as pd

    measures = [looked(given, right) for given, right in zip(table.answers, table.right, strict=True)]
    for key, own in table.join(pd.DataFrame(measures, index=table.index)).groupby(BY, sort=False):
        rule, pace = key
        yield {"rule": rule, "pace": f"{pace} token{'s' if pace != 1 else ''} per step"}, own


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """What is lost and gained above chance, and how many answers late steps changed at all."""
    found = [(", ".join(one.values()), own) for one, own in conditions(table)]
    above = [excess(f"{name}: {words}{ABOVE}", own, kind) for kind, words in KINDS.items() for name, own in found]
    return above + [share(f"{name}: {CHANGED}", answers(own, "lost") + answers(own, "gained")) for name, own in found]


def excess(name: str, own: Table, kind: str) -> Estimate:
    groups = strata(answers(own, kind) - answers(own, f"{kind}_chance"))
    p = intervals.p_of_mean(groups, 0.0, (-1.0, 1.0))
    value, low, high = map(float, intervals.paired_share(groups))
    return Estimate(name, value, low, high, len(own), SHARE, p=1.0 if p is None else p)


def by_chance(name: str, own: Table, kind: str) -> Estimate:
    """Few questions have a chance above 0, so Student's interval would be too narrow: as of shares."""
    groups = strata(answers(own, f"{kind}_chance"))
    value, low, high = map(float, intervals.share_interval(intervals.means_of(groups), intervals.points_of(groups)))
    return Estimate(name, value, low, high, len(own), SHARE)


def along(table: Table, others: Tables) -> Table:
    """Right answers after each tenth of the steps."""
    import pandas as pd

    rows = []
    for condition, own in conditions(table):
        for place in PLACES:
            looks = [given[max(0, int(np.ceil(place * len(given) - 1e-9)) - 1)] for given in own.answers]
            right = answers(own.assign(now=(own.right >= 0) & (own.right == looks)), "now").astype(float)
            rows.append(condition | {"steps": round(100 * place)} | interval(share("", right)))
    return pd.DataFrame(rows)


def lost_and_gained(table: Table, others: Tables) -> Table:
    import pandas as pd

    rows = []
    for condition, own in conditions(table):
        for kind, words in KINDS.items():
            rows.append(condition | {"what": words} | interval(share("", answers(own, kind))))
            rows.append(condition | {"what": f"{words}, by chance"} | interval(by_chance("", own, kind)))
    return pd.DataFrame(rows)


def stands(table: Table, others: Tables) -> Table:
    """The share of the steps after which the answer does not change, and what else there is to say of the answers."""
    import pandas as pd

    rows = []
    for condition, own in conditions(table):
        settled = mean("", answers(own, "settled"), SHARE, (0.0, 1.0))
        means = own[["first_seen", "ever", "unparsable", "changed"]].mean()
        rows.append(condition | interval(settled) | means.to_dict())
    return pd.DataFrame(rows)


def interval(one: Estimate) -> dict[str, Any]:
    return {"value": one.value, "low": one.low, "high": one.high, "n": one.n}


def advice(found: Sequence[Estimate]) -> str | None:
    """Fewer steps are never advised: not even a level accuracy over the last ones shows that nothing is lost."""
    lost = [one for one in found if one.name.endswith(KINDS["lost"] + ABOVE)]
    changed = [one.value or 0.0 for one in found if one.name.endswith(CHANGED)]
    if not lost:
        return None
    certain = holm({one.name: one for one in lost})
    worse = [one for one in lost if certain[one.name] and (one.value or 0.0) > 0]
    if worse:
        return f"commit fewer tokens per step; more right answers are lost than by chance: {worse[0]}"
    if all(one.high is not None and one.high < LITTLE for one in lost):
        return "decode to the end: the last steps destroy no more right answers than chance would"
    needed = max(questions_for(LITTLE, value, len(lost)) for value in changed)
    asking = f"ask {needed} questions before you take fewer (--steps): --probes {NAME} --questions {needed}"
    return f"decode to the end: it is not shown that the last steps destroy none; {asking}"


by_rule = partial(Figure, series="rule", panel="pace")
PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        by_rule(along, "steps", "Steps done, %", y="Right answers"),
        by_rule(lost_and_gained, "what", "What becomes of an answer", y="Questions", kind="points"),
        Figure(stands, "rule", "Strategy", y="Steps until the answer stands", series="pace", kind="points"),
    ],
    condition={"rule": str, "tokens_per_step": int},
    evidence={"answers": list[int], "right": int, "changed": int, "voted": int | UnsetType},  # voted: by version 0.2
    needs=frozenset({"masks", "whole sequences"}),
    sizes={"quick": {"questions": 8, "rules": ("low-confidence", "random")}},
    takes=is_checkable,
    advice=advice,
)
