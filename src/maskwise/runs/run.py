"""`Run`, the result of `mw.diagnose` and `mw.read_run`: tables, estimates, figures and page."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from maskwise.probes import record_fields
from maskwise.probes.setup import Preset, Settings
from maskwise.probes.text import load_text
from maskwise.records.folder import read_run as read_stored_run
from maskwise.records.table import Table
from maskwise.report import chart
from maskwise.report.measured import MeasuredRun, as_strangers_wrote_them
from maskwise.report.page import first_screen, sections_of, write_page
from maskwise.report.screen import ON_SCREEN, finding_of, in_lines
from maskwise.report.screen_view import lead_figure
from maskwise.runs.settings import chosen_settings, with_own_task, with_tasks, with_templates, with_words
from maskwise.support.errors import UserError, UserNotice
from maskwise.support.files import refuse_checkpoint_folder
from maskwise.support.garbage_collection import collection_paused
from maskwise.support.nearest import did_you_mean
from maskwise.tasks.datasets import Dataset, read_datasets
from maskwise.tasks.rules import TASKS, Task
from maskwise.tasks.word_sources import WordSource, load_word_source

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from maskwise.models.model import Model

LEAD = "lead"  # the figure of the first screen


@dataclass(frozen=True)
class Sources:
    """The sources of a run's questions that are not the package's own or cannot be found by the model's name."""

    tokenizer: Any = None
    words: Any = None  # a `WordSource`
    text: str | None = None
    data: Mapping[str, Any] = field(default_factory=dict)
    tasks: Any = None  # the tasks that the settings can name


@dataclass(frozen=True, repr=False)
class Run(MeasuredRun):
    """A run of `maskwise diagnose`: the folder, the manifest, every answer, and what they show.

    print(run) is the first screen. folder (Path), manifest (`Manifest`), records (a sequence of `Record`) and tables (a
    pandas table for each probe) are what was stored.

    >>> import maskwise as mw
    >>> run = mw.diagnose("tiny-llada", preset="quick", probes="mask-count", questions=2, out="runs/readme")
    >>> run.table("mask-count").groupby("masks").correct.count().to_dict()
    {2: 10, 200: 10}
    """

    sources: Sources = field(default=Sources(), compare=False)

    def __repr__(self) -> str:
        state = "" if self.manifest.complete else ", unfinished"
        return f"Run({str(self.folder)!r}: {self.manifest.model.name}, {len(self.answers)} records{state})"

    def __str__(self) -> str:
        """The first screen, then what it has not: the finding of each probe, of one probe alone all its estimates."""
        others = {name: found for name, found in self.measured.items() if name not in ON_SCREEN and found}
        listed = [(probe, one) for probe, found in others.items() for one in (found if len(others) == 1 else found[:1])]
        said = [f"{one}; {self.screen.stated.get((probe, one.name), '')}".removesuffix("; ") for probe, one in listed]
        return "\n".join([*in_lines(self.screen), *said])

    @property
    def finding(self) -> str:
        """What the run found of the lead, in one line: the change with its interval, and the verdict."""
        return finding_of(self.screen)

    def table(self, probe: str) -> Table:
        """The answers of a probe as a pandas table, a row each; columns: records/table.py."""
        if probe not in self.tables:
            raise UserError(f"this run has no answers of {probe!r}{did_you_mean(probe, self.tables)}")
        return self.tables[probe]

    def estimates(self) -> "DataFrame":
        """What every probe measures, a row each: probe, name, value, low, high, n, unit and so on (`Estimate`)."""
        import pandas as pd

        return pd.DataFrame([{"probe": name} | one.row for name, found in self.measured.items() for one in found])

    @cached_property
    def _drawn(self) -> dict[str, Any]:
        """Each figure by the name that `plot` takes: the lead, then a probe's first by its name, others with their
        title."""
        lead = lead_figure([self.screen])
        found: dict[str, Any] = {} if lead is None else {LEAD: lead}
        with as_strangers_wrote_them([self]):
            for one in sections_of([self]):
                for figure, title, table in one.figures:
                    found[f"{one.probe.name}: {title}" if one.probe.name in found else one.probe.name] = figure, table
        return found

    @property
    def figures(self) -> list[str]:
        """The names that `plot` takes, in the order of the page."""
        return [*self._drawn]

    def plot(self, name: str = LEAD) -> "Figure":
        """A figure of the page, by default that of the first screen: a matplotlib figure.

        >>> import maskwise as mw
        >>> figure = mw.read_run("runs/readme").plot("mask-count")
        >>> figure.savefig("mask-count.png")
        """
        if name not in self._drawn:
            raise UserError(f"this run has no figure {name!r}{did_you_mean(name, self.figures)}")
        return chart.draw(*self._drawn[name])

    def report(self, out: str | Path | None = None) -> Path:
        """Draws the page into the run's folder, or into `out`; returns its path.

        >>> import maskwise as mw
        >>> mw.read_run("runs/readme").report().name
        'report.html'
        """
        return write_page([self], self.folder if out is None else Path(out))

    def _repr_html_(self) -> str:
        """The first screen of the page, for notebooks."""
        return first_screen([self])

    def prompt(self, row: Mapping[str, Any]) -> str:
        """The text that was asked for a row of a table, rebuilt from the seed, the task, the point and the condition.

        It is what the model was given, masks included. Nothing but the tokenizer is read for it.

        >>> import maskwise as mw
        >>> run = mw.read_run("runs/readme")
        >>> run.prompt(run.table("mask-count").iloc[0]).endswith("Answer:[" + 2 * "<|mask|>")
        True
        """
        from maskwise.runs.asked import asked_ids, tokenizer_of

        own = self.sources
        tokenizer = own.tokenizer or tokenizer_of(self.manifest.model.name)
        return tokenizer.decode(asked_ids(self.manifest, row, tokenizer, own.words, own.text, own.data, own.tasks))


