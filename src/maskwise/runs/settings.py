"""The presets of a run, made from the tuple of probes, and the checks of what a user asks for."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from maskwise.probes import PROBES
from maskwise.probes.probe import NEEDS, Probe
from maskwise.probes.select_tasks import NAME as SELECT_TASKS
from maskwise.probes.setup import PAPER_RELEVANT, Preset, Settings, Setup
from maskwise.support.errors import UserError
from maskwise.support.nearest import did_you_mean
from maskwise.support.removed import removed
from maskwise.tasks.datasets import Dataset, is_checkable
from maskwise.tasks.rewordings import read_rewordings
from maskwise.tasks.rules import TASKS, Task
from maskwise.tasks.word_sources import WordSource

LONGEST_USUAL = 1024  # tokens: models with a shorter context length get fewer distractors
FEWER_DISTRACTORS = (30, 20, 12, 6)
PASSAGE_PROBES = {"natural-text", "nelbo"}
OWN_TASK = "own-task"

# quick: one difference known to 6 points, instead of four known to 20, within two minutes on two cores for two models.
QUICK_TASKS = ("animal-smallest", "verb-largest", "emotion-smallest", "object-largest", "colour-smallest")
QUICK_NUMBERS = {"questions": 60, "relevant": (1,), "distractors": 15, "passages": 20, "passage_words": 50}
FRESH = {"one_context": False}  # an interval over questions about few contexts would say too much
ALL_TASKS = tuple(task.name for task in TASKS)
NUMBERS: Mapping[Preset, Mapping[str, Any]] = {
    "quick": {"tasks": QUICK_TASKS, **QUICK_NUMBERS, **FRESH},
    "default": {"tasks": ALL_TASKS, "questions": 16, **FRESH},
    "full": {"tasks": ALL_TASKS, "relevant": (1, PAPER_RELEVANT)},
    # Piskorz et al. (arXiv 2511.21338): every test point of a task sees the same ten examples among forty distractors,
    # and examples and questions are drawn from the same words.
    "paper": {"tasks": ALL_TASKS, "questions": 100, "relevant": (PAPER_RELEVANT,), "held_out": 0.0},
}


def of_preset(name: Preset, probes: Sequence[Probe] = PROBES) -> Settings:
    """The settings of a preset: its probes, the shared numbers, and the parameters of every probe."""
    return Settings(
        preset=name,
        probes=tuple(probe.name for probe in probes if name in probe.presets),
        parameters={probe.name: {**probe.parameters, **probe.sizes.get(name, {})} for probe in probes},
        **NUMBERS[name],
    )


QUICK, DEFAULT, FULL, PAPER = (of_preset(name) for name in NUMBERS)


def with_examples(settings: Settings, relevant: tuple[int, ...] | None, distractors: int | None) -> Settings:
    """The settings with other numbers of examples. Places among the distractors keep their share of the way.

    A probe's `locations` and its own numbers of `distractors` count distractors, so they grow and shrink with them; a
    probe with a number of its own (`among`) takes the run's.
    """
    if relevant is not None:
        settings = replace(settings, relevant=tuple(dict.fromkeys(relevant)))
    if distractors is None:
        return settings
    for probe, parameters in settings.parameters.items():
        if "among" in parameters:
            settings = settings.changed(probe, among=None)
    if distractors == settings.distractors:
        return settings
    before = settings.distractors
    for probe, parameters in settings.parameters.items():
        for name in [n for n in ("locations", "distractors") if isinstance(parameters.get(n), tuple)]:
            scaled = dict.fromkeys(round(count * distractors / before) for count in parameters[name])
            settings = settings.changed(probe, **{name: tuple(scaled)})
    return replace(settings, distractors=distractors)


def with_tasks(settings: Settings, tasks: Sequence[str | Task] | None) -> tuple[Settings, tuple[Task, ...]]:
    """The settings with these tasks, by name or as values from outside the package; and all tasks that can be named."""
    if tasks is None:
        return settings, TASKS
    known = {task.name: task for task in TASKS}
    for task in tasks:
        if isinstance(task, Task) and known.setdefault(task.name, task) != task:
            raise UserError(f"there are two tasks {task.name}: give the rule another name")
        if isinstance(task, str) and task not in known:
            raise UserError(f"unknown task {task!r}{did_you_mean(task, known)}")
    if not tasks:
        raise UserError(f"no task named: choose among {', '.join(known)}")
    names = dict.fromkeys(task if isinstance(task, str) else task.name for task in tasks)
    return replace(settings, tasks=tuple(names)), tuple(known.values())


def with_templates(settings: Settings, file: Path) -> Settings:
    """The settings with a user's templates for the probes that reword questions, one of which must be asked."""
    takers = [name for name, own in settings.parameters.items() if "templates" in own]
    if not set(takers) & set(settings.probes):
        raise UserError(f"no probe of this run rewords questions: add {takers[0]} with --probes, or use --full")
    read = tuple((one.name, one.text) for one in read_rewordings(file))
    for name in takers:
        settings = settings.changed(name, templates=read)
    return settings


