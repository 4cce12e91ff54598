"""A probe in a module of its own: the question is put in other words, one curve, one score."""

from collections.abc import Iterator, Sequence

from maskwise.probes.few_shot import episode_units
from maskwise.probes.section import Section, curve

from maskwise.probes.probe import Probe, ScoreRule, Setup, Unit, Variant, first_condition
from maskwise.records.record import ProbeFields, Record
from maskwise.scoring.scores import Score, score
from maskwise.support.typed import Count

NAME = "fewer-examples"


def units(setup: Setup) -> Iterator[Unit]:
    for shots in setup.own["shots"]:
        yield from episode_units(setup, [Variant(NAME, {"shots": shots}, open=True, masks=2)], shots, 0)


def accuracy(records: Sequence[Record]) -> Score:
    return score(sum(record.correct for record in records) / len(records), None, None)


class ConditionFields(ProbeFields, frozen=True, kw_only=True):
    shots: Count


PROBE = Probe(
    name=NAME,
    group="context",
    about="one or two relevant examples alone",
    condition=ConditionFields,
    presets=("quick", "default"),
    units=units,
    parameters={"shots": (1, 4)},
    quick={"shots": (1, 2)},
    baseline=first_condition,
    scores=(ScoreRule("mean_accuracy", "Mean accuracy", "over all numbers of examples", accuracy),),
    sections=(
        Section(
            title="How many examples does it take?",
            question="The relevant examples alone.",
            paper="",
            how_to_read="A rising line.",
            x_label="Relevant examples",
            at="{} examples",
            points=curve(NAME, "shots"),
        ),
    ),
)
