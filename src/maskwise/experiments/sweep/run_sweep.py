"""Many models, each under one or several settings, as jobs on submitit; one table of all runs at the end."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import UNSET

from maskwise.experiments.sweep.job_board import JobBoard, JobProgress
from maskwise.experiments.sweep.sweep_file import DiagnoseJob, jobs_of, read_sweep, settings_of
from maskwise.experiments.sweep.workers import Submitter, WorkerRequest, Workers, choose_workers
from maskwise.experiments.sweep.workload import H200_FLOPS, Checks, cpu_flops
from maskwise.records.folder import MANIFEST
from maskwise.report.pages.registry import RunTable, run_table, write_tables
from maskwise.report.readings import Reading, read_all
from maskwise.scoring.experiment_results import SweepResult, SweptJob
from maskwise.support.errors import UserError
from maskwise.support.files import only_user_of, refuse_checkpoint_folder, writing

POLL_SECONDS = 0.5


def sweep(
    models: str | Path | Sequence[str],
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    out: str | Path = "runs/sweep",
    executor: str = "local",
    partition: str | None = None,
    gpus_per_job: int | None = None,
    workers: int | None = None,
    hours: float = 24.0,
    dry_run: bool = False,
    **options: Any,
) -> SweepResult:
    """Diagnoses many models as jobs on submitit (`pip install '.[sweep]'` in a clone). Called again, it resumes.

    Every model, adapter, data file and setting is checked before the first job starts. A job that fails is reported in
    its entry, and the others go on.

    Arguments:
        models: names as `mw.diagnose` takes them, or the path of a YAML file with models, settings and slurm.
        settings: arguments of `mw.diagnose` under a name each: every model is run under each of them.
        out: the folder of the sweep; each job has a run folder in it, named after the model and its settings.
        executor: local (processes of this machine) or slurm. partition: of Slurm.
        gpus_per_job: several share the questions of a job, each with the whole model; with device_map="auto" the model
            is spread over them. By default 1 where there are GPUs.
        workers: jobs at once; by default one for each `gpus_per_job` GPUs here, on a CPU 1, on Slurm all of them.
        hours: time limit of a job. One that exceeds it is started again, at most three times, and resumes.
        dry_run: check everything, and estimate answers, tokens and time; nothing runs.
        options: arguments of `mw.diagnose` for all jobs.

    Returns:
        The jobs with their states and scores, and the path of the table.

    >>> import maskwise as mw
    >>> plan = mw.sweep(["tiny-llada", "tiny-dream"], preset="quick", points=1, probes="mask-count", dry_run=True)
    >>> [(job.model, job.state, job.answers) for job in plan.jobs]
    [('tiny-llada', 'planned', 10), ('tiny-dream', 'planned', 10)]
    """
    request = WorkerRequest(executor, workers, gpus_per_job, hours, partition)
    return run_jobs(models, settings, options, request, Path(out), dry_run).result


@dataclass(frozen=True)
class Swept:
    """The result of a sweep, and its table as the terminal prints it."""

    result: SweepResult
    tables: list[RunTable]


def run_jobs(
    models: str | Path | Sequence[str],
    settings: Mapping[str, Mapping[str, Any]] | None,
    options: Mapping[str, Any],
    request: WorkerRequest,
    out: Path,
    dry_run: bool,
) -> Swept:
    """`sweep`, with the table that the terminal prints."""
    slurm: Mapping[str, str | int | bool] = {}
    if isinstance(models, str | Path):
        if not Path(models).exists():
            raise UserError(f"there is no file {models}: give the YAML file of a sweep, or a list of models")
        if settings is not None or options:
            raise UserError(f"the settings of a sweep from a file stand in it: write them into {models}")
        found = read_sweep(Path(models))
        models, named, slurm = found.models, settings_of(found.settings, {}), found.slurm
    else:
        named = settings_of(settings, options)
    jobs = jobs_of(models, named, out)
    chosen = choose_workers(request, len(jobs), slurm)
    refuse_checkpoint_folder(out)
    if (out / MANIFEST).exists():
        raise UserError(f"{out} is the folder of one run: choose another --out for the sweep")
    rows = _planned(jobs)
    if not dry_run and any(row.state == "planned" for row in rows):
        _run(rows, chosen, out)
    complete = [row.job for row in rows if row.state in ("finished", "skipped")]
    read = read_all([job.folder for job in complete]) if complete else []
    readings = {job.name: reading for job, reading in zip(complete, read, strict=True)}
    tables = _tables(rows, readings)
    page = write_tables(tables, out) if tables and not dry_run else None
    return Swept(_result(rows, chosen, out, readings, page), tables)


def _planned(jobs: Sequence[DiagnoseJob]) -> list[JobProgress]:
    """The jobs, checked; a problem with any of them is raised before the first one runs."""
    checks, problems = Checks(), []
    rows = [JobProgress(job, state="skipped" if job.is_finished else "planned") for job in jobs]
    for row in rows:
        try:
            row.workload = checks.workload(row.job) if row.state == "planned" else None
        except UserError as problem:
            setting = f" ({row.job.setting})" if row.job.setting else ""
            problems.append(f"{row.job.model}{setting}: {problem.as_typed}")
    if problems:
        listed = "; ".join(dict.fromkeys(problems))
        raise UserError(f"{len(problems)} of {len(jobs)} jobs cannot run, and none was started: {listed}")
    return rows


def _run(rows: Sequence[JobProgress], workers: Workers, out: Path) -> None:
    logs = out / "logs" / time.strftime("%Y-%m-%d-%H%M%S")
    with writing(f"to {out}", "choose another --out"):
        logs.mkdir(parents=True, exist_ok=True)
    by_name = {row.job.name: row for row in rows}
    waiting = [row for row in rows if row.state == "planned"]
    with only_user_of(out), JobBoard(rows) as board:
        submitter = Submitter(workers, logs)
        try:
            while waiting or submitter.running:
                while waiting and submitter.free:
                    row = waiting.pop(0)
                    submitter.submit(row.job)
                    row.begin()
                board.refresh()
                time.sleep(POLL_SECONDS)
                for name, wrong in submitter.ended():
                    by_name[name].end("finished" if wrong is None else "failed", wrong)
                    by_name[name].count_answers()
                    board.say_ended(by_name[name])
        except KeyboardInterrupt:
            submitter.cancel()
            raise KeyboardInterrupt(
                f"finished jobs and records are kept in {out}, the same command goes on from there"
            ) from None
        except BaseException:
            submitter.cancel()
            raise


def _tables(rows: Sequence[JobProgress], readings: Mapping[str, Reading]) -> list[RunTable]:
    """One table of the complete runs, with a note on each job that failed."""
    if not readings:
        return []
    table = run_table(list(readings.values()))
    failed = [f"{row.job.name} failed: {row.problem}" for row in rows if row.state == "failed"]
    return [replace(table, notes=(*table.notes, *failed))]


def _result(
    rows: Sequence[JobProgress], workers: Workers, out: Path, readings: Mapping[str, Reading], table: Path | None
) -> SweepResult:
    planned = [row.workload for row in rows if row.workload is not None]
    flops = 1.0
    if planned:
        flops = cpu_flops(workers.threads) if workers.threads else H200_FLOPS * max(1, workers.gpus_per_job)
    jobs = []
    for row in rows:
        work, read = row.workload, readings.get(row.job.name)
        swept = SweptJob(
            name=row.job.name,
            model=row.job.model,
            settings=row.job.setting,
            folder=str(row.job.folder),
            state=row.state,
            problem=UNSET if row.problem is None else row.problem,
            answers=0 if work is None else work.answers,
            tokens=0 if work is None else work.tokens,
            seconds=0.0 if work is None else round(work.seconds(flops), 1),
            scores={} if read is None else read.summary.scores,
        )
        jobs.append(swept)
    return SweepResult(
        out=str(out),
        table=None if table is None else str(table),
        executor=workers.executor,
        workers=workers.count,
        gpus_per_job=workers.gpus_per_job,
        seconds=round(sum(one.seconds(flops) for one in planned) / max(1, min(workers.count, len(planned))), 1),
        jobs=jobs,
    )
