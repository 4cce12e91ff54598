"""The probes: what a model is asked, one file each in library/, named as on the command line.

To add a probe, write its file and its line here. A file says what is asked (`units` or `variants`), then what is
measured, then how it is shown. Nothing here imports torch, so that probes can be listed at once and a report be drawn
without it; tensor code is in answers/.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module

from maskwise.probes.adapted import adapted
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
    "shots_masks",
    "datasets",
    "points",
    "generation_length",
    "likelihood_masks",
    "nelbo",
    "confidence",
    "trajectory",
    "marginals",
    "total_correlation",
    "order",
    "coherence",
    "templates",
)

PROBES: tuple[Probe, ...] = tuple(adapted(import_module(f"maskwise.probes.library.{name}").PROBE) for name in _FILES)

FEW_SHOT_PROBES = frozenset(
    probe.name for probe in PROBES if isinstance(probe.condition, Mapping) and "relevant" in probe.condition
)


def record_fields(probes: Sequence[Probe] = PROBES) -> Mapping[str, RecordFields]:
    """The record fields of each probe, for `maskwise.records.folder.read_run`."""
    return {probe.name: probe.record_fields for probe in probes}
