"""Confidence: is a prediction of probability 0.9 right nine times out of ten?

    step 1  R d Q ? ? ? ?
    step 2  R d Q ? a ? ?
    step 3  R d Q a a ? ?

Answers whose every token is known (few-shot questions, the value of a pair, copied words, words of a Markov chain; or
yours, with --data) are decoded greedily, a token per step, under several strategies. After an error the right token is
written, so that every prediction sees a right context: after its own errors a decoder does worse. Commits are the
predictions that a strategy chose, by their confidence; masked positions are those that it chose from, when all, 3/4,
1/2 and 1/4 of the masks are left. Sources that the model is not shown to do better than guessing, on other questions of
them, are left out; all where it can do none.

On the diagonal a confidence means what it says; below it the model is overconfident, and a threshold commits more wrong
tokens than it promises. Where confidence is too high early, start slowly; where it is too high late, end slowly. The
calibration error is the root mean square distance from the diagonal, without its small-sample bias (arXiv 1909.10155).
The threshold is the least confidence at which nine of ten are right, chosen on the even questions and verified on the
odd ones. Intervals are over questions.

Not in the paper. Adaptive strategies (threshold, factor; arXiv 2505.22618) are as good as the confidence is.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from maskwise.probes.known_tokens import (
    GUESSING,
    SKILL,
    check_sequences,
    known_evidence,
    known_questions,
    known_sequences,
    of_able_sources,
    source_checks,
)
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Questions
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring import reliability
from maskwise.scoring.estimates import POINTS, SHARE, Estimate
from maskwise.scoring.reliability import FEWEST, WANTED, Predictions
from maskwise.tasks.datasets import is_checkable

NAME = "confidence"
STRATEGIES = ("low-confidence", "random", "threshold")
COMMITS, MASKED = "commits", "masked positions"
PREFIX = {COMMITS: "", MASKED: "all_"}  # of the evidence
LOOKED_AT = {"sure": list[float], "right": list[int], "share": list[float], "nll": list[float]}
LEFT = {"over 3/4": (0.75, 1.0), "1/2 to 3/4": (0.5, 0.75), "1/4 to 1/2": (0.25, 0.5), "up to 1/4": (0.0, 0.25)}
GAP = "confidence less share right"
TAU, HELD = f"{MASKED}: least confidence at which nine of ten are right", f"{MASKED}: right at or above it"
LATE = f"{COMMITS}, threshold, late: {GAP}"
DECODING_COST = 4


def ask(setup: Setup, questions: int = 32, rules: tuple[str, ...] = STRATEGIES) -> Iterator[Questions]:
    from maskwise.probes.answers.commits import watch_commits

    for source, listed in known_sequences(setup, NAME, questions).items():
        for rule in rules:
            watch = partial(watch_commits, rule=rule, seed=setup.settings.seed)
            yield known_questions(setup, source, listed, {"rule": rule}, watch, DECODING_COST)
    for source, listed in check_sequences(setup, NAME, questions).items():
        yield known_questions(setup, source, listed, {"rule": SKILL})


class Curve(NamedTuple):
    """The predictions of one kind under one strategy, and what share of the answer was still masked at each."""

    rule: str
    of: str
    found: Predictions
    left: np.ndarray
    rows: Table

    @property
    def labels(self) -> dict[str, str]:
        return {"rule": self.rule, "of": self.of}

    @property
    def nll(self) -> np.ndarray:
        """[questions, temperatures]"""
        return np.array(self.rows["all_nll" if self.of == MASKED else "nll_found"].to_list(), dtype=float)

    @property
    def by_share(self) -> dict[str, Predictions]:
        """By the share still masked, from all of the answer to little of it, where there are enough."""
        here = {words: (self.left > low) & (self.left <= high) for words, (low, high) in LEFT.items()}
        return {words: self.found.where(one) for words, one in here.items() if one.sum() >= FEWEST}


def curves(table: Table) -> Iterator[Curve]:
    """Commits and masked positions of each strategy, in the order in which they were asked."""
    for rule, rows in table.groupby("rule", sort=False):
        for of, prefix in PREFIX.items():
            found = Predictions.of(rows[f"{prefix}sure"], rows[f"{prefix}right"])
            yield Curve(str(rule), of, found, np.concatenate(rows[f"{prefix}share"].to_list()), rows)


def scored(table: Table) -> list[Curve]:
    return list(curves(of_able_sources(table))) if "sure" in table else []


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """Of every strategy how far confidence and share right lie apart, of the first what confidence is good for."""
    drawn = scored(table)
    first = [one for one in drawn if one.rule == drawn[0].rule]
    found = [estimate for one in drawn if one.of == COMMITS or one in first for estimate in gaps(one)]
    found += [estimate for one in first for estimate in ranking(one)]
    return found + [estimate for one in first if one.of == MASKED for estimate in settings(one)]


def gaps(curve: Curve) -> list[Estimate]:
    """Over all steps, and of the first and the last for which there are enough predictions."""
    shares = [*curve.by_share.values()]
    listed = {"": curve.found} | dict(zip((", early", ", late"), (shares[:1] + shares[1:][-1:]), strict=False))
    found = {when: reliability.overconfidence(one) for when, one in listed.items()}
    what, n = f"{curve.of}, {curve.rule}", curve.found.sequences
    return [Estimate(f"{what}{when}: {GAP}", *one, n, POINTS) for when, one in found.items()]


def ranking(curve: Curve) -> list[Estimate]:
    what, n = f"{curve.of}, {curve.rule}", curve.found.sequences
    return [
        Estimate(f"{what}: share right", *curve.found.share_right(), n, SHARE),
        Estimate(f"{what}: calibration error", *reliability.calibration_error(curve.found), n, SHARE),
        Estimate(f"{what}: AUROC of confidence", *reliability.auroc(curve.found), n, SHARE),
    ]


def settings(curve: Curve) -> list[Estimate]:
    """What the logits are best divided by, and the threshold to decode with: chosen on the even questions."""
    found, even = curve.found, curve.rows.point.to_numpy() % 2 == 0
    chosen_on = even[found.sequence]
    tau = reliability.threshold(found.where(chosen_on))
    held = found.where(~chosen_on & (found.sure >= (2.0 if tau is None else tau))).share_right()
    why = "at no confidence are nine of ten right" if tau is None else ""
    few = "too few predictions are that confident" if held[0] is None else ""
    return [
        Estimate(f"{curve.of}: best temperature", *reliability.best_temperature(curve.nll), found.sequences),
        Estimate(TAU, tau, n=int(even.sum()), why=why),
        Estimate(HELD, *held, int((~even).sum()), SHARE, WANTED, "above", why=why or few),
    ]


def diagram(table: Table, others: Tables) -> Table:
    """A row for each tenth of the scale with enough predictions; n counts these."""
    import pandas as pd

    return pd.DataFrame(one.labels | tenth for one in scored(table) for tenth in reliability.reliability(one.found))


def by_share(table: Table, others: Tables) -> Table:
    import pandas as pd

    rows = []
    for one in scored(table):
        for words, found in one.by_share.items():
            value, low, high = reliability.overconfidence(found)
            measured = {"value": value, "low": low, "high": high, "n": len(found.sure)}
            rows.append({**one.labels, "left": words, **measured})
    return pd.DataFrame(rows)


def by_source(table: Table, others: Tables) -> Table:
    """Masked positions of every source under the first strategy: which ones the figures above are over, and why."""
    import pandas as pd

    if "sure" not in table:
        return pd.DataFrame()
    checks, pooled, rows = source_checks(table), set(of_able_sources(table).task), []
    asked = table[table.rule != SKILL]
    for source, own in asked[asked.rule == asked.rule.iloc[0]].groupby("task", observed=True, sort=False):
        _, masked = curves(own)
        found = masked.found
        value, low, high = found.share_right()
        row = {"source": source, "value": value, "low": low, "high": high, "n": len(found.sure)}
        row |= {"sure": found.sure.mean()}
        row |= zip(("error", "error_low", "error_high"), reliability.calibration_error(found), strict=True)
        row |= {"auroc": reliability.auroc(found)[0]}
        row |= {"temperature": reliability.best_temperature(masked.nll)[0], "guessing": GUESSING.get(str(source))}
        row |= checks.loc[source, ["checked", "right in check"]].to_dict() if source in checks.index else {}
        rows.append(row | {"pooled": source in pooled})
    return pd.DataFrame(rows)


def advice(found: Sequence[Estimate]) -> str | None:
    """A threshold from all masked positions, because that strategy commits every one that is sure enough."""
    named = {one.name: one for one in found}
    tau, held, late = (named.get(name) for name in (TAU, HELD, LATE))
    if tau is None or held is None:
        return None
    if tau.value is None:
        return f"commit one token per step: {tau.why}"
    if held.value is None or held.value < WANTED:
        return "ask more questions (--questions) before you use a threshold"
    if held.verdict != "holds" or (late is not None and late.side > 0):
        settings = f"'rule=low-confidence rule=threshold,tau={tau.value:g}'"
        return f"compare tau={tau.value:g} on your questions before you use it: maskwise advise --settings {settings}"
    return f"decode with --rule threshold --parameter tau={tau.value:g}"


LEFT_LABEL = "Share of the answer still masked"
PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[
        Figure(diagram, "x", "Confidence", y="Share right", series="rule", panel="of", kind="diagonal"),
        Figure(by_share, "left", LEFT_LABEL, y=GAP.capitalize(), series="rule", panel="of", kind="points", unit=POINTS),
        Figure(by_source, "source", "Source", y="Share right", kind="points"),
    ],
    condition={"rule": str},
    evidence=known_evidence({prefix + name: kind for prefix in PREFIX.values() for name, kind in LOOKED_AT.items()}),
    needs=frozenset({"masks", "whole sequences"}),
    sizes={"quick": {"questions": 12, "rules": ("low-confidence", "random")}},
    takes=is_checkable,
    advice=advice,
)
