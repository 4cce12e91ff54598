"""A search over decoding settings from start to finish: its folder, its plan and cost, its result and its page."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any

from msgspec import structs
from rich.progress import TaskID

from maskwise.advice.decoders import described
from maskwise.advice.outcome import outcome
from maskwise.advice.plan import fit_plan, most_passes
from maskwise.advice.questions import EMBEDDED_SPACE, embedded_ends
from maskwise.advice.rewording import confirm_reworded
from maskwise.advice.search_folder import begin, gather_answers, read_manifest, read_plan
from maskwise.advice.search_request import SearchRequest
from maskwise.advice.search_space import SearchSpace, settings_in, within_blocks
from maskwise.advice.selection import FINALISTS, Plan
from maskwise.advice.setting_evaluator import SettingEvaluator, as_stored, every_setting, run_search
from maskwise.models.checkpoints.locations import planted_in
from maskwise.models.model import Model
from maskwise.records.folder import make_run_folder, write_manifest
from maskwise.report.pages.advice import RESULT, read_search, write_search
from maskwise.runs.diagnose import versions_used
from maskwise.runs.runner import join_crew
from maskwise.support.errors import UserError
from maskwise.support.files import only_user_of, replace_file, to_json
from maskwise.support.processes import one_line_if_left_alone
from maskwise.support.progress import progress_bar
from maskwise.support.terminal import counted
from maskwise.support.typed import json_object


def search_settings(
    request: SearchRequest,
    model: Model,
    judge: Model | None,
    name: str,
    adapter: str | None = None,
    out: str | Path | None = None,
    on_cost: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """`advise` with everything checked and opened. name, adapter: what the user calls the model."""
    request = _fitted(request, model, name)
    identity = {"model": described(model), **request.identity}
    folder = Path(out) if out is not None else Path("runs") / _folder_name(name, identity)
    with one_line_if_left_alone(folder), ExitStack() as stack:
        crew = join_crew()
        if crew.rank == 0:
            make_run_folder(folder)
            stack.enter_context(only_user_of(folder))
            begin(folder, identity, {"planted": planted_in(model.name), "versions": versions_used()})
        crew.wait()
        bar = stack.enter_context(progress_bar(silent=crew.rank > 0))
        tasks: list[TaskID] = []

        def advance(count: int) -> None:
            if tasks:
                bar.advance(tasks[-1], count)

        ask = SettingEvaluator(model, every_setting(request), request.questions, request, judge, folder, advance, crew)
        ask.read_answers_on_file()
        if crew.rank == 0:
            gather_answers(folder, ask.answers.values())
        plan, per_pass = _planned(folder, identity, request, ask)
        cost = _cost_sentence(request, plan, per_pass, ask)
        if on_cost is not None and crew.rank == 0:
            on_cost(cost)

        def on_phase(what: str, total: int) -> None:
            tasks.append(bar.add_task(what, total=total))

        found = run_search(request, ask, plan, on_phase)
        result = outcome(found, request, name, adapter, cost=cost, **_spent(ask), folder=str(folder))
        if request.rewordings:
            reworded = confirm_reworded(ask, found, request, result, on_phase)
            result = structs.replace(result, rewordings=reworded)
        for task in tasks:
            bar.update(task, completed=bar.tasks[task].total)
        crew.wait()
        if crew.rank == 0:
            gather_answers(folder, ask.answers.values())
            replace_file(folder / RESULT, [to_json(result, indent=2) + "\n"])
            write_manifest(folder, read_manifest(folder, identity) | {"complete": True})
            write_search(read_search(folder), folder)
        crew.wait()
    return json_object(result)


def _fitted(request: SearchRequest, model: Model, name: str) -> SearchRequest:
    """The request for this model: its blocks, and the tokens that end an embedded question's answer."""
    if model.mask_id is None:
        raise UserError(f"{name} is autoregressive: it has no canvas, block or unmasking strategy to choose")
    if model.tokenizer is None:
        raise UserError(f"{name} has no tokenizer, and the questions are text: give one")
    space = request.space
    if model.block is not None:
        space = within_blocks(space, model.block)
    if not model.family.canvas_cache:
        if space.caches not in (SearchSpace.caches, EMBEDDED_SPACE.caches, ("none",)):
            raise UserError(f"{name} takes no canvas cache: leave --caches out")
        space = replace(space, caches=("none",))
    if request.embedded:
        space = replace(space, end_ids=embedded_ends(model.tokenizer))
    return replace(request, space=space, settings=settings_in(space))


def _spent(ask: SettingEvaluator) -> dict[str, Any]:
    return {
        "passes": sum(answer.passes for answer in ask.answers.values()),
        "seconds": round(sum(answer.seconds for answer in ask.answers.values()), 1),
        "device": ask.decoder.device,
    }


def _planned(
    folder: Path, identity: dict[str, Any], request: SearchRequest, ask: SettingEvaluator
) -> tuple[Plan, float]:
    """The plan on file with the seconds per pass it rests on, or a new one for the speed that is measured now.

    A search that is taken up keeps its plan. The first process makes it, the others read it.
    """
    manifest = read_manifest(folder, identity)
    if manifest["plan"] is None and ask.crew.rank == 0:
        per_pass, budget = ask.seconds_per_pass(), request.budget
        shared = None if budget is None else budget * ask.crew.size
        plan = fit_plan(request.settings, request.space.variants, len(request.questions), per_pass, shared)
        write_manifest(folder, manifest | {"plan": as_stored(plan) | {"seconds_per_pass": per_pass}})
    ask.crew.wait()
    stored = read_plan(folder, len(request.questions))
    return Plan(tuple(stored.rounds), stored.held), stored.seconds_per_pass


def _cost_sentence(request: SearchRequest, plan: Plan, per_pass: float, ask: SettingEvaluator) -> str:
    processes = ask.crew.size
    most = most_passes(request.settings, request.space.variants, plan)
    passes = most.search + most.per_held * plan.held
    needed = passes * per_pass / processes
    limit = needed if request.budget is None else min(needed, request.budget)
    before = f"; {counted(len(ask.answers), 'answer')} on file" if ask.answers else ""
    shared = f" in {processes} processes" if processes > 1 else ""
    caches = ", with caches" if set(request.space.caches) != {"none"} else ""
    return (
        f"{len(request.settings)} settings on {plan.rounds[0]} questions, the better ones{caches} on up to "
        f"{plan.searched}, the last {min(FINALISTS, len(request.settings))} on up to {plan.held} questions held back: "
        f"at most {passes:,} forward passes of {per_pass:.2g} s (measured), about {limit / 60:.2g} minutes{shared}"
        f"{before}"
    )


def _folder_name(name: str, identity: dict[str, Any]) -> str:
    return f"advise-{Path(name).name}-{blake2b(to_json(identity).encode(), digest_size=4).hexdigest()}"
