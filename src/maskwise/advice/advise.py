"""`advise`: which canvas, block, strategy, number of steps and cache to decode with, from a user's own questions."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Any

from maskwise.advice.folder import begin, gather_answers, read_manifest, write_manifest
from maskwise.advice.outcome import outcome
from maskwise.advice.plan import fit_plan, most_passes
from maskwise.advice.quality import Judge
from maskwise.advice.questions import embedded_ends
from maskwise.advice.request import Request, prepare
from maskwise.advice.search import Asking, as_stored, described, device_name, every_setting, run_search
from maskwise.advice.selection import FINALISTS, Plan
from maskwise.models.checkpoints.locations import planted_in
from maskwise.models.checkpoints.opening import opened_model
from maskwise.models.model import Model
from maskwise.records.folder import make_run_folder
from maskwise.report.pages.advice import RESULT
from maskwise.runs.diagnose import versions_used
from maskwise.runs.runner import join_crew, own_device
from maskwise.support.errors import UserError
from maskwise.support.files import Records, only_user_of, replace_file, to_json
from maskwise.support.processes import one_line_if_left_alone
from maskwise.support.progress import progress_bar
from maskwise.support.terminal import counted


def advise(
    model: str | Path | Model,
    data: Records | None = None,
    *,
    exact: bool = False,
    pattern: str | None = None,
    function: str | Judge | None = None,
    judge: str | Path | Model | None = None,
    budget: float | None = None,
    max_new_tokens: int | None = None,
    canvases: str | Sequence[str] | None = None,
    blocks: str | Sequence[int] | None = None,
    rules: str | Sequence[str] | None = None,
    steps: str | Sequence[int] | None = None,
    caches: str | Sequence[str] | None = None,
    cost: str = "passes",
    out: str | Path | None = None,
    seed: int = 0,
    dtype: str = "auto",
    device: str | None = None,
    adapter: str | Path | None = None,
    check_weights: bool = True,
    on_cost: Callable[[str], None] | None = None,
) -> dict[str, Any]:
    """Finds the settings to decode a model with, by its answers to your questions. Called again, it resumes.

    Arguments:
        model: a name or an opened masked model.
        data: a .jsonl file or a list of dicts, each with prompt and answer; else the embedded questions.
        exact, pattern, function, judge: what a good answer is; one of them must be given with data. exact: the text is
            the answer. pattern: a regular expression whose first group finds the same in text and answer. function:
            f(text, answer) gives a number; a function or "module:name". judge: a model whose log-likelihood counts.
        budget: minutes of decoding; else all questions are asked (of the embedded ones as many as 8 minutes allow).
        max_new_tokens, canvases, blocks, rules, steps, caches: what is searched; rules as "threshold:tau=0.8", caches
            as "dual:refresh=8", lists or texts with commas.
        cost: what is to be small, passes (forward passes, then seconds) or seconds.
        out: the folder of the search; else one under runs/. seed: the order of the questions.
        dtype, device, adapter, check_weights: as in `mw.open`; of a model given by name. device and check_weights are
            those of the judge too.
        on_cost: called with a sentence that says what the search will cost, before it starts.

    Returns:
        What `maskwise advise --json` prints: "sentence", "winner", "all_equal", "advice" (the settings that are shown
        to meet a goal, with their quality, passes, and how to write them), "undecided" (the goals that none is shown to
        meet, with the number of questions that would decide), "confirmed", "dropped", "not_tried".

    >>> import maskwise as mw
    >>> kinds = [{"prompt": f"Word: {word}\\nKind:[", "answer": "animal"} for word in ["otter", "zebra"] * 16]
    >>> found = mw.advise("tiny-llada", kinds, pattern="animal", max_new_tokens=4, blocks=[2], steps=[2],
    ...                   canvases="fixed,growing", rules="low-confidence", caches="none", out="runs/advised")
    >>> found["questions"]["held_back"], found["advice"]  # too few questions to show that a faster one is as good
    (24, [])
    >>> [row["goal"] for row in found["undecided"]]
    ['best quality', 'fastest within 1 point', 'fastest within 3 points']
    """
    request = prepare(
        data, exact, pattern, function, judge, budget, cost, seed, max_new_tokens=max_new_tokens, canvases=canvases,
        blocks=blocks, rules=rules, steps=steps, caches=caches,
    )  # fmt: skip
    place = own_device(device)
    opened = opened_model(model, dtype, device if isinstance(model, Model) else place, adapter, check_weights)
    scoring = None
    if judge is not None:
        scoring = opened_model(judge, device=device if isinstance(judge, Model) else place, check_weights=check_weights)
    name = opened.name if isinstance(model, Model) else str(model)
    return advise_on(request, opened, scoring, name, None if adapter is None else str(adapter), out, on_cost)


def advise_on(
    request: Request, model: Model, judge: Model | None, name: str, adapter: str | None = None,
    out: str | Path | None = None, on_cost: Callable[[str], None] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """`advise` with everything checked and opened. name, adapter: what the user calls the model."""
    if model.mask_id is None:
        raise UserError(f"{name} is autoregressive: it has no canvas, block or unmasking strategy to choose")
    if model.tokenizer is None:
        raise UserError(f"{name} has no tokenizer, and the questions are text: give one")
    if model.block is not None:
        request = request.within_blocks(model.block)
    if request.embedded:
        request = request.ending_at(embedded_ends(model.tokenizer))
    identity = {"model": described(model), **request.identity}
    folder = Path("runs") / _folder_name(name, identity) if out is None else Path(out)
    with one_line_if_left_alone(folder), ExitStack() as stack:
        crew = join_crew()
        if crew.rank == 0:
            make_run_folder(folder)
            stack.enter_context(only_user_of(folder))
            begin(folder, identity, {"planted": planted_in(model.name), "versions": versions_used()})
        crew.wait()
        bar = stack.enter_context(progress_bar(silent=crew.rank > 0))
        tasks = []

        def on_phase(what: str, questions: int) -> None:
            tasks.append(bar.add_task(what, total=questions))

        ask = Asking(
            model, every_setting(request.space), request.questions, request.quality, judge, folder, request.seed,
            request.cost, lambda count: bar.advance(tasks[-1], count), crew,
        )  # fmt: skip
        ask.take_up()
        if crew.rank == 0:
            gather_answers(folder, ask.answers.values())
        plan, per_pass = _planned(folder, identity, request, ask)
        said = _cost_sentence(request, plan, per_pass, len(ask.answers), crew.size)
        if on_cost is not None and crew.rank == 0:
            on_cost(said)
        found = run_search(request.space, ask, plan, request.budget, on_phase)
        for task in tasks:
            bar.update(task, completed=bar.tasks[task].total)
        result = outcome(found, request, name, adapter) | {
            "cost": said,
            "passes": sum(answer.passes for answer in ask.answers.values()),
            "seconds": round(sum(answer.seconds for answer in ask.answers.values()), 1),
            "device": device_name(model),
            "folder": str(folder),
        }
        crew.wait()
        if crew.rank == 0:
            gather_answers(folder, ask.answers.values())
            replace_file(folder / RESULT, [to_json(result, indent=2) + "\n"])
            write_manifest(folder, read_manifest(folder, identity) | {"complete": True})
        crew.wait()
    return result


def _planned(folder: Path, identity: dict[str, Any], request: Request, ask: Asking) -> tuple[Plan, float]:
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
    stored = read_manifest(folder, identity)["plan"]
    return Plan(tuple(stored["rounds"]), stored["held"]), stored["seconds_per_pass"]


def _cost_sentence(request: Request, plan: Plan, per_pass: float, taken_up: int, processes: int) -> str:
    cost = most_passes(request.settings, request.space.variants, plan)
    passes = cost.total(plan)
    needed = passes * per_pass / processes
    limit = needed if request.budget is None else min(needed, request.budget)
    before = f"; {counted(taken_up, 'answer')} on file" if taken_up else ""
    shared = f" in {processes} processes" if processes > 1 else ""
    caches = ", with caches" if request.space.variants else ""
    return (
        f"{len(request.settings)} settings on {plan.rounds[0]} questions, the better ones{caches} on up to "
        f"{plan.searched}, the last {min(FINALISTS, len(request.settings))} on up to {plan.held} questions held back: "
        f"at most {passes:,} forward passes of {per_pass:.2g} s (measured), about {limit / 60:.2g} minutes{shared}"
        f"{before}"
    )


def _folder_name(name: str, identity: dict[str, Any]) -> str:
    return f"advise-{Path(name).name}-{blake2b(to_json(identity).encode(), digest_size=4).hexdigest()}"
