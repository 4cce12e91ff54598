"""The size of a run before its model is asked."""

from dataclasses import dataclass

from maskwise.runs.diagnose import PlannedRun


@dataclass(frozen=True)
class Workload:
    """prompts: questions under all conditions. tokens: of these prompts, by the mean length of each unit's first."""

    prompts: int
    tokens: int


def workload_of(planned: PlannedRun) -> Workload:
    prompts = tokens = 0
    for unit in planned.units:
        lengths = [len(item.prompt.ids) for item in unit.items(unit.points[:1], set())]
        count = len(unit.points) * unit.conditions
        prompts += count
        tokens += round(count * sum(lengths) / max(1, len(lengths)))
    return Workload(prompts, tokens)
