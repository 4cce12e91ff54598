"""NELBO (ours): what does held-out prose cost the model?

    t _ t t _ _ t        t t t _ t t _        each passage, noised several times

The negative evidence lower bound, in nats per token: each passage is noised by the absorbing process, and the hidden
tokens are predicted. For an autoregressive model its own negative log-likelihood stands in the place of the bound.

Lower is better. Compare models with one tokenizer only: both then meet the same noise, and a change says whether tuning
cost language modelling.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Points, Questions
from maskwise.probes.setup import Setup
from maskwise.probes.text import TASK, passages_of
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import NATS, Estimate, answers, curve, mean
from maskwise.support.typed import Count
from maskwise.tasks.prompts import Prompt

NAME = "nelbo"


def ask(setup: Setup, draws: int = 8) -> Iterator[Questions]:
    from maskwise.probes.answers.passage_nelbo import first_hidden, noised, score

    passages, seed = passages_of(setup), setup.settings.seed
    tokenizer, mask_id = setup.asker.tokenizer, setup.asker.mask_id

    def prompt(point: int, _: Mapping[str, Any]) -> Prompt:
        """The passage whole; what is hidden of it follows from its ids."""
        ids = tuple(tokenizer(passages[point][0])["input_ids"])
        row = first_hidden(noised(ids, mask_id, draws, seed))
        return Prompt(ids, row, ids[row], 0)

    asked = [{"draws": 1 if mask_id is None else draws}]
    answering = partial(score, draws=draws, seed=seed)
    yield Questions(Points(TASK, range(len(passages))), asked, prompt, answering=answering, cost=draws, passes=draws)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    return [mean("NELBO per token of prose", answers(table, "nll"))]


def by_draws(table: Table, others: Tables) -> Table:
    return curve(table, ["draws"], {"nll": NATS})


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_draws, "draws", "Draws of noise a passage", "NELBO (nats per token)", kind="points")],
    condition={"draws": Count},
    needs=frozenset({"whole sequences"}),
    sizes={"quick": {"draws": 4}},
)
