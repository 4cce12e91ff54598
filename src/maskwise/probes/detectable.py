"""`--power`: what a run of this size can detect, from its settings alone, before anything is asked."""

from collections.abc import Sequence

from maskwise.probes.probe import Probe, Settings
from maskwise.probes.section import Entry
from maskwise.scoring.power import DetectableDifference, detectable


def power_of_settings(settings: Settings, probes: Sequence[Probe]) -> list[DetectableDifference]:
    """Of each probe of the run that compares accuracies and whose number of questions the settings fix."""
    asked = [probe for probe in probes if probe.name in settings.probes and not probe.only_blocks]
    found = [(probe.name, questions_of(probe, settings)) for probe in asked]
    return [detectable(name, count) for name, count in found if count]


def questions_of(probe: Probe, settings: Settings) -> int | None:
    """How many questions a paired difference rests on; None where no accuracies are compared, or data decide."""
    if probe.variants is not None:
        return len(settings.tasks) * settings.points
    return None if probe.questions is None else probe.questions(settings)


def power_of_entries(by_probe: dict[str, list[Entry]]) -> list[DetectableDifference]:
    """Of each probe that was asked, from the questions of its largest paired difference."""
    counts = {name: max((e.paired.n for e in entries if e.paired), default=0) for name, entries in by_probe.items()}
    return [detectable(name, count) for name, count in counts.items() if count]
