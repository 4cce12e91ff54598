"""A probe of the new kind as runner, page and settings still read them; it goes when all probes are of the new kind."""

from typing import Any

from maskwise.probes.one_probe import NEEDS, Probe
from maskwise.probes.probe import Probe as EarlierProbe
from maskwise.probes.probe import ProbeGroup

GROUPS: dict[str, ProbeGroup] = dict.fromkeys(("marginals", "total-correlation", "order", "coherence"), "coherence")
GROUPS |= dict.fromkeys(("attribution", "mechanism"), "evidence")


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
        columns={},
        measured=probe,
    )
