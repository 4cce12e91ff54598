"""nelbo (ours): the negative evidence lower bound of held-out prose, in nats per token: does tuning spoil it?

Each passage is noised `draws` times by the absorbing process; for an autoregressive model its own negative
log-likelihood stands in the place of the bound. Condition: {"draws": 8}; the record's nll is the estimate.
"""

from collections.abc import Iterator
from functools import partial

from maskwise.probes.probe import Probe, Setup, Unit, units_for, with_nll
from maskwise.probes.section import Point, Section, in_nats
from maskwise.probes.text import TASK, passages_of
from maskwise.records.record import Condition
from maskwise.support.typed import Count
from maskwise.tasks.prompts import Prompt

NAME = "nelbo"


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.passage_nelbo import first_hidden, noised, score

    passages, draws, seed = passages_of(setup), setup.own["draws"], setup.settings.seed
    tokenizer, mask_id = setup.asker.tokenizer, setup.asker.mask_id

    def made(point: int, _: Condition) -> tuple[Prompt, str]:
        """The passage whole; what is hidden of it follows from its ids."""
        ids = tuple(tokenizer(passages[point][0])["input_ids"])
        row = first_hidden(noised(ids, mask_id, draws, seed))
        return Prompt(ids, row, ids[row], 0), tokenizer.decode([ids[row]])

    asked: list[Condition] = [{"draws": 1 if mask_id is None else draws}]
    yield from units_for(NAME, TASK, len(passages), asked, made, partial(score, draws=draws, seed=seed), draws)


PROBE = Probe(
    name=NAME,
    group="evidence",
    about="the bound on the likelihood of prose",
    condition={"draws": Count},
    units=units,
    not_blocks="the bound of a block diffusion model goes block by block: see maskwise score",
    parameters={"draws": 8},
    quick={"draws": 4},
    measures=with_nll,
    chance=None,
    sections=(
        Section(
            title="What does its language cost?",
            question="The negative evidence lower bound of held-out prose: in nats per token. For an autoregressive "
            "model its exact negative log-likelihood.",
            paper="Not in the paper; asked for by its reviewers: does tuning cost language modelling?",
            how_to_read="Lower is better. Compare models with one tokenizer only; both then meet the same noise.",
            x_label="",
            x_names=("held-out prose",),
            points=lambda shown: [Point("", 0, entry) for entry in shown.entries(NAME)],
            measures=(in_nats("nll", "NELBO (nats per token)"),),
            caption="Mean over passages; whisker: 95 % interval.",
            masks=lambda shown: "no masks" if shown.is_autoregressive else "any share of the tokens masked",
        ),
    ),
)
