"""Runs as the report reads them: manifest, summary, and the number of questions."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from maskwise.probes import FEW_SHOT_PROBES, PROBES, record_fields
from maskwise.probes.probe import Probe, ScoreRule
from maskwise.probes.section import Entry, Summary
from maskwise.probes.summary import scores_shown, summarise, unknown_probe
from maskwise.records.folder import RunOnDisk, read_run, tables_of
from maskwise.records.manifest import Manifest
from maskwise.records.sample import read_sample
from maskwise.records.table import Tables
from maskwise.report.figures.drawing import pretty
from maskwise.report.screen import CONTRAST, FILLER, MASKS, Screen
from maskwise.report.section import Section, sections
from maskwise.scoring.estimates import Estimate
from maskwise.scoring.scores import Score, null_score
from maskwise.support.errors import UserError
from maskwise.support.garbage_collection import collection_paused

LONGEST_LABEL = 48


@dataclass(frozen=True)
class Asked:
    """How much one probe asked: its tasks, and the distinct test points of the task with the fewest and the most."""

    tasks: tuple[str, ...]
    fewest: int
    most: int
    answers: int


@dataclass(frozen=True)
class Reading:
    """One run, ready to be shown. `label` is short and differs from that of every other run on the page.

    `probes` are those the page knows how to show, in its order.
    """

    label: str
    run: RunOnDisk
    summary: Summary
    asked: dict[str, Asked]
    probes: Sequence[Probe] = PROBES

    @property
    def folder(self) -> Path:
        return self.run.folder

    @property
    def manifest(self) -> Manifest:
        return self.run.manifest

    @property
    def is_autoregressive(self) -> bool:
        return self.manifest.model.is_autoregressive

    @cached_property
    def tables(self) -> Tables:
        return tables_of(self.run, FEW_SHOT_PROBES)

    @cached_property
    def sections(self) -> list[Section]:
        return sections_of([self])

    @cached_property
    def measured(self) -> dict[str, list[Estimate]]:
        """The estimates of each probe, the first of them its finding."""
        return {one.probe.name: one.estimates[self.label] for one in self.sections}

    @cached_property
    def screen(self) -> Screen:
        claims = {probe: found[0] for probe, found in self.measured.items() if found and found[0].claim}
        others = {probe: one for probe, one in claims.items() if probe not in (MASKS, FILLER, CONTRAST)}
        return Screen(self.label, self.manifest, self.tables, others, read_sample(self.folder, self.manifest))

    @property
    def rules(self) -> list[ScoreRule]:
        return scores_shown(self.summary, self.probes)

    def score(self, name: str) -> Score:
        """One without a value where it was not measured."""
        return self.summary.scores.get(name, null_score())

    def entries(self, probe: str) -> list[Entry]:
        return self.summary.probes.get(probe, [])

    def probe(self, name: str) -> Probe:
        return next((probe for probe in self.probes if probe.name == name), unknown_probe(name))


@contextmanager
def records_as_strangers_wrote_them(folders: Sequence[Path]) -> Iterator[None]:
    """Turns errors from malformed records into a UserError.

    The fields of each record are checked (`Probe.record_fields`), but in an untrusted folder numbers may be too large
    to be drawn or summed, or all records of a condition may be missing.
    """
    try:
        yield
    except (LookupError, ValueError, ArithmeticError, StopIteration) as problem:
        listed = ", ".join(map(str, folders))
        reason = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise UserError(
            f"{listed}: the records do not hold what their probes measure ({reason}); if maskwise wrote them, this is "
            "a bug of ours: please report it"
        ) from problem


def read_all(folders: Sequence[Path], probes: Sequence[Probe] = PROBES) -> list[Reading]:
    """Reads each folder once, in the order given."""
    if not folders:
        raise UserError("no run folder was named; give one or more folders written by maskwise diagnose")
    unique = list({folder.resolve(): folder for folder in folders}.values())
    return readings_of([read_run(folder, record_fields(probes)) for folder in unique], probes)


def readings_of(runs: Sequence[RunOnDisk], probes: Sequence[Probe] = PROBES) -> list[Reading]:
    """Readings of runs, with distinct labels."""
    for run in runs:
        refuse_empty(run)
    models = [run.manifest.model for run in runs]
    names = [f"{model.name} (planted)" if model.planted else model.name for model in models]
    labels = distinct_labels([(name, run.folder) for name, run in zip(names, runs, strict=True)])
    readings = []
    for label, run in zip(labels, runs, strict=True):
        with collection_paused(), records_as_strangers_wrote_them([run.folder]):
            readings.append(Reading(label, run, summarise(run, probes), count_asked(run), probes))
    return readings


def rules_by_title(readings: Sequence[Reading]) -> dict[str, list[ScoreRule | None]]:
    """The rule of every score that one of them shows, for each reading; None where that one does not show it.

    Titles tell numbers of relevant examples apart; a score's name does not: it depends on which numbers a run asked.
    """
    shown = [{rule.title: rule for rule in reading.rules} for reading in readings]
    return {title: [own.get(title) for own in shown] for rules in reversed(shown) for title in rules}


def refuse_empty(run: RunOnDisk) -> None:
    if run.manifest.settings.preset == "advise":
        raise UserError(f"{run.folder} holds the answers of maskwise advise: the same command prints what they say")
    if not run.records:
        raise UserError(f"{run.folder} holds no records yet; run maskwise diagnose --out {run.folder} first")


def count_asked(run: RunOnDisk) -> dict[str, Asked]:
    found = {}
    for probe, records in run.by_probe.items():
        points: dict[str, np.ndarray] = {}
        for group in records.groups:
            for task, rows in group.rows.items():
                own = group.points()[rows]
                points[task] = np.union1d(points[task], own) if task in points else np.unique(own)
        counts = [len(own) for own in points.values()]
        found[probe] = Asked(tuple(sorted(points)), min(counts), max(counts), len(records))
    return found


def distinct_labels(named: Sequence[tuple[str, Path]]) -> list[str]:
    """The last part of each name (`GSAI-ML/LLaDA-8B-Base` is LLaDA-8B-Base), with more of it only where two agree."""
    short = [_last_part(name) for name, _ in named]
    labels = [label if short.count(label) == 1 else name for label, (name, _) in zip(short, named, strict=True)]
    labels = [
        label if labels.count(label) == 1 else f"{label} ({folder.resolve().name})"
        for label, (_, folder) in zip(labels, named, strict=True)
    ]
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[: i + 1].count(label)}"
        for i, label in enumerate(labels)
    ]


def _last_part(name: str) -> str:
    """The last part of a path or a hub name; any other text on one line, shortened."""
    if re.fullmatch(r"[\w.:~ /\\+()-]+", name):
        name = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or name
    return pretty(name, LONGEST_LABEL)


def differing_settings(readings: Sequence[Reading]) -> list[str]:
    """Names of the settings that are not the same in all runs: what makes two curves not quite comparable.

    Not the list of probes: one that a run left out draws no curve.
    """
    first, *others = [reading.manifest.settings for reading in readings]
    names = sorted({name for settings in (first, *others) for name in settings} - {"probes"})
    return [name for name in names if any(getattr(one, name) != getattr(first, name) for one in others)]


def sections_of(readings: Sequence[Reading]) -> list[Section]:
    """Of the probes of the new kind."""
    measured = [probe.measured for probe in readings[0].probes if probe.measured is not None]
    return sections(measured, {reading.label: reading.tables for reading in readings})
