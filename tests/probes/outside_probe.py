"""Fewer examples: is one relevant example enough?

    R Q ? _
    R R Q ? _

The relevant examples stand alone, without distractors. A rising line means that more of them help.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from maskwise.probes.probe import Figure, Probe
from maskwise.probes.questions import Questions, few_shot
from maskwise.probes.setup import Setup
from maskwise.records.table import Table, Tables
from maskwise.scoring.estimates import SHARE, Estimate, change, curve, share, wide
from maskwise.support.typed import Count
from maskwise.tasks.episodes import CHANCE
from maskwise.tasks.prompts import Prompt, opened

NAME = "fewer-examples"


def ask(setup: Setup, shots: tuple[int, ...] = (1, 4)) -> Iterator[Questions]:
    for source in few_shot(setup, shots, distractors=0):

        def prompt(point: int, condition: Mapping[str, Any], source=source) -> Prompt:
            return opened(source.encoded(point), setup.asker.mask_id, 2)

        yield Questions(source, [{"shots": source.relevant}], prompt, source.answer)


def metrics(table: Table, others: Tables) -> list[Estimate]:
    right = wide(table, "shots")
    few, many = min(right), max(right)
    named = f"change of accuracy with {many} examples instead of {few}"
    return [change(named, right[many], right[few]), share(f"accuracy with {few}", right[few])]


def by_shots(table: Table, others: Tables) -> Table:
    return curve(table, ["shots"], {"correct": SHARE}, {"shots": table.shots.min()})


PROBE = Probe(
    NAME,
    __doc__,
    ask,
    metrics,
    figures=[Figure(by_shots, "shots", "Relevant examples", guessing=CHANCE)],
    condition={"shots": Count},
    presets=("quick", "default"),
    sizes={"quick": {"shots": (1, 2)}},
)