def with_questions(settings: Settings, count: int) -> Settings:
    """Probes with a number of questions of their own ask this many where they would ask fewer."""
    for probe in settings.probes:
        if settings.parameters.get(probe, {}).get("questions", count) < count:
            settings = settings.changed(probe, questions=count)
    return settings


def with_own_task(settings: Settings, data: Iterable[Dataset]) -> Settings:
    """The settings with own-task, where no probe of the run asks the questions given."""
    takers = {probe.name for probe in PROBES for found in data if is_checkable(found) and probe.takes(found)}
    unasked = takers and not takers & set(settings.probes)
    return replace(settings, probes=(*settings.probes, OWN_TASK)) if unasked else settings


def chosen_settings(
    preset: Preset = "default",
    probes: str | Sequence[str] | None = None,
    questions: int | None = None,
    relevant: tuple[int, ...] | None = None,
    distractors: int | None = None,
    seed: int = 0,
    chat: bool = False,
    select_tasks: bool = False,
    one_context: bool = False,
) -> Settings:
    """A preset with what a user changes in it, checked. Probes are listed, or named in one text with commas."""
    if preset not in NUMBERS:
        raise UserError(f"unknown preset {preset!r}{did_you_mean(preset, NUMBERS)}")
    if preset == "paper" and (relevant, distractors) != (None, None):
        raise UserError("--paper asks 10 relevant examples among 40: leave --relevant and --distractors out")
    if select_tasks and preset != "paper":
        raise UserError("--select-tasks belongs to the paper's protocol: add --paper, or leave --select-tasks out")
    wanted = of_preset(preset)
    wanted = replace(wanted, seed=seed, chat=chat, one_context=one_context or wanted.one_context)
    if probes is not None:
        listed = probes.split(",") if isinstance(probes, str) else probes
        named = [probe.strip() for probe in listed]
        if twice := [name for name in named if named.count(name) > 1]:
            raise UserError(f"the probe {twice[0]} is named twice: name each once")
        wanted = replace(wanted, probes=tuple(named))
    if questions is not None:
        wanted = with_questions(replace(wanted, questions=questions, passages=questions), questions)
        wanted = wanted.changed(OWN_TASK, questions=questions)
    wanted = with_examples(wanted, relevant, distractors)
    check(wanted)
    return replace(wanted, probes=(*wanted.probes, SELECT_TASKS)) if select_tasks else wanted


def with_words(settings: Settings, source: WordSource) -> Settings:
    """The settings with the tasks of the words that a user named; quick asks as many of them as it has tasks."""
    if source.tasks == TASKS:
        return settings
    names = tuple(task.name for task in source.tasks)
    return replace(settings, tasks=names[: len(settings.tasks)] if settings.preset == "quick" else names)


