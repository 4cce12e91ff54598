"""Comparison of models with the first one.

Each is named by a run folder of `maskwise diagnose`, a model, or the folder of an adapter that `maskwise tune` wrote
(alone, or as MODEL+FOLDER). Models are asked here, all the same questions. The result is one object (`--json`), a table
and a side-by-side page.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from msgspec import UNSET, structs

from maskwise.models.checkpoints.examine import examine
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.model import Model
from maskwise.probes import record_fields
from maskwise.probes.examples import Conditioned, main_records, numbers_in, with_number
from maskwise.probes.library import nelbo
from maskwise.probes.library import steps as steps_probe
from maskwise.probes.library.mask_count import degradation, mask_tax
from maskwise.probes.library.recall import LAST
from maskwise.probes.setup import Preset, Settings
from maskwise.records.folder import MANIFEST, RunOnDisk, read_run
from maskwise.records.groups import groups_of
from maskwise.records.record import Condition, Record
from maskwise.records.table import table_of
from maskwise.report.pages.page import home_of, write_page
from maskwise.report.readings import Reading, read_all, records_as_strangers_wrote_them, refuse_empty
from maskwise.report.words.comparison import rows_of
from maskwise.report.words.finding import finding
from maskwise.runs.diagnose import diagnose
from maskwise.runs.runner import own_device
from maskwise.runs.settings import check, chosen_settings
from maskwise.scoring.changes import accuracy_change, check_pairs, loss_recovered, mean_change, of_probe, reduction
from maskwise.scoring.experiment_results import Changes, ComparedModel, ComparisonResult
from maskwise.scoring.intervals import accuracy_interval
from maskwise.scoring.scores import Score, null_score
from maskwise.support.errors import UserError

PROBES = ("location", "mask-count", "steps", "recall", "nelbo")
SCORES = ("degradation", "mask_tax", "locality")
OTHER_MOST = "the most masks are not as many in both"
QUICK_POINTS, QUICK_MASKS = 7, (2, 20, 200)  # six probes share what the quick diagnosis spends on one


def compare_settings(preset: Settings, points: int | None, seed: int, chat: bool) -> Settings:
    wanted = replace(preset, probes=PROBES, seed=seed, chat=chat)
    steps = preset.parameters[steps_probe.NAME]
    few = tuple(count for count in steps["random"] if count not in steps["confident"])
    wanted = wanted.changed("location", places=("right",)).changed(steps_probe.NAME, random=few, confident=())
    if preset.preset == "quick":
        wanted = replace(wanted, points=QUICK_POINTS).changed("mask-count", mask_counts=QUICK_MASKS, among=None)
    return wanted if points is None else replace(wanted, points=points, passages=points)


def check_names(names: Sequence[str], any_base: bool, settings: Settings) -> None:
    """Refuses run folders without records or of other questions, and models that cannot be opened, before any model is
    asked, which may take hours. settings: what the models will be asked."""
    runs = [read_run(name, record_fields()) for name in names if (Path(name) / MANIFEST).exists()]
    for run in runs:
        refuse_empty(run)
        check_pairs(runs[0], run)
    for name in names:
        if not (Path(name) / MANIFEST).exists():
            examine(name, any_base=any_base)
            for run in runs[:1]:
                refuse_other_questions(run, name, settings)


def refuse_other_questions(run: RunOnDisk, name: str, settings: Settings) -> None:
    """A run on file and a model that is asked now: what `check_pairs` would refuse afterwards."""
    for field_name in ("seed", "relevant", "distractors", "held_out", "chat"):
        old, new = getattr(run.manifest.settings, field_name), getattr(settings, field_name)
        new = list(new) if isinstance(new, tuple) else new
        if old not in (new, None) and [old] != new:  # one number in runs of version 0.1
            raise UserError(
                f"{run.folder} and {name} would be asked different questions: {field_name} is {old} in the run and "
                f"{new} for the model; run maskwise diagnose {name} with the settings of that run, and compare the two "
                "folders"
            )


@dataclass(frozen=True)
class Comparison:
    """The changes from the first model to the others, measured on the same questions.

    models: each model's own numbers by its label. changes: for every model but the first, each change with its paired
    95 % interval. reduction: how much of the degradation over mask counts is gone in the second model, also where its
    accuracy with 2 masks fell; `recovered` counts the accuracy with the most masks alone.
    """

    models: dict[str, ComparedModel]
    changes: dict[str, Changes]
    reduction: Score
    baseline: str
    readings: list[Reading] = field(repr=False)

    @property
    def recovered(self) -> Score:
        """The share of the loss that the second model recovers with the most masks, with both ends."""
        return next(iter(self.changes.values())).mask_loss

    @property
    def sentence(self) -> str:
        """The finding: what the page begins with."""
        return finding(self.readings, compared=True).sentence

    def report(self, out: str | Path | None = None) -> Path:
        """Draws the side-by-side page into `out`, or next to the first run; returns its path."""
        rows = rows_of(self.models, self.changes)
        return write_page(self.readings, home_of(self.readings) if out is None else Path(out), rows)

    def result(self, page: Path) -> ComparisonResult:
        """What `maskwise compare --json` prints."""
        return ComparisonResult(
            finding=self.sentence,
            recovered=self.recovered,
            models=self.models,
            reduction=self.reduction,
            changes=self.changes,
            baseline=self.baseline,
            report=str(page),
        )


def compare(
    *models: str | Path | Model | RunOnDisk,
    preset: Preset = "default",
    points: int | None = None,
    seed: int = 0,
    chat: bool = False,
    batch_tokens: int | None = None,
    dtype: str = "auto",
    device: str | None = None,
    check_weights: bool = True,
    any_base: bool = False,
    command: str | None = None,
) -> Comparison:
    """Asks models the same questions and says what changed from the first: did tuning help, and what did it cost?

    Arguments:
        models: two or more names, opened models, adapter folders, runs or run folders; the first is the baseline.
        preset: quick or default, of the models that are asked now.
        points, seed, chat, batch_tokens: as in `mw.diagnose`. dtype, device, check_weights, any_base:
            as in `mw.open`.
        command: a command line that asks the same, for the manifests.

    Returns:
        The numbers of each model and the changes with their intervals, as `maskwise compare --json` prints them.

    >>> import maskwise as mw
    >>> before = mw.diagnose("tiny-llada", "mask-count", preset="quick", points=1, out="runs/readme")
    >>> after = mw.diagnose("tiny-llada+distracted", "mask-count", preset="quick", points=1)
    >>> found = mw.compare(before, after)  # or mw.compare("tiny-llada", "tiny-llada+distracted"), which asks more
    >>> found.baseline, sorted(found.changes)
    ('tiny-llada', ['tiny-llada+distracted (planted)'])
    """
    if len(models) < 2:
        raise UserError("name at least two models or run folders to compare")
    settings = compare_settings(chosen_settings(preset), points, seed, chat)
    check(settings)
    check_names([str(one) for one in models if not isinstance(one, Model | RunOnDisk)], any_base, settings)
    folders = []
    for one in models:
        if isinstance(one, RunOnDisk):
            folders.append(one.folder)
            continue
        if not isinstance(one, Model):
            if (Path(one) / MANIFEST).exists():
                folders.append(Path(one))
                continue
            one = open_model(one, dtype, own_device(device), check_weights=check_weights, any_base=any_base)
            one.compile_for_long_work()
        folders.append(diagnose(one, settings, batch_tokens=batch_tokens, command=command))
    result, readings = compare_runs(folders)
    return Comparison(result.models, result.changes, result.reduction, result.baseline, readings)


def compare_runs(folders: Sequence[Path]) -> tuple[ComparisonResult, list[Reading]]:
    """What `maskwise compare --json` prints, and the runs as the page shows them."""
    readings = read_all(folders)
    if len(readings) < 2:
        raise UserError("these are the same run folder: name two different ones")
    runs = [reading.run for reading in readings]
    for run in runs[1:]:
        check_pairs(runs[0], run)
    with records_as_strangers_wrote_them(folders):
        shared = shared_counts(readings)
        models = {reading.label: figures_of(reading, shared) for reading in readings}
        changes = {reading.label: changes_between(runs[0], reading.run) for reading in readings[1:]}
    second = changes[readings[1].label]
    return ComparisonResult(
        recovered=second.mask_loss,
        models=models,
        reduction=second.reduction,
        changes=changes,
        baseline=readings[0].label,
    ), readings


def shared_counts(readings: Sequence[Reading]) -> set[int] | None:
    """The mask counts that every model was asked with: a block diffusion model sees none beyond its block. None where
    they are too few to say anything over them."""
    asked = [{entry.masks for entry in reading.entries("mask-count")} for reading in readings]
    shared = set.intersection(*filter(None, asked)) if any(asked) else set()
    return shared if len(shared) > 1 else None


def with_counts(found: Sequence[Conditioned], counts: set[int] | None) -> Sequence[Conditioned]:
    """Records or entries with these mask counts; None: all."""
    if counts is None or all(one.masks in counts for one in found):
        return found
    return [one for one in found if one.masks in counts]


def figures_of(reading: Reading, shared: set[int] | None = None) -> ComparedModel:
    """A model's own numbers; null where they were not measured or do not apply.

    What is taken over mask counts is taken over the shared ones. Only the accuracy with the most masks is that with the
    model's own most.
    """
    counts = main_records(reading.entries("mask-count"))
    alike = with_counts(counts, shared)
    scores = reading.summary.scores
    if len(alike) < len(counts):
        records = with_counts(main_records(of_probe(reading.run, "mask-count")), shared)
        scores = scores | {"degradation": degradation(records), "mask_tax": mask_tax(records)}
    held_out = of_probe(reading.run, "nelbo")
    in_steps = in_few_steps(reading.run)
    by_count = by_steps(in_steps)
    steps = {count: degradation(records) for count, records in by_count.items()}
    recall = [float(one.correct) for one in of_probe(reading.run, "recall") if with_two_masks(one.condition)]
    two = next((e for e in counts if e.masks == 2), None)
    most = max(counts, key=lambda e: e.masks, default=None)
    at_two, at_most = (None if end is None else end.accuracy for end in (two, most))
    nll_two, nll_most = (None if end is None or end.nll is UNSET else end.nll for end in (two, most))
    return ComparedModel(
        skill=reading.summary.skill,
        degradation=scores["degradation"].value,
        mask_tax=scores["mask_tax"].value,
        locality=scores["locality"].value,
        accuracy_k2=at_two,
        accuracy_most_masks=at_most,
        mask_loss=None if at_two is None or at_most is None else at_two - at_most,
        nll_k2=nll_two,
        nll_most_masks=nll_most,
        recall=_mean(recall),
        most_masks=max((e.masks for e in counts), default=None),
        mask_counts=sorted(e.masks for e in alike),
        nelbo=nelbo.metrics(table_of(held_out, names_relevant=False), {})[0].value if held_out else None,
        confidence=_mean([e.confidence for e in alike if e.confidence is not UNSET]),
        entropy=_mean([e.entropy for e in alike if e.entropy is not UNSET]),
        few_steps=steps,
        few_steps_degradation=_mean([s.value for s in steps.values() if s.value is not None]),
        multi_step_accuracy=_mean([accuracy_interval(group)[0] for group in groups_of(in_steps)]),
        intervals={name: [scores[name].low, scores[name].high] for name in SCORES},
        out=str(reading.folder),
    )


def in_few_steps(run: RunOnDisk) -> list[Record]:
    return steps_probe.in_few_steps(of_probe(run, steps_probe.NAME))


def by_steps(records: Sequence[Record]) -> dict[str, list[Record]]:
    """The records of each number of steps, as those of a mask-count probe."""
    counts = sorted({record.condition["steps"] for record in records})
    return {
        str(steps): [structs.replace(r, condition={"masks": r.masks}) for r in records if r.condition["steps"] == steps]
        for steps in counts
    }


def changes_between(before: RunOnDisk, after: RunOnDisk) -> Changes:
    """The differences between two runs with paired 95 % intervals, over the mask counts that both have."""
    pairs = {probe: same_number(of_probe(before, probe), of_probe(after, probe)) for probe in PROBES}
    in_steps = same_number(in_few_steps(before), in_few_steps(after))
    then, now = (by_steps(side) for side in in_steps)
    own = pairs["mask-count"]
    most = {max((r.masks for r in side), default=0) for side in own}
    same_most = len(most) == 1
    few = [[r for r in side if r.masks == 2] for side in own]
    many = [[r for r in side if r.masks in most] for side in own]
    not_alike = null_score(OTHER_MOST)
    return Changes(
        reduction=reduction(*own),
        few_steps={steps: reduction(then[steps], now[steps]) for steps in then if steps in now},
        few_steps_reduction=reduction(*in_steps, group="steps"),
        mask_loss=loss_recovered(*own) if same_most else not_alike,
        recall=accuracy_change(*pairs["recall"], keep=with_two_masks),
        accuracy_k2=accuracy_change(*own, keep=lambda c: c["masks"] == 2),
        accuracy_most_masks=accuracy_change(*own, keep=lambda c: c["masks"] in most) if same_most else not_alike,
        nll_k2=mean_change(few[0], few[1], "nll"),
        nll_most_masks=mean_change(many[0], many[1], "nll") if same_most else not_alike,
        multi_step_accuracy=accuracy_change(*in_steps, keep=lambda c: True),
        nelbo=mean_change(*pairs["nelbo"], field="nll"),
        confidence=mean_change(*own, field="confidence"),
        entropy=mean_change(*own, field="entropy"),
    )


def with_two_masks(condition: Condition) -> bool:
    """The conditions of the recall probe that show the cost of a mitigation, at all distances."""
    return condition["question"] == LAST and condition["masks"] == 2 and condition["fillers"] == 0


def same_number(before: Sequence[Record], after: Sequence[Record]) -> tuple[Sequence[Record], Sequence[Record]]:
    """The records of the main number of relevant examples that both hold: an unfinished run may lack the other's."""
    common = [number for number in numbers_in(before) if number in numbers_in(after)]
    return (with_number(before, common[0]), with_number(after, common[0])) if common else ([], [])


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
