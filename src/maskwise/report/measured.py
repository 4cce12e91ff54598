"""A run with what it measures: its estimates by probe, its first screen, and its name among others."""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from maskwise.probes import PROBES, select_tasks
from maskwise.probes.probe import measured
from maskwise.probes.published import published
from maskwise.records.folder import RunOnDisk
from maskwise.records.sample import read_sample
from maskwise.report.screen import Screen
from maskwise.scoring.estimates import Estimate
from maskwise.support.errors import UserError

LONGEST_LABEL = 48  # characters


@dataclass(frozen=True, repr=False)
class MeasuredRun(RunOnDisk):
    """What is computed of a run stays with it."""

    @cached_property
    def measured(self) -> dict[str, list[Estimate]]:
        """The estimates of each probe, the first of them its finding."""
        with as_strangers_wrote_them([self]):
            return measured(PROBES, self.tables)

    @cached_property
    def screen(self) -> Screen:
        """The first screen: its rows, verdicts, flips and advice."""
        found = self.measured
        with as_strangers_wrote_them([self]):
            tables = select_tasks.with_room(self.tables)
            claims = {probe: own[0] for probe, own in found.items() if own and own[0].claim}
            stated = {(one.probe, one.measured.name): one for one in published(self.manifest, found)}
            sample = read_sample(self.folder, self.manifest)
            return Screen(labels_of([self])[0], self.manifest, tables, claims, sample, stated)


def screens_of(runs: Sequence[MeasuredRun]) -> list[Screen]:
    return [replace(run.screen, label=label) for run, label in zip(runs, labels_of(runs), strict=True)]


@contextmanager
def as_strangers_wrote_them(runs: Sequence[RunOnDisk]) -> Iterator[None]:
    """Turns errors from malformed answers into a UserError.

    The fields of each line are checked, but in an untrusted folder numbers may be too large to be drawn or summed, or
    all answers of a condition may be missing."""
    try:
        with np.errstate(over="raise"):
            yield
    except (LookupError, ValueError, ArithmeticError, StopIteration) as problem:
        reason = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise UserError(
            f"{', '.join(str(run.folder) for run in runs)}: the records do not hold what their probes measure "
            f"({reason}); if maskwise wrote them, this is a bug of ours: please report it"
        ) from problem


def labels_of(runs: Sequence[RunOnDisk]) -> list[str]:
    """The last part of each model's name (`GSAI-ML/LLaDA-8B-Base` is LLaDA-8B-Base), with more only where two agree."""
    models = [run.manifest.model for run in runs]
    names = [f"{model.name} (planted)" if model.planted else model.name for model in models]
    labels = list(map(last_part, names))
    labels = [own if labels.count(own) == 1 else name for own, name in zip(labels, names, strict=True)]
    folders = [run.folder.resolve().name for run in runs]
    labels = [own if labels.count(own) == 1 else f"{own} ({f})" for own, f in zip(labels, folders, strict=True)]
    return [own if labels.count(own) == 1 else f"{own} #{labels[: at + 1].count(own)}" for at, own in enumerate(labels)]


def last_part(name: str) -> str:
    """The last part of a path or a hub name; any other text on one line, shortened."""
    if re.fullmatch(r"[\w.:~ /\\+()-]+", name):
        name = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1] or name
    line = " ".join("".join(c if c.isprintable() else " " for c in name).split())
    return line if len(line) <= LONGEST_LABEL else line[: LONGEST_LABEL - 1] + "…"
