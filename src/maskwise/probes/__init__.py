"""The probes: what a model is asked, one file each in library/, named as on the command line.

To add a probe, write its file and its line here. A file says what is asked (`ask`), then what is measured (`metrics`),
then how it is drawn. Nothing here imports torch, so that probes can be listed at once and a report be drawn without it;
tensor code is in answers/.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module

from maskwise.probes.probe import Probe
from maskwise.records.record import RecordFields

# In the order in which they are asked, listed and shown.
_FILES = (
    "location",
    "recall",
    "mask_count",
    "block_offset",
    "filler",
    "context_length",
    "contrast",
    "natural_text",
    "attribution",
    "mechanism",
    "steps",
    "mitigations",
    "datasets",
    "points",
    "own_task",
    "nelbo",
    "confidence",
    "trajectory",
    "marginals",
    "total_correlation",
    "order",
    "coherence",
    "templates",
)

PROBES: tuple[Probe, ...] = tuple(import_module(f"maskwise.probes.library.{name}").PROBE for name in _FILES)

FEW_SHOT_PROBES = frozenset(
    probe.name for probe in PROBES if isinstance(probe.condition, Mapping) and "relevant" in probe.condition
)


def record_fields(probes: Sequence[Probe] = PROBES) -> Mapping[str, RecordFields]:
    """The record fields of each probe, for `maskwise.records.folder.read_run`."""
    return {probe.name: probe.record_fields for probe in probes}
