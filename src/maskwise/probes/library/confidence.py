"""Confidence: is a prediction of probability 0.9 right nine times out of ten?

    step 1  R d Q ? ? ? ?
    step 2  R d Q ? a ? ?
    step 3  R d Q a a ? ?

Answers whose every token is known (few-shot questions, the value of a pair, copied words, words of a Markov chain; or
yours, with --data) are decoded greedily, a token per step, under several strategies. After an error the right token is
written, so that every prediction sees a right context: after its own errors a decoder does worse. Commits are the
predictions that a strategy chose, by their confidence; masked positions are those that it chose from, when all, 3/4,
1/2 and 1/4 of the masks are left. Sources of which the model is not shown to predict the first token better than by
guessing are left out; none is where it can do none.

On the diagonal a confidence means what it says; below it the model is overconfident, and a threshold commits more wrong
tokens than it promises. The calibration error is the root mean square distance from the diagonal, without its
small-sample bias (arXiv 1909.10155). The threshold is the least confidence at which nine of ten are right, chosen on
the even questions and verified on the odd ones. Intervals are over questions.

Not in the paper. Adaptive strategies (threshold, factor; arXiv 2505.22618) are as good as the confidence is.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import UnsetType

from maskwise.probes.known_tokens import known_prompts, of_able_sources
from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import DECODING_COST, Points, Questions
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring import reliability
from maskwise.scoring.estimates import SHARE, Estimate
from maskwise.scoring.reliability import WANTED, Predictions
from maskwise.tasks.datasets import is_checkable
from maskwise.tasks.prompts import Prompt

NAME = "confidence"
STRATEGIES = ("low-confidence", "random", "threshold")
COMMITS, MASKED = "commits", "masked positions"
PREFIX = {COMMITS: "", MASKED: "all_"}  # of the evidence
EVIDENCE = {"sure": list[float], "right": list[int], "all_sure": list[float], "all_right": list[int]}
TAU, HELD = f"{MASKED}: least confidence at which nine of ten are right", f"{MASKED}: right at or above it"


def ask(setup: Setup, questions: int = 32, rules: tuple[str, ...] = STRATEGIES) -> Iterator[Questions]:
    from maskwise.probes.answers.decoded import watch_commits

    for source, prompts in known_prompts(setup, NAME, questions).items():

        def prompt(point: int, _: Mapping[str, Any], prompts=prompts) -> Prompt:
            return prompts[point]

        def answer(point: int, prompts=prompts) -> str:
            return str(setup.asker.tokenizer.decode(prompts[point].right))

        points, passes = Points(source, range(len(prompts))), max((len(one.right) for one in prompts), default=1)
        for rule in rules:
            watch = partial(watch_commits, rule=rule, seed=setup.settings.seed)
            yield Questions(points, [{"rule": rule}], prompt, answer, watch, DECODING_COST, passes=passes)


def curves(table: Table) -> Iterator[tuple[dict[str, str], Predictions, Table]]:
    """Commits and masked positions of each strategy, in the order in which they were asked."""
    pooled = of_able_sources(table.dropna(subset=[*EVIDENCE]))  # 0.2 asked for more, without evidence
    for rule, own in pooled.groupby("rule", sort=False):
        for of, prefix in PREFIX.items():
            yield {"rule": str(rule), "of": of}, Predictions.of(own[f"{prefix}sure"], own[f"{prefix}right"]), own


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """How well each confidence is calibrated and ranks, and the threshold of the first strategy's masked positions."""
    found, drawn = [], [*curves(table)]
    for named, one, _ in drawn:
        what, n = f"{named['of']}, {named['rule']}", one.sequences
        found.append(Estimate(f"{what}: calibration error", *reliability.calibration_error(one), n, SHARE))
        found.append(Estimate(f"{what}: AUROC of confidence", *reliability.auroc(one), n, SHARE))
    return found + [estimate for _, one, own in drawn[1:2] for estimate in threshold(one, own)]


def threshold(found: Predictions, asked: Table) -> list[Estimate]:
    """The threshold to decode with: chosen on the even questions, verified on the odd ones."""
    even = asked.point.to_numpy() % 2 == 0
    chosen_on = even[found.sequence]
    tau = reliability.threshold(found.where(chosen_on))
    held = found.where(~chosen_on & (found.sure >= (2.0 if tau is None else tau))).share_right()
    why = "at no confidence are nine of ten right" if tau is None else ""
    few = "too few predictions are that confident" if held[0] is None else ""
    return [
        Estimate(TAU, tau, n=int(even.sum()), why=why),
        Estimate(HELD, *held, int((~even).sum()), SHARE, WANTED, "above", why=why or few),
    ]


def diagram(table: Table, others: Tables) -> Table:
    """A row for each tenth of the scale with enough predictions; n counts these."""
    import pandas as pd

    return pd.DataFrame(named | tenth for named, one, _ in curves(table) for tenth in reliability.reliability(one))


def advice(found: Sequence[Estimate]) -> str | None:
    """A threshold from all masked positions, because that strategy commits every one that is sure enough."""
    named = {one.name: one for one in found}
    if TAU not in named:
        return None
    tau, held = named[TAU], named[HELD]
    if tau.value is None:
        return f"commit one token per step: {tau.why}"
    if held.value is None or held.value < WANTED:
        return "ask more questions (--questions) before you use a threshold"
    if held.verdict != "holds":
        settings = f"'rule=low-confidence rule=threshold,tau={tau.value:g}'"
        return f"compare tau={tau.value:g} on your questions before you use it: maskwise advise --settings {settings}"
    return f"decode with --rule threshold --parameter tau={tau.value:g}"


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(diagram, "x", "Confidence", y="Share right", series="rule", panel="of", kind="diagonal")],
    condition={"rule": str},
    evidence={name: kind | UnsetType for name, kind in EVIDENCE.items()},
    needs=frozenset({"masks", "whole sequences"}),
    sizes={"quick": {"questions": 12, "rules": ("low-confidence", "random")}},
    takes=is_checkable,
    advice=advice,
)
