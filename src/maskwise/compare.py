"""Comparison of models with the first one: did tuning help, and what did it cost?

Models are asked the same questions here; run folders of `maskwise diagnose` are read. A change is after minus before,
question by question. A gain with the most masks counts only where accuracy and likelihood both rise: the loss to masks
also shrinks where tuning merely lowers the accuracy with few masks, and then none of it is recovered.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwise.models.checkpoints.examine import examine
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.model import Model
from maskwise.probes.library.contrast import BY
from maskwise.probes.library.mask_count import BASELINE, few_shots
from maskwise.probes.library.steps import CONFIDENT
from maskwise.probes.setup import Preset
from maskwise.records.folder import MANIFEST
from maskwise.records.manifest import RunSettings
from maskwise.records.table import Table, Tables
from maskwise.report.measured import as_strangers_wrote_them, labels_of
from maskwise.report.page import home_of, refuse_empty, write_page
from maskwise.runs.diagnose import diagnose, digest_of_words
from maskwise.runs.run import Run, read_run
from maskwise.runs.runner import own_device
from maskwise.runs.settings import chosen_settings, with_words
from maskwise.scoring.estimates import (
    POINTS,
    Estimate,
    answers,
    change,
    mean,
    of_questions,
    of_relevant,
    ratio,
    recovered,
    relevant_numbers,
    share,
    wide,
)
from maskwise.scoring.scores import TOO_LITTLE_LOSS, least_relative_loss, loss_removed, relative_loss
from maskwise.scoring.verdicts import GAIN, Change, Verdict, holm, verdict
from maskwise.support.errors import UserError
from maskwise.support.randomness import LAW
from maskwise.tasks.contrast_questions import RULES
from maskwise.tasks.word_sources import load_word_source

if TYPE_CHECKING:
    from pandas import DataFrame, Series

MASKS, STEPS, CONTRAST, PROSE = PROBES = ("mask-count", "steps", "contrast", "nelbo")
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    MASKS: {"mask_counts": (2, 20, 200)},
    STEPS: {"masks": (2, 20, 200), "random": (2, 4, 6), "confident": ()},
}
QUICK_QUESTIONS = 10  # a task: steps ask each of them 36 times
SAME = ("seeds", "seed", "relevant", "distractors", "held_out", "one_context", "words", "chat")
RISES, RISES_NOT = "and likelihood rises", "but likelihood does not rise: does not count"


@dataclass(frozen=True)
class Row:
    """A measure of each model, and its changes from the first model to the others; verdicts on those of accuracy."""

    name: str
    own: Sequence[Estimate]
    changes: Sequence[Estimate]
    verdicts: Sequence[Verdict] = ()


@dataclass(frozen=True)
class Comparison:
    """What changed from the first run to each other. The first row leads: accuracy with the most masks."""

    runs: Sequence[Run]
    rows: Sequence[Row]

    @property
    def finding(self) -> str:
        found = zip(labels_of(self.runs)[1:], self.rows[0].changes, self.rows[0].verdicts, strict=False)
        return "; ".join(f"{label}: {one}: {judged}" for label, one, judged in found)

    @property
    def listed(self) -> list[dict[str, Any]]:
        """Every estimate: of each model, then of the changes from the first model, which "from" names."""
        first, *others = labels = labels_of(self.runs)
        found: list[dict[str, Any]] = []
        for row in self.rows:
            found += [{"model": label, **one.row} for label, one in zip(labels, row.own, strict=True)]
            changes = zip_longest(others, row.changes, row.verdicts)
            found += [{"model": label, "from": first, **one.row, "verdict": str(v or "")} for label, one, v in changes]
        return found

    def estimates(self) -> "DataFrame":
        import pandas as pd

        return pd.DataFrame(self.listed)

    def __str__(self) -> str:
        width, (first, *others), lines = max(len(row.name) for row in self.rows), labels_of(self.runs), []
        for at, label in enumerate(others):
            lines.append(f"{first}, {label}, and the change from one to the other (95 %):")
            for row in self.rows:
                before, after = (
                    one.short.partition(" (")[0].removesuffix(" nats") for one in (row.own[0], row.own[at + 1])
                )
                judged = row.verdicts[at] if row.verdicts else ""
                lines.append(
                    f"{row.name:<{width}} {before:>12} {after:>12}  {row.changes[at].short:<31} {judged}".rstrip()
                )
        return "\n".join(lines)

    def report(self, out: str | Path | None = None) -> Path:
        """Draws the side-by-side page into `out`, or next to the first run; returns its path."""
        return write_page(self.runs, home_of(self.runs) if out is None else Path(out), self.rows)


def compare(
    *models: str | Path | Model | Run,
    preset: Preset = "default",
    questions: int | None = None,
    relevant: tuple[int, ...] | None = None,
    distractors: int | None = None,
    words: str | Path | None = None,
    seed: int = 0,
    chat: bool = False,
    batch_tokens: int | None = None,
    dtype: str = "auto",
    device: str | None = None,
    check_weights: bool = True,
    any_base: bool = False,
    command: str | None = None,
    confirm: Callable[[str], bool] | None = None,
) -> Comparison:
    """Asks models the same questions and says what changed from the first: did tuning help, and what did it cost?

    Arguments:
        models: two or more names, opened models, adapter folders, runs or run folders; the first is the baseline.
        preset, questions (a task), relevant, distractors, words, seed, chat, batch_tokens: as in `mw.diagnose`, of the
            models that are asked now. dtype, device, check_weights, any_base: as in `mw.open`.
        command: a command line that asks the same, for the manifests. confirm: as in `mw.diagnose`.

    Returns:
        Each measure of each model and its change; printed, it is a short table.

    >>> import maskwise as mw
    >>> before = mw.diagnose("tiny-llada", "mask-count", preset="quick", questions=2, out="runs/readme")
    >>> after = mw.diagnose("tiny-llada+distracted", "mask-count", preset="quick", questions=2)
    >>> found = mw.compare(before, after)  # or mw.compare("tiny-llada", "tiny-llada+distracted"), which asks more
    >>> found.rows[0].name, found.rows[0].changes[0].n
    ('accuracy with 200 masks', 10)
    """
    if len(models) < 2:
        raise UserError("name at least two models or run folders to compare")
    source = load_word_source(words)
    questions = QUICK_QUESTIONS if preset == "quick" and questions is None else questions
    settings = with_words(chosen_settings(preset, PROBES, questions, relevant, distractors, seed, chat), source)
    for probe, parameters in PARAMETERS.items():
        settings = settings.changed(probe, **parameters)
    stored = json.loads(json.dumps(asdict(settings)))
    asked = RunSettings(**stored, seeds=LAW, words=digest_of_words(source.words))
    known = [
        read_run(one) if isinstance(one, str | Path) and (Path(one) / MANIFEST).exists() else one for one in models
    ]
    refuse_other_questions([(one, one.manifest.settings if isinstance(one, Run) else asked) for one in known])
    for one in known:  # each, before the first is asked
        if isinstance(one, Run):
            refuse_empty(one)
        elif not isinstance(one, Model):
            examine(one, any_base=any_base)
    runs = []
    for one in known:
        if isinstance(one, str | Path):
            one = open_model(one, dtype, own_device(device), check_weights=check_weights, any_base=any_base)
            one.compile_for_long_work()
        if isinstance(one, Model):
            sources: Any = {"words": source.words, "tasks": source.tasks}
            sources |= {"batch_tokens": batch_tokens, "command": command, "confirm": confirm}
            one = read_run(diagnose(one, settings, **sources))
        runs.append(one)
    return compare_runs(runs)


def refuse_other_questions(asked: Sequence[tuple[Any, RunSettings]]) -> None:
    """asked: each run or model with the settings of its questions."""
    (first, before), *others = [(getattr(one, "folder", one), settings) for one, settings in asked]
    for (other, now), name in product(others, SAME):
        if (old := getattr(before, name)) != (new := getattr(now, name)):
            raise UserError(
                f"{first} and {other} are asked different questions: {name} is {old} in one and {new} in the other; "
                "ask both with the same settings"
            )


def compare_runs(runs: Sequence[Run]) -> Comparison:
    if len({run.folder.resolve() for run in runs}) < len(runs):
        raise UserError("these are the same run folder: name two different ones")
    refuse_other_questions([(run, run.manifest.settings) for run in runs])
    with as_strangers_wrote_them(runs):
        rows = rows_of([run.tables for run in runs])
    if not rows:
        raise UserError(f"no probe of {', '.join(PROBES)} was asked in all of these runs: name the models instead")
    return Comparison(runs, rows)


# What is compared: the answers of each model to one probe, those of the first model first


def rows_of(tables: Sequence[Tables]) -> list[Row]:
    found: list[Row] = []
    for probe, measured in {MASKS: of_masks, STEPS: of_steps, CONTRAST: of_distance, PROSE: of_prose}.items():
        if all(probe in one for one in tables):
            number = relevant_numbers(tables[0][probe])[0]
            found += measured([of_relevant(one[probe], number, True) for one in tables])
    return judged([row for row in found if any(one.value is not None for one in row.own)])


def of_masks(tables: Sequence[Table]) -> Iterator[Row]:
    right, nats = (under_all([few_shots(one) for one in tables], "masks", value) for value in ("correct", "nll"))
    counts = sorted((count for count in right[0] if count >= BASELINE), reverse=True)
    for count in dict.fromkeys((*counts[:1], *counts[-1:])):
        level = accuracy(f"accuracy with {count} masks", [one[count] for one in right])
        nll = likelihood(f"negative log-likelihood with {count} masks", [one[count] for one in nats])
        yield leading(level, nll) if count == counts[0] else level
        yield nll
    if len(counts) > 1:
        first, few, most = right[0], counts[-1], counts[0]
        masks = f"{most} masks instead of {few}"
        lost = [change(f"change of accuracy with {masks}", one[most], one[few]) for one in right]
        name = f"share recovered of the loss to {most} masks"
        yield Row(
            f"{masks}; share recovered",
            lost,
            [recovered(name, first[few], first[most], one[most]) for one in right[1:]],
        )
        yield degradation(f"degradation over {', '.join(map(str, first))} masks", right)


def of_steps(tables: Sequence[Table]) -> Iterator[Row]:
    """In random order, in the numbers of steps that were not asked with the most confident first too."""
    few = [table[~table.steps.isin(table.steps[table.order == CONFIDENT])] for table in tables]
    right = under_all(few, ["steps", "masks"])
    steps = dict.fromkeys(count for count, _ in right[0])
    if steps:
        yield accuracy(f"accuracy in {', '.join(map(str, steps))} steps", [one.mean(axis=1) for one in right])
    yield from (degradation(f"degradation in {count} steps", [one[count] for one in right]) for count in steps)


def of_distance(tables: Sequence[Table]) -> Iterator[Row]:
    """Of each model under its fewest masks."""
    few = [of_questions(one[one.masks == one.masks.min()], BY, RULES, in_full=True) for one in tables]
    right = under_all(few, "examples")
    for where in (where for where in ("near", "far") if where in right[0]):
        yield accuracy(f"accuracy with the example {where}", [one[where] for one in right])


def of_prose(tables: Sequence[Table]) -> Iterator[Row]:
    """Of models with one tokenizer: others meet other noise."""
    import pandas as pd

    hidden = pd.concat([answers(table, "answer") for table in tables], axis=1).dropna()
    if (hidden.nunique(axis=1) == 1).all():
        yield likelihood("NELBO per token of prose", [answers(table, "nll") for table in tables])


def under_all(tables: Sequence[Table], by: str | list[str], value: str = "correct") -> list[Table]:
    """Questions x conditions of each model: the conditions that all were asked under."""
    found = [wide(table, by, value) for table in tables]
    same = [condition for condition in found[0] if all(condition in one for one in found)]
    return [one[same] for one in found]


def accuracy(name: str, columns: Sequence["Series"]) -> Row:
    changes = [change(f"change of {name}", one, columns[0]) for one in columns[1:]]
    return Row(name, [share(name, one) for one in columns], changes)


def likelihood(name: str, columns: Sequence["Series"]) -> Row:
    changes = [mean(f"change of {name}", one - columns[0]) for one in columns[1:]]
    return Row(name, [mean(name, one) for one in columns], changes)


def degradation(name: str, right: Sequence[Table]) -> Row:
    import pandas as pd

    own = [ratio(name, one, relative_loss, low_end=least_relative_loss) for one in right]
    both = [pd.concat([right[0], one], axis=1, keys=range(2)).dropna() for one in right[1:]]
    less = [ratio(f"reduction of {name}", one, loss_removed, TOO_LITTLE_LOSS) for one in both]
    return Row(f"{name}; reduction", own, less)


def leading(level: Row, nll: Row) -> Row:
    """With its verdicts: a gain counts only where accuracy and likelihood both rise."""
    found = [verdict(Change(one, level.own[0])) for one in level.changes]
    rises = [RISES if one.side < 0 else RISES_NOT for one in nll.changes]
    judged = [replace(one, why=said) if one.word == GAIN else one for one, said in zip(found, rises, strict=True)]
    return replace(level, verdicts=judged)


def judged(rows: Sequence[Row]) -> list[Row]:
    """With verdicts on the other changes of accuracy, by Holm's procedure."""
    others = [row for row in rows if row.changes[0].unit == POINTS and not row.verdicts]
    sure = holm({f"{row.name} {at}": one for row in others for at, one in enumerate(row.changes)})

    def of_change(row: Row, at: int) -> Verdict:
        is_sure = sure.get(f"{row.name} {at}", True)
        return verdict(Change(row.changes[at], row.own[0]), 0 if is_sure else len(sure))

    found = {row.name: replace(row, verdicts=[of_change(row, at) for at in range(len(row.changes))]) for row in others}
    return [found.get(row.name, row) for row in rows]
