"""A whole diagnosis: settings and a model in, a run folder out."""

import hashlib
import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from msgspec import UNSET, structs

from maskwise.models.checkpoints.configuration import read_family
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.checkpoints.locations import locate_checkpoint, planted_in, tuned_from
from maskwise.models.model import Model
from maskwise.models.tokenizers.chat import FIXED_DATE, writes_date
from maskwise.probes import FEW_SHOT_PROBES, PROBES, record_fields, select_tasks
from maskwise.probes.probe import Probe
from maskwise.probes.questions import Questions, units_of_questions
from maskwise.probes.setup import Asker, Item, Settings, Setup, Unit
from maskwise.probes.text import load_text
from maskwise.records.folder import gather, read_run, start_run, write_manifest
from maskwise.records.manifest import FORMAT, Manifest, ModelDescription, RunSettings
from maskwise.records.record import Key
from maskwise.records.sample import SAMPLE, write_sample
from maskwise.runs.run_sample import take_sample
from maskwise.runs.runner import Crew, batch_budget, check_fit, join_crew, record_items
from maskwise.runs.settings import LONGEST_USUAL, check, fit_to_model, sized_to
from maskwise.runs.workload import Workload, in_words, workload_of
from maskwise.support.errors import UserError
from maskwise.support.files import make_folder, only_user_of
from maskwise.support.processes import one_line_if_left_alone
from maskwise.support.progress import LONG, Forecast, progress_bar
from maskwise.support.randomness import LAW
from maskwise.support.version import __version__
from maskwise.tasks.datasets import Dataset
from maskwise.tasks.prompts import check_offsets, filler_id
from maskwise.tasks.rules import TASKS, Task
from maskwise.tasks.words import Words, load_words

TOKENS_OF_AN_EXAMPLE = 4  # at least: three words and a letter


def diagnose(
    model: Model,
    settings: Settings,
    out: Path | None = None,
    words: Words | None = None,
    text: str | None = None,
    batch_tokens: int | None = None,
    data: Mapping[str, Dataset] | None = None,
    command: str | None = None,
    probes: Sequence[Probe] = PROBES,
    exact: bool = False,
    tasks: Sequence[Task] = TASKS,
    confirm: Callable[[str], bool] | None = None,
) -> Path:
    """Runs the probes, or what is missing of them, and returns the run folder.

    Problems of the settings and of the first prompts of each kind are raised before anything is written; a later prompt
    that is too long, when it is reached. `words` and `text` default to our own; the probes over data sets run on those
    in `data`. `command` is the command line that asks the same, for the manifest. `probes` and `tasks` are those that
    the settings can name.
    `exact`: one prompt per forward pass, whose shape then depends on that prompt alone, so that records are the same
    to the last byte for any number of processes and interruptions. `confirm`: asked where it will take over an hour.
    """
    planned = plan_run(model, settings, words, text, data, probes, tasks)
    if exact and batch_tokens is not None:
        raise UserError("--exact asks one prompt at a time: leave --batch-tokens out")
    manifest = new_manifest(planned.setup, command, exact)
    folder = out or Path("runs") / folder_name(manifest)
    budget = 1 if exact else batch_budget(model, batch_tokens)
    work = workload_of(planned.units, planned.firsts)
    run_units(model, planned.units, folder, manifest, budget, planned.probes, confirm, work)
    return folder


@dataclass(frozen=True)
class PlannedRun:
    """The questions of a run: the probes that apply to the model, their units, and the first items of each."""

    setup: Setup
    probes: list[Probe]
    units: list[Unit]
    firsts: list[list[Item]]


