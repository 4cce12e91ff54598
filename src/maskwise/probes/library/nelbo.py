"""nelbo (ours): the negative evidence lower bound of held-out prose, in nats per token: does tuning spoil it?

Each passage is noised `draws` times by the absorbing process; for an autoregressive model its own negative
log-likelihood stands in the place of the bound. Condition: {"draws": 8}; the record's nll is the estimate.
"""

from collections.abc import Collection, Iterator, Sequence
from functools import partial

from maskwise.probes.probe import Asker, Item, Probe, Setup, Unit, units_of, with_nll
from maskwise.probes.section import Point, Section, Shown, in_nats
from maskwise.probes.text import TASK, Passage, passages_of
from maskwise.records.record import Condition, Key, still_to_ask
from maskwise.support.typed import Count
from maskwise.tasks.prompts import Prompt

NAME = "nelbo"


def units(setup: Setup) -> Iterator[Unit]:
    from maskwise.probes.answers.passage_nelbo import score

    passages, draws, seed = passages_of(setup), setup.own["draws"], setup.settings.seed
    make = partial(passage_items, setup.asker, passages, draws, seed)
    answer = partial(score, draws=draws, seed=seed)
    yield from units_of(len(passages), 1, make, answer, draws)


def passage_items(
    asker: Asker, passages: Sequence[Passage], draws: int, seed: int, points: Sequence[int], done: Collection[Key]
) -> Iterator[Item]:
    """The passages whole; what is hidden of them follows from their ids."""
    from maskwise.probes.answers.passage_nelbo import first_hidden, noised

    conditions: list[Condition] = [{"draws": 1 if asker.mask_id is None else draws}]
    for key, point, condition in still_to_ask(NAME, TASK, points, conditions, done):
        ids = tuple(asker.tokenizer(passages[point][0])["input_ids"])
        row = first_hidden(noised(ids, asker.mask_id, draws, seed))
        yield Item(key, condition, Prompt(ids, row, ids[row], 0), asker.tokenizer.decode([ids[row]]))


def _masks(shown: Shown) -> str:
    return "no masks" if shown.is_autoregressive else "any share of the tokens masked"


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
            question="The negative evidence lower bound of held-out prose: in nats per token. "
            "For an autoregressive model its exact negative log-likelihood.",
            paper="Not in the paper; asked for by its reviewers: does tuning cost language modelling?",
            how_to_read="Lower is better. Compare models with one tokenizer only; both then meet the same noise.",
            x_label="",
            at="{}",
            x_names=("held-out prose",),
            points=lambda shown: [Point("", 0, entry) for entry in shown.entries(NAME)],
            measures=(in_nats("nll", "NELBO (nats per token)"),),
            caption="Mean over passages; whisker: 95 % interval.",
            masks=_masks,
        ),
    ),
)