def fit_to_model(
    settings: Settings,
    causal: bool,
    probes: Sequence[Probe] = PROBES,
    block: int | None = None,
) -> tuple[Settings, list[str]]:
    """The settings without the probes that do not apply to the model, and a note on each, except on probes for block
    diffusion models that only the preset named."""
    lacking = [need for need, lacks in (("masks", causal), ("whole sequences", block is not None)) if lacks]
    why = {probe.name: NEEDS[need] for need in reversed(lacking) for probe in probes if need in probe.needs}
    left_out = [name for name in settings.probes if name in why]
    only_blocks = {probe.name for probe in probes if "blocks" in probe.needs and block is None}
    kept = tuple(name for name in settings.probes if name not in why.keys() | only_blocks)
    if not kept:
        others = [name for name in DEFAULT.probes if name not in why.keys() | only_blocks]
        remedy = f"; name another probe, such as {others[0]}" if others else "; diagnose another model"
        name = (left_out or settings.probes)[0]
        reason = f"does not apply, {why[name]}" if left_out else "is for block diffusion models"
        raise UserError(f"no probe to run: {name} {reason}{remedy}")
    if settings.probes not in [one.probes for one in (QUICK, DEFAULT, FULL, PAPER)]:
        why |= dict.fromkeys(only_blocks, NEEDS["blocks"])
    notes = [f"{name} was not run: {why[name]}" for name in settings.probes if name in why]
    return replace(settings, probes=kept), notes


def sized_to(setup: Setup, longest: Callable[[Setup], int]) -> Setup:
    """The setup with shorter passages or fewer examples, where prompts of the preset exceed the context length.

    longest: the tokens of its longest prompt. A number of distractors that the user named is kept.
    """
    usual = setup.settings.passage_words
    shorter = (usual // 2, usual // 4, usual // 8) if PASSAGE_PROBES & set(setup.settings.probes) else ()
    for words in (usual, *shorter):
        settings = replace(setup.settings, passage_words=words)
        found = _with_fewer_examples(replace(setup, settings=settings), longest)
        if found is not None:
            if words < usual:
                found.note(f"passages of {words} words in place of {usual}: so prompts fit into the context length")
            return found
    return setup


def _with_fewer_examples(setup: Setup, longest: Callable[[Setup], int]) -> Setup | None:
    """The setup with the most examples whose prompts fit, None where none do."""
    settings, window = setup.settings, setup.model.window
    usual = NUMBERS.get(settings.preset, {}).get("distractors", Settings.distractors)  # type: ignore[call-overload]
    if longest(replace(setup, notes=[])) <= window:
        return setup
    if settings.distractors != usual:
        return None
    for relevant, count in product(dict.fromkeys((settings.relevant, settings.relevant[:1])), FEWER_DISTRACTORS):
        smaller = replace(setup, settings=with_examples(settings, relevant, count))
        if count < usual and longest(replace(smaller, notes=[])) <= window:
            examples = f"{count} distractors in place of {usual}, {' and '.join(map(str, relevant))} relevant examples"
            setup.note(f"{examples}: so prompts fit into the context length, {window} tokens")
            return smaller
    return None


def check(settings: Settings, probes: Sequence[Probe] = PROBES) -> None:
    known = [probe.name for probe in probes]
    for name in settings.probes:
        if name not in known and (name, settings.preset) != (SELECT_TASKS, "paper"):
            apart = ": separate probes by commas" if set(name.strip()) & set(" ;") else did_you_mean(name, known)
            raise UserError(removed("probe", name.strip()) or f"unknown probe {name!r}{apart}")
    if not settings.probes:
        raise UserError(f"no probe named: choose among {', '.join(known)}")
    if not settings.relevant or min(settings.relevant) < 1:
        raise UserError("--relevant takes numbers of at least 1 separated by commas, such as 1,10")
    if settings.distractors < 1:
        raise UserError(f"--distractors must be at least 1, not {settings.distractors}")
    if min(settings.questions, settings.passages) < 1:
        raise UserError(f"--questions must be at least 1, not {min(settings.questions, settings.passages)}")
