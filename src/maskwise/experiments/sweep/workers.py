"""Workers of a sweep: processes of this machine or a Slurm cluster, through submitit."""

import os
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any, Literal

from maskwise.experiments.sweep.job_process import JobProcess
from maskwise.experiments.sweep.sweep_file import DiagnoseJob
from maskwise.support.errors import UserError
from maskwise.support.nearest import did_you_mean

ExecutorName = Literal["local", "slurm"]
EXECUTORS = ("local", "slurm")
ENDED = "its process was ended before the run was complete: give the same command again to resume it"


@dataclass(frozen=True)
class WorkerRequest:
    """The workers that the user asks for; None: as many as fit."""

    executor: str
    count: int | None
    gpus_per_job: int | None
    hours: float
    partition: str | None


@dataclass(frozen=True)
class Workers:
    """The number of concurrent jobs and their resources. gpus: those of this machine, by their CUDA names."""

    executor: ExecutorName
    count: int
    gpus_per_job: int
    hours: float
    gpus: tuple[str, ...] = ()
    slurm: Mapping[str, str | int | bool] = field(default_factory=dict)

    @property
    def threads(self) -> int | None:
        """CPU threads of a job, where jobs share the cores of this machine."""
        shared = self.executor == "local" and not self.gpus_per_job
        return max(1, (os.cpu_count() or 1) // self.count) if shared else None


def choose_workers(request: WorkerRequest, jobs: int, slurm: Mapping[str, str | int | bool]) -> Workers:
    """The workers for so many jobs; refuses what this machine cannot do, before any job is planned."""
    executor, workers, gpus_per_job, hours = request.executor, request.count, request.gpus_per_job, request.hours
    if find_spec("submitit") is None:
        raise UserError("submitit is not installed: pip install '.[sweep]' in a clone")
    if executor not in EXECUTORS:
        raise UserError(f"unknown --executor {executor!r}{did_you_mean(executor, EXECUTORS)}")
    for option, value, least in (("workers", workers, 1), ("gpus-per-job", gpus_per_job, 0), ("hours", hours, 1 / 60)):
        if value is not None and value < least:
            raise UserError(f"--{option} must be at least {least:.2g}, not {value:g}")
    if not isfinite(hours):
        raise UserError(f"--hours must be a finite number, not {hours:g}")
    if executor == "slurm":
        if shutil.which("sbatch") is None or shutil.which("srun") is None:
            raise UserError("there is no sbatch here: run it where Slurm takes jobs, or use --executor local")
        named = {**slurm, **({} if request.partition is None else {"partition": request.partition})}
        return Workers("slurm", workers or jobs, 1 if gpus_per_job is None else gpus_per_job, hours, slurm=named)
    if request.partition is not None or slurm:
        raise UserError("--partition and slurm settings go with --executor slurm: add it, or leave them out")
    gpus = _gpus_here()
    per_job = min(1, len(gpus)) if gpus_per_job is None else gpus_per_job
    most = len(gpus) // per_job if per_job else None
    if most is not None and (workers or 1) > most:
        needed = (workers or 1) * per_job
        raise UserError(f"{needed} GPUs are needed and {len(gpus)} are here: lower --workers or --gpus-per-job")
    return Workers("local", workers or most or 1, per_job, hours, gpus)


def _gpus_here() -> tuple[str, ...]:
    import torch

    listed = os.environ.get("CUDA_VISIBLE_DEVICES")
    names = list(map(str, range(torch.cuda.device_count()))) if listed is None else listed.split(",")
    return tuple(name.strip() for name in names[: torch.cuda.device_count()])


class Submitter:
    """Submits jobs to the workers, and says what became of them. Logs go to a folder of this sweep's own."""

    def __init__(self, workers: Workers, logs: Path) -> None:
        import submitit

        self.workers, self.logs = workers, logs
        self.free = list(range(workers.count))
        self.running: dict[str, tuple[Any, int]] = {}
        self.executor = submitit.AutoExecutor(folder=logs, cluster=workers.executor)
        self.executor.update_parameters(
            name="maskwise",
            timeout_min=round(60 * workers.hours),
            gpus_per_node=workers.gpus_per_job,
            slurm_additional_parameters=dict(workers.slurm),
        )

    def submit(self, job: DiagnoseJob) -> None:
        from submitit.core.utils import FailedJobError, FailedSubmissionError

        place, workers = self.free.pop(0), self.workers
        own = workers.gpus[place * workers.gpus_per_job :][: workers.gpus_per_job]
        process = JobProcess(job, own if workers.executor == "local" else None, workers.threads)
        # Processes share the questions, each with the whole model; one that is spread over the GPUs is one process.
        self.executor.update_parameters(
            tasks_per_node=1 if job.options.device_map is not None else max(1, workers.gpus_per_job)
        )
        try:
            with _stderr_to(self.logs / "submitit.log"):
                self.running[job.name] = self.executor.submit(process), place
        except (FailedJobError, FailedSubmissionError) as problem:
            reason = " ".join(str(problem).split())[-200:]
            raise UserError(f"Slurm refused the job {job.name} ({reason}): check --partition and slurm") from None

    def ended(self) -> list[tuple[str, str | None]]:
        """Jobs that have ended since, with what was wrong."""
        found = []
        for name, (job, place) in list(self.running.items()):
            if job.done():
                del self.running[name]
                self.free.append(place)
                found.append((name, self._problem(job)))
        return found

    def _problem(self, job: Any) -> str | None:
        from submitit.core.utils import UncompletedJobError

        tasks = [job.task(number) for number in range(job.num_tasks)]
        if self.workers.executor == "local" and not all(task.paths.result_pickle.exists() for task in tasks):
            return ENDED  # submitit would wait for a slow file system
        failure = job.exception()
        if isinstance(failure, UncompletedJobError):
            return ENDED
        if failure is not None:
            lines = [line for line in str(failure).splitlines() if line.strip() and not line.startswith("---")]
            return f"{lines[-2].strip() if len(lines) > 1 else lines[-1]} (log: {job.paths.stderr})"
        return next((problem for problem in job.results() if problem is not None), None)

    def cancel(self) -> None:
        """Ends the jobs that run; their records are kept."""
        for job, _ in self.running.values():
            job.cancel(check=False)
        limit = time.monotonic() + 10
        while self.workers.executor == "local" and self.running and time.monotonic() < limit:
            self.running = {name: kept for name, kept in self.running.items() if not kept[0].done()}
            time.sleep(0.1)


@contextmanager
def _stderr_to(file: Path) -> Iterator[None]:
    """Processes started inside inherit it: the tracebacks of those that are cancelled do not fill the terminal."""
    kept = os.dup(2)
    with file.open("ab") as opened:
        os.dup2(opened.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