def plan_run(
    model: Model,
    settings: Settings,
    words: Words | None = None,
    text: str | None = None,
    data: Mapping[str, Dataset] | None = None,
    probes: Sequence[Probe] = PROBES,
    tasks: Sequence[Task] = TASKS,
) -> PlannedRun:
    """The questions of a run; refuses what its settings and the first prompts of each kind show cannot be asked."""
    check(settings, probes)
    if model.tokenizer is None:
        raise UserError(f"{model.name or 'the model'} has no tokenizer, and the questions are text: give one")
    refuse_unasked(data or {}, settings, probes)
    settings, notes = fit_to_model(settings, model.causal, probes, model.block)
    if model.weights is not None:
        notes += [f"the figures include what rounding to {model.weights} does: a run without --weights has none of it"]
    refuse_too_many_examples(model, settings)
    check_offsets(model.tokenizer)
    asker = Asker(model.tokenizer, model.mask_id, filler_id(model.tokenizer, settings.filler), settings.chat)
    words, text = load_words() if words is None else words, load_text() if text is None else text
    setup = Setup(model, asker, settings, words, text, data or {}, notes, tasks=tasks)
    asked = [probe for probe in probes if probe.name in settings.probes]
    if model.window < LONGEST_USUAL:
        setup = sized_to(setup, partial(_longest_prompt, asked))
    units = plan(setup, asked)
    if not units:
        raise UserError(f"nothing to ask: {'; '.join(setup.notes)}")
    shorter = "" if settings.preset == "quick" else "use --quick (shorter prompts) or "
    firsts = [list(unit.items(unit.points[:1], set())) for unit in units]
    for items in firsts:
        check_fit(model, items, shorter)
    return PlannedRun(setup, asked, units, firsts)


def _longest_prompt(asked: Sequence[Probe], setup: Setup) -> int:
    items = (item for unit in plan(setup, asked) for item in unit.items(unit.points[:1], set()))
    return max((item.prompt.start + len(item.prompt.ids) for item in items), default=0)


def refuse_too_many_examples(model: Model, settings: Settings) -> None:
    """Refuses too many examples early: drawing and tokenising them takes a minute."""
    count = settings.distractors + max(settings.relevant)
    asked = FEW_SHOT_PROBES & set(settings.probes)
    if asked and TOKENS_OF_AN_EXAMPLE * count > model.window:
        window = f"the context length of {model.name}, {model.window:,} tokens"
        raise UserError(f"{count:,} examples do not fit into {window}: lower --distractors or --relevant")


def refuse_inapplicable(model: str | Path | Model, settings: Settings) -> None:
    """Refuses settings no probe of which applies to the model, by its config.json, before weights are read."""
    if not isinstance(model, Model):
        family = read_family(locate_checkpoint(str(model))[0])
        # Which probes apply is the same in any block.
        fit_to_model(settings, family.causal, block=family.default_block)


def plan(setup: Setup, probes: Sequence[Probe]) -> list[Unit]:
    """What the run consists of. Probes that share a task's questions share units, so that equal prompts are asked
    once."""
    return units_of_questions(setup, questions_of(setup, probes))


def questions_of(setup: Setup, probes: Sequence[Probe]) -> Iterator[tuple[str, Questions]]:
    for probe in probes:
        yield from ((probe.name, one) for one in probe.ask(setup, **setup.settings.parameters[probe.name]))
    if select_tasks.NAME in setup.settings.probes:
        yield from ((select_tasks.NAME, one) for one in select_tasks.ask(setup))


def refuse_unasked(data: Mapping[str, Dataset], settings: Settings, probes: Sequence[Probe]) -> None:
    for name, found in data.items():
        takers = [probe.name for probe in probes if probe.takes(found)]
        if not set(takers) & set(settings.probes):
            add = f"add {' or '.join(takers)} with --probes, or use --full"
            raise UserError(f"no probe of this run asks about {name}: {add}")


def run_units(
    model: Model,
    units: Sequence[Unit],
    folder: Path,
    manifest: Manifest,
    budget: int,
    probes: Sequence[Probe],
    confirm: Callable[[str], bool] | None = None,
    work: Workload | None = None,
) -> None:
    """Asks what the folder does not hold yet. All processes of a torchrun call this together."""
    with one_line_if_left_alone(folder), ExitStack() as held:
        crew = join_crew()
        if crew.is_first:
            make_folder(folder)
            held.enter_context(only_user_of(folder))
            start_run(folder, manifest)
        crew.wait()

        done = read_run(folder, record_fields(probes)).answers.keys()
        crew.wait()  # before one of them writes
        try:
            ask_units(model, units, folder, crew, done, budget, confirm, work)
            crew.wait()
            if crew.is_first:
                gather(folder, manifest)
            crew.wait()
            if crew.is_first:
                if not (folder / SAMPLE).exists():
                    records = read_run(folder, record_fields(probes)).records
                    write_sample(folder, take_sample(model, units, records, probes))
                write_manifest(folder, structs.replace(manifest, complete=True))
        except KeyboardInterrupt:
            kept = f"the records so far are kept in {folder}, the same command goes on from there"
            raise KeyboardInterrupt(kept) from None


