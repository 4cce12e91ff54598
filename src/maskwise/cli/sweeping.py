"""The command that runs many diagnoses as jobs."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskwise.cli.common import Dtype, Json, echo, print_json, print_table
from maskwise.cli.early import check_models
from maskwise.cli.measuring import Chat, Points, Quick, Seed
from maskwise.support.errors import UserError
from maskwise.support.garbage_collection import collection_paused
from maskwise.support.terminal import counted, one_line

if TYPE_CHECKING:
    from maskwise.report.pages.registry import RunTable
    from maskwise.scoring.experiment_results import SweepResult


def sweep(
    models: Annotated[list[str], typer.Argument(help="Models, or one YAML file with models, settings and slurm.")],
    probes: Annotated[str | None, typer.Option(help="Probes, separated by commas; else those of the preset.")] = None,
    quick: Quick = False,
    full: Annotated[bool, typer.Option("--full", help="Long run: every probe, up to 1000 questions per task.")] = False,
    points: Points = None,
    seed: Seed = 0,
    chat: Chat = False,
    data: Annotated[
        list[str] | None, typer.Option(help="NAME=PATH of a data set, such as hotpotqa, gsm8k, prompts; repeatable.")
    ] = None,
    dtype: Dtype = "auto",
    out: Annotated[Path, typer.Option(help="Folder of the sweep, with a run folder for each job.")] = Path(
        "runs/sweep"
    ),
    executor: Annotated[str, typer.Option(help="local (processes of this machine) or slurm.")] = "local",
    partition: Annotated[str | None, typer.Option(help="Slurm: the partition.")] = None,
    gpus_per_job: Annotated[
        int | None, typer.Option(help="GPUs that share the questions of a job; by default 1 if any.  [0 or more]")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Jobs at once; by default as many as the GPUs allow, on Slurm all.  [1 or more]")
    ] = None,
    hours: Annotated[float, typer.Option(help="Time limit of a job in hours; it restarts and resumes.")] = 24,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything, list the jobs with tokens and time; run nothing.")
    ] = False,
    json: Json = False,
) -> None:
    """Diagnose many models as jobs: processes of this machine or a Slurm cluster. Run again, it resumes.

    Finished jobs are skipped, a failed one does not stop the others, and one table shows all runs at the end. Needs
    submitit: pip install '.[sweep]' in a clone
    """
    if quick and full:
        raise UserError("--quick and --full exclude each other: name one")
    preset = "quick" if quick else "full" if full else "default"
    given: dict[str, Any] = {"probes": probes, "preset": preset, "points": points, "seed": seed, "chat": chat}
    given |= {"data": data, "dtype": dtype}
    from maskwise.experiments.sweep.sweep_file import DiagnoseOptions, read_sweep

    options = {name: value for name, value in given.items() if value != getattr(DiagnoseOptions(), name)}
    file = Path(models[0]) if models[0].endswith((".yaml", ".yml")) and len(models) == 1 else None
    check_models(models if file is None else read_sweep(file).models, None, dtype)
    with collection_paused():
        from maskwise.experiments.sweep.run_sweep import run_jobs
        from maskwise.experiments.sweep.workers import WorkerRequest
    request = WorkerRequest(executor, workers, gpus_per_job, hours, partition)
    swept = run_jobs(file or models, None, options, request, out, dry_run)
    if json:
        print_json(swept.result)
    elif dry_run:
        _print_plan(swept.result)
    else:
        _print_results(swept.result, swept.tables)
    if swept.result.failed:
        raise typer.Exit(1)


def _print_plan(found: "SweepResult") -> None:
    from rich.table import Table
    from rich.text import Text

    from maskwise.support.progress import in_minutes

    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("Job", "State", "Answers", "Tokens", "Time"):
        table.add_column(title, justify="left" if title in ("Job", "State") else "right", overflow="fold")
    planned = [job for job in found.jobs if job.state == "planned"]
    for job in found.jobs:
        cost = [f"{job.answers:,}", f"{job.tokens:,}", in_minutes(job.seconds)] if job in planned else ["", "", ""]
        table.add_row(Text(one_line(job.name)), job.state, *cost)
    print_table(table)
    speed = "the speed of a matrix product on this CPU" if not found.gpus_per_job else "the speed of an H200"
    echo(
        f"{counted(len(planned), 'job')}, {found.workers} at once: about {sum(job.tokens for job in planned):,} tokens "
        f"and {in_minutes(found.seconds)} at {speed}, with one forward pass for each prompt"
    )


def _print_results(found: "SweepResult", tables: "Sequence[RunTable]") -> None:
    from maskwise.report.pages.registry import print_tables

    print_tables(tables)
    counts = Counter(job.state for job in found.jobs)
    echo(f"{counted(len(found.jobs), 'job')}: {', '.join(f'{count} {state}' for state, count in counts.items())}")
    for job in found.failed:
        echo(f"maskwise: {one_line(job.name)} failed: {one_line(job.problem)}", err=True)
    if found.table is not None:
        echo(f"table: {one_line(found.table)}")
