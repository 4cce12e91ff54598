"""Estimated cost of a job before its model is opened: answers, tokens and time."""

from dataclasses import dataclass
from time import perf_counter
from typing import cast

import torch

from maskwise.experiments.sweep.sweep_file import DiagnoseJob
from maskwise.models.checkpoints.examine import examine
from maskwise.models.checkpoints.locations import refuse_unknown_model
from maskwise.models.model import Model
from maskwise.runs.described_model import DescribedModel, describe_model
from maskwise.runs.diagnose import PlannedRun, plan_run
from maskwise.runs.run import QUESTION_ARGUMENTS, RunInputs, run_inputs

H200_FLOPS = 600e12  # of a forward pass of LLaDA-8B over long prompts in bfloat16: docs/benchmarks.md, row a
START_SECONDS = 15.0  # imports, opening a small model and drawing the report on two CPU cores


@dataclass(frozen=True)
class Workload:
    """answers: questions under all conditions. tokens: of their prompts, by the mean length of the first ones."""

    answers: int
    tokens: int
    parameters: int

    def seconds(self, flops: float) -> float:
        """2 x parameters x tokens: one forward pass over each prompt. Probes that decode in steps take longer."""
        return START_SECONDS + 2 * self.parameters * self.tokens / flops


class Checks:
    """Checks jobs before anything runs; models and data that several jobs share are read once."""

    def __init__(self) -> None:
        self.models: dict[tuple[str, str | None, bool], DescribedModel] = {}
        self.inputs: dict[str, RunInputs] = {}

    def workload(self, job: DiagnoseJob) -> Workload:
        """Refuses a job whose model, adapter, data or settings would be refused before the first question."""
        options = job.options
        asked = {name: value for name, value in options.given().items() if name in QUESTION_ARGUMENTS}
        if repr(asked) not in self.inputs:
            self.inputs[repr(asked)] = run_inputs(**asked)
        key = job.model, options.adapter, options.any_base
        if key not in self.models:
            refuse_unknown_model(job.model)
            examine(job.model, options.adapter, options.any_base)
            self.models[key] = describe_model(job.model)
        found, described = self.inputs[repr(asked)], self.models[key]
        words = found.source.words
        planned = plan_run(cast(Model, described), found.settings, words, found.text, found.data, tasks=found.tasks)
        return workload_of(planned, described.parameters)


def workload_of(planned: PlannedRun, parameters: int) -> Workload:
    answers = tokens = 0
    for unit in planned.units:
        lengths = [len(item.prompt.ids) for item in unit.items(unit.points[:1], set())]
        count = len(unit.points) * unit.conditions
        answers += count
        tokens += round(count * sum(lengths) / max(1, len(lengths)))
    return Workload(answers, tokens, parameters)


def cpu_flops(threads: int) -> float:
    """The speed of a float32 matrix product with so many threads of this machine, the best of three."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    a = torch.ones(1024, 1024)
    times = []
    for _ in range(4):
        started = perf_counter()
        a @ a
        times.append(perf_counter() - started)
    torch.set_num_threads(before)
    return 2 * 1024**3 / min(times[1:])