def ask_units(
    model: Model,
    units: Sequence[Unit],
    folder: Path,
    crew: Crew,
    done: set[Key],
    budget: int,
    confirm: Callable[[str], bool] | None = None,
    work: Workload | None = None,
) -> None:
    """work: how much it is; else counted from the first items of each unit."""
    work = work or workload_of(units)
    with progress_bar(silent=not crew.is_first) as bar:
        task = bar.add_task("Asking", total=sum(len(crew.share(unit.points)) * unit.conditions for unit in units))

        def say(line: str, seconds: float) -> None:
            if crew.is_first:
                bar.console.print(line)
            if seconds > LONG and confirm is not None and crew.size == 1:
                bar.stop()
                if not confirm(line):
                    raise KeyboardInterrupt
                bar.start()

        left = 1 - len(done) / max(1, work.prompts)
        forecast = Forecast(left * work.tokens / crew.size, f"{in_words(left * work.prompts, left * work.tokens)}", say)
        for unit, items in prepared(units, crew, done):

            def advance(asked: Sequence[Item], unit: Unit = unit) -> None:
                bar.advance(task, len(asked))
                forecast.advance(unit.passes * sum(len(item.prompt.ids) for item in asked))

            bar.advance(task, len(crew.share(unit.points)) * unit.conditions - len(items))
            check_fit(model, items)
            share = max(1, budget // unit.cost)
            record_items(model, items, folder, crew.rank, share, advance, unit.answer)


def prepared(units: Sequence[Unit], crew: Crew, done: set[Key]) -> Iterator[tuple[Unit, list[Item]]]:
    """Each unit with its unanswered items, made in a thread while the unit before is asked, so that no GPU waits."""

    def items_of(unit: Unit) -> list[Item]:
        return list(unit.items(crew.share(unit.points), done))

    with ThreadPoolExecutor(1) as thread:
        waiting = [thread.submit(items_of, unit) for unit in units[:1]]
        for number, unit in enumerate(units):
            items = waiting.pop().result()
            waiting += [thread.submit(items_of, following) for following in units[number + 1 : number + 2]]
            yield unit, items


def new_manifest(setup: Setup, command: str | None, exact: bool = False) -> Manifest:
    """The manifest of a run that has not begun. exact: its records are not mixed with those of batches."""
    model, settings = setup.model, setup.settings
    own = {name: settings.parameters[name] for name in settings.probes if name in settings.parameters}
    stored = asdict(settings) | {"parameters": own}
    return Manifest(
        format=FORMAT,
        model=described(model),
        settings=RunSettings(
            **json.loads(json.dumps(stored)),
            seeds=LAW,
            words=digest_of_words(setup.words),
            text=digest(setup.text),
            data={name: digest(repr(found)) for name, found in setup.data.items()} or None,
            date=str(FIXED_DATE.date()) if settings.chat and writes_date(model.tokenizer) else None,
            exact=exact or None,
        ),
        versions=versions_used(),
        command=command,
        complete=False,
        notes=setup.notes,
        not_visible=setup.not_visible or UNSET,
    )


def described(model: Model) -> ModelDescription:
    return ModelDescription(
        name=model.name,
        planted=planted_in(model.name),
        tuned=tuned_from(model.name),
        kind=model.kind,
        parameters=model.parameter_count,
        window=model.window,
        mask_id=model.mask_id,
        shift=model.shift,
        causal=model.causal,
        block=model.block,
        dtype=model.dtype_name,
        weights=model.weights,
        fingerprint=fingerprint(model),
    )


def versions_used() -> dict[str, str]:
    return {"maskwise": __version__, "python": platform.python_version()} | {
        name: version(name) for name in ("torch", "transformers")
    }


def folder_name(manifest: Manifest) -> str:
    """The model, the preset, and a few letters that differ when any setting or weight does."""
    model = manifest.model.name.rstrip("/\\").replace("\\", "/").rsplit("/", 1)[-1].replace(" ", "-") or "model"
    settings = {"model": manifest.model.to_dict(), "settings": manifest.settings.to_dict()}
    return f"{model}-{manifest.settings.preset}-{digest(json.dumps(settings))[:6]}"


def digest_of_words(words: Words) -> str:
    return digest(json.dumps(words))


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