def read_run(folder: str | Path) -> Run:
    """A run folder that `mw.diagnose` or `maskwise diagnose` wrote, finished or not. No model is opened.

    >>> import maskwise as mw
    >>> mw.read_run("runs/readme").manifest.model.name
    'tiny-llada'
    """
    stored = read_stored_run(folder, record_fields())
    return Run(**{each.name: getattr(stored, each.name) for each in fields(stored)})


@dataclass(frozen=True)
class RunInputs:
    """The settings and sources of a run's questions, read and checked before a model is opened."""

    settings: Settings
    source: WordSource
    text: str
    data: Mapping[str, Dataset]
    tasks: Sequence[Task]


QUESTION_ARGUMENTS = ("tasks", "words", "text", "data", "templates", *signature(chosen_settings).parameters)


def run_inputs(tasks: Any, words: Any, text: Any, data: Any, templates: Any, relevant: Any, **chosen: Any) -> RunInputs:
    """Checks the arguments of `diagnose` in QUESTION_ARGUMENTS and reads the files that they name."""
    numbers = (relevant,) if isinstance(relevant, int) else None if relevant is None else tuple(relevant)
    settings = chosen_settings(relevant=numbers, **chosen)
    settings, known_tasks = with_tasks(settings, tasks)
    if templates is not None:
        settings = with_templates(settings, Path(templates))
    source, prose = load_word_source(words), load_text(Path(text) if text else None)
    settings = with_words(settings, source)
    if source.tasks != TASKS:
        if tasks is not None:
            raise UserError("these words bring tasks of their own: leave tasks or words out")
        known_tasks = source.tasks
    if isinstance(data, Mapping):
        if odd := [name for name, path in data.items() if not isinstance(path, str | Path)]:
            raise UserError(f"data of {odd[0]} must be the path of a file or folder: write the rows to a .jsonl file")
        data = [f"{name}={path}" for name, path in data.items()]
    read = read_datasets([data] if isinstance(data, str) else data or [])
    return RunInputs(with_own_task(settings, read.values()), source, prose, read, known_tasks)


