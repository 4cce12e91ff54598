"""The process of a job, started by submitit: one diagnosis and its report."""

import os
from typing import Any

from maskwise.experiments.sweep.sweep_file import DiagnoseJob
from maskwise.support.errors import UserError


class JobProcess:
    """Called in the process of a job. submitit calls it again after a time limit or a preemption: the run resumes.

    gpus: those of this job, as CUDA_VISIBLE_DEVICES names them; None where the cluster assigns them.
    threads: of the CPU; None leaves them to torch.
    """

    def __init__(self, job: DiagnoseJob, gpus: tuple[str, ...] | None, threads: int | None) -> None:
        self.job, self.gpus, self.threads = job, gpus, threads

    def __call__(self) -> str | None:
        """Returns what was wrong, in one line; None where the run is complete."""
        if self.gpus is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self.gpus)  # before torch looks for them
        _share_questions()
        import torch

        from maskwise.runs.run import diagnose
        from maskwise.runs.runner import join_crew

        if self.threads is not None:
            torch.set_num_threads(self.threads)
        try:
            run = diagnose(self.job.model, **self.job.options.given(), out=self.job.folder)
            if join_crew().rank == 0:
                run.report()
        except UserError as problem:
            return problem.as_typed
        return None

    def checkpoint(self) -> Any:
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def _share_questions() -> None:
    """The processes of one job share its questions as those of torchrun do."""
    from submitit import JobEnvironment
    from submitit.helpers import TorchDistributedEnvironment

    if JobEnvironment().num_tasks > 1:
        TorchDistributedEnvironment().export(set_cuda_visible_devices=False, overwrite=True)
