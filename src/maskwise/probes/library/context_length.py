"""Context length: do masks cost more in a longer prompt?

    R d d R d ... Q ? _ _ _

The prompt grows by more and more distracting examples, once with two masks and once with masks worth a share of its
length (for an autoregressive model without masks). The vertical distance between the lines is the price of the masks at
that length.

The paper (arXiv 2511.21338, probe 5, format B): with masks worth 20 % of the length the gap grows with the context for
LLaDA; for Dream it does not.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import FEW_SHOT, FewShot, Questions, few_shot
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import POINTS, SHARE, Estimate, change, curve, mean, wide
from maskwise.support.typed import Count
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import Prompt, opened

NAME = "context-length"
FEW, NO_MASKS = "2 masks", "no masks"


def ask(setup: Setup, distractors: tuple[int, ...] = (0, 10, 20, 30), mask_share: float = 0.2) -> Iterator[Questions]:
    amounts: dict[str, int | float] = {FEW: 2, f"{mask_share:.0%} masks": mask_share}
    if setup.model.block is not None:
        setup.note(f"{NAME}: masks worth a share of the length are not visible to an answer in a block; 2 masks are")
        amounts = {FEW: 2}
    if setup.model.causal:
        amounts = {NO_MASKS: 0}
    asked = [{"distractors": n, "masks": name} for name in amounts for n in distractors]

    def prompt(source: FewShot, point: int, condition: Mapping[str, Any]) -> Prompt:
        encoded = source.encoded(point, distractors=condition["distractors"])
        return opened(encoded, setup.asker.mask_id, amounts[condition["masks"]])

    for source in few_shot(setup, [setup.settings.main_relevant]):
        yield source.under(asked, prompt)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    """The price of the masks with the most distractors, beyond that with the fewest: negative where it grows; then what
    the distractors cost."""
    right = wide(table, ["distractors", "masks"])
    few, most = table.distractors.min(), table.distractors.max()
    if right.empty or few == most:
        return []
    asked = [masks for masks in table.masks.unique() if {(few, masks), (most, masks)} <= set(right)]
    costs = [
        change(
            f"change of accuracy with {most} distractors instead of {few}, {masks}",
            right[most, masks],
            right[few, masks],
        )
        for masks in asked
    ]
    more = [masks for masks in asked if masks not in (FEW, NO_MASKS)]
    if not more or FEW not in asked:
        return costs
    price = {n: right[n, more[0]] - right[n, FEW] for n in (few, most)}
    name = f"price of the masks with {most} distractors less that with {few}"
    return [mean(name, price[most] - price[few], POINTS, (-2.0, 2.0), claim="below"), *costs]


def by_length(table: Table, others: Tables) -> Table:
    return curve(table, ["distractors", "masks"], {"correct": SHARE}, {"masks": FEW})


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_length, "distractors", "Distracting examples in the prompt", series="masks", guessing=CHANCE)],
    condition=FEW_SHOT | {"distractors": Count, "masks": str},
    presets=("full", "paper"),
    sizes={"quick": {"distractors": (0, 5, 15)}},
)