def diagnose(
    model: "str | Path | Model",
    probes: str | Sequence[str] | None = None,
    *,
    preset: Preset = "default",
    out: str | Path | None = None,
    questions: int | None = None,
    tasks: Sequence[str | Task] | None = None,
    relevant: int | Sequence[int] | None = None,
    distractors: int | None = None,
    seed: int = 0,
    chat: bool = False,
    select_tasks: bool = False,
    one_context: bool = False,
    words: str | Path | None = None,
    text: str | Path | None = None,
    data: Mapping[str, str | Path] | Sequence[str] | None = None,
    templates: str | Path | None = None,
    batch_tokens: int | None = None,
    exact: bool = False,
    dtype: str = "auto",
    device: str | None = None,
    adapter: str | Path | None = None,
    check_weights: bool = True,
    weights: str | None = None,
    any_base: bool = False,
    device_map: str | None = None,
    command: str | None = None,
    confirm: Callable[[str], bool] | None = None,
) -> Run:
    """Measures how a model uses its context and what appended masks do to it. Called again, it resumes.

    Arguments:
        model: a checkpoint folder, an embedded or a published name, or an opened model.
        probes: names, in a list or in one text with commas; else the preset's (`maskwise diagnose --help` lists them).
        preset: quick (a minute on a CPU), default (minutes), full (every probe, 100 questions a task) or paper.
        out: the run folder; else one under runs/ named after all settings.
        questions: of a task, and passages of text.
        tasks: of the few-shot probes: names such as "animal-smallest", or tasks of your own
            (`maskwise.tasks.rules.tasks_of`); else the preset's.
        relevant, distractors: examples of the few-shot probes; a list such as (1, 10) runs each in turn.
        seed: draws the examples and questions. chat: ask through the chat template.
        select_tasks: of the preset paper: separate questions decide on which tasks the scores rest.
        one_context: questions with ten relevant examples see the same ones in a task, as in the paper; else a context
            is drawn for each question.
        words: "paper", "unfamiliar-1", "unfamiliar-2" or a JSON file. text: a text file for the probes that read prose.
        data: a file of your own questions (prompt and answer) or a data set of the hub, for own-task, confidence and
            trajectory; paths of the paper's data sets by name, or texts NAME=PATH, for datasets.
        templates: a YAML file of templates, each with name and text, for the probe templates.
        batch_tokens: tokens per batch. exact: one prompt at a time, so that runs are equal to the byte.
        dtype, device, adapter, check_weights, weights, any_base, device_map: as in `mw.open`; of a model
            given by name.
        command: a command line that asks the same, for the manifest.
        confirm: called with a line where the run will take over an hour; False stops it.

    Returns:
        The run: its tables, estimates, finding, figures and page.

    >>> import maskwise as mw
    >>> run = mw.diagnose("tiny-llada", "mask-count", preset="quick", questions=2, out="runs/readme")
    >>> len(run.records), run.figures
    (20, ['lead', 'mask-count'])
    """
    given = locals()
    inputs = run_inputs(**{name: given[name] for name in QUESTION_ARGUMENTS})
    if out is not None:
        refuse_checkpoint_folder(Path(out))
    with collection_paused():
        from maskwise.models.checkpoints.opening import opened_model
        from maskwise.runs.diagnose import diagnose as ask_probes
        from maskwise.runs.diagnose import refuse_inapplicable
        from maskwise.runs.runner import own_device

    refuse_inapplicable(model, inputs.settings)
    place = own_device(device) if device_map is None else device
    choices: Any = {"device_map": device_map, "adapter": adapter, "check_weights": check_weights}
    choices |= {"weights": weights, "any_base": any_base}
    opened = opened_model(model, dtype=dtype, device=place, **choices)
    if opened.tokenizer is not None and opened.tokenizer.chat_template and not chat:
        warnings.warn(
            UserNotice(f"{opened.name} has a chat template: Instruct models are asked with --chat"), stacklevel=2
        )
    opened.compile_for_long_work()
    home, words_asked = None if out is None else Path(out), inputs.source.words
    texts = (words_asked, inputs.text, batch_tokens, inputs.data, command)
    folder = ask_probes(opened, inputs.settings, home, *texts, exact=exact, tasks=inputs.tasks, confirm=confirm)
    stored = read_stored_run(folder, record_fields())
    source, prose = inputs.source if words else None, inputs.text if text else None
    sources = Sources(opened.tokenizer, source, prose, inputs.data, inputs.tasks)
    return Run(**{each.name: getattr(stored, each.name) for each in fields(stored)}, sources=sources)
