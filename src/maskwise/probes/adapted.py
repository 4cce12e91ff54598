"""A probe of the new kind as runner, page and settings still read them; it goes when all probes are of the new kind."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

from maskwise.probes.one_probe import NEEDS, Probe
from maskwise.probes.probe import Probe as EarlierProbe
from maskwise.probes.probe import ProbeGroup, ScoreRule
from maskwise.records.record import Record
from maskwise.records.table import table_of
from maskwise.scoring.scores import NOT_MEASURED, Score, null_score

GROUPS: dict[str, ProbeGroup] = dict.fromkeys(("marginals", "total-correlation", "order", "coherence"), "coherence")
GROUPS |= dict.fromkeys(("attribution", "mechanism"), "evidence")

# {probe: {estimate: its score, unit and meaning}}
SCORES: dict[str, dict[str, tuple[str, Literal["share", "nats"], str]]] = {
    "location": {
        "locality": (
            *("locality", "share"),
            "share of its skill above guessing lost when the examples stand far from the question, which is last",
        ),
        "nats lost to distance": (
            *("distance_nats", "nats"),
            "rise of the right answer's negative log-likelihood when the examples stand far from the question",
        ),
    }
}


def score_of(probe: Probe, name: str, records: Sequence[Record]) -> Score:
    """The estimate of this name, as a score of records with one number of relevant examples."""
    found = probe.metrics(table_of(records, names_relevant=False), {}) if records else []
    one = next((one for one in found if one.name == name), None)
    if one is None or one.value is None:
        return null_score(one.why if one is not None and one.why else NOT_MEASURED)
    return Score(value=one.value, low=one.low, high=one.high, n=one.n)


def adapted(probe: Any) -> EarlierProbe:
    if not isinstance(probe, Probe):
        assert isinstance(probe, EarlierProbe)
        return probe
    return EarlierProbe(
        name=probe.name,
        group=GROUPS.get(probe.name, "context"),
        about=probe.paragraphs[0].partition(": ")[2] or probe.paragraphs[0],
        condition=probe.condition,
        evidence=probe.evidence,
        presets=probe.presets,
        gradients="gradients" in probe.needs,
        parameters=probe.parameters,
        quick=probe.sizes.get("quick", {}),
        paper=probe.sizes.get("paper", {}),
        not_causal=NEEDS["masks"] if "masks" in probe.needs else "",
        not_blocks=NEEDS["whole sequences"] if "whole sequences" in probe.needs else "",
        only_blocks="blocks" in probe.needs,
        takes=probe.takes,
        scored=lambda records: [],
        scores=tuple(
            ScoreRule(score, name.capitalize(), meaning, partial(score_of, probe, name), unit=unit)
            for name, (score, unit, meaning) in SCORES.get(probe.name, {}).items()
        ),
        columns={},
        measured=probe,
    )
