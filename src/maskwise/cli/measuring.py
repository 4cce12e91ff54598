"""Commands that measure: one model, several compared, the toy experiment."""

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from maskwise.cli import common
from maskwise.cli.common import LARGEST_SEED, echo, for_results, print_json, whole_numbers
from maskwise.cli.early import check_models, refuse_without_models
from maskwise.cli.hints import Command
from maskwise.support.errors import UserError
from maskwise.support.files import make_folder
from maskwise.support.garbage_collection import collection_paused
from maskwise.support.terminal import one_line

if TYPE_CHECKING:
    from maskwise.runs.run import Run

Quick = Annotated[bool, typer.Option("--quick", help="Short run: few questions and short prompts, minutes on a CPU.")]
Questions = Annotated[int | None, typer.Option(help="Questions of a task, and passages of text.  [1 or more]")]
Relevant = Annotated[
    str | None, typer.Option(help="Relevant examples in the prompt; a list such as 1,10 runs each in turn.")
]
Distractors = Annotated[
    int | None, typer.Option(help="Distractors in the prompt: examples of another task.  [1 or more]")
]
Words = Annotated[
    str | None, typer.Option(help="paper, unfamiliar-1, unfamiliar-2, or a JSON file of word sets or word lists.")
]
Seed = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the examples and questions.")]
Chat = Annotated[bool, typer.Option("--chat", help="Use the chat template (for Instruct models).")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Also print every estimate and the table of every figure.")]
Yes = Annotated[bool, typer.Option("--yes", help="Go on without asking where a run takes over an hour.")]
BatchTokens = Annotated[int | None, typer.Option(help="Tokens per batch; halved when memory runs out.  [1 or more]")]


class ListsProbes(Command):
    """Its help ends with the probes, which are looked up only when it is shown."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from maskwise.probes import PROBES

        with formatter.section("Probes (* with --quick, + by default; --full runs all)"):
            named = [(probe, "*" * ("quick" in probe.presets) + "+" * ("default" in probe.presets)) for probe in PROBES]
            formatter.write_dl([(probe.name + marks, probe.about) for probe, marks in named])


def command_line() -> str:
    return shlex.join(["maskwise", *sys.argv[1:]])


def diagnose(
    models: Annotated[
        list[str] | None, typer.Argument(help="Checkpoint folders, embedded or published names; tiny-llada if none.")
    ] = None,
    probes: Annotated[str | None, typer.Option(help="Probes, separated by commas; else those of the preset.")] = None,
    quick: Quick = False,
    full: Annotated[bool, typer.Option("--full", help="Long run: every probe, 100 questions of a task.")] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="Only the probes and settings of arXiv 2511.21338, with its values.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder; by default one under runs/.", callback=for_results),
    ] = None,
    questions: Questions = None,
    relevant: Relevant = None,
    distractors: Distractors = None,
    seed: Seed = 0,
    chat: Chat = False,
    select_tasks: Annotated[
        bool, typer.Option("--select-tasks", help="With --paper: separate questions select the tasks of the scores.")
    ] = False,
    words: Words = None,
    text: Annotated[Path | None, typer.Option(help="A text file for the probes that read prose.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="Your own questions: a file with prompt and answer, or a hub name; NAME=PATH of a set of the paper. "
            "Repeatable."
        ),
    ] = None,
    templates: Annotated[
        Path | None, typer.Option(help="YAML file of prompt templates (name, text) for the probe templates.")
    ] = None,
    batch_tokens: BatchTokens = None,
    exact: Annotated[
        bool, typer.Option("--deterministic", "--exact", help="One prompt at a time: byte-identical records.")
    ] = False,
    dtype: common.Dtype = "auto",
    weights: common.Weights = None,
    device: common.Device = None,
    check_weights: common.CheckWeights = True,
    adapter: common.Adapter = None,
    any_base: common.AnyBase = False,
    device_map: common.DeviceMap = None,
    one_context: Annotated[
        bool, typer.Option("--one-context", help="Questions of a task share ten relevant examples, as in the paper.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print prompts, tokens, GiB, hours and precision; opens the model once.")
    ] = False,
    yes: Yes = False,
    verbose: Verbose = False,
    json: common.Json = False,
) -> None:
    """Measure context locality and sensitivity to appended masks; writes a report. Run it again to resume.

    Several models get the same questions and share one page.
    """
    given = {
        name: value
        for name, value in locals().items()
        if name not in ("models", "quick", "full", "paper", "dry_run", "yes", "verbose", "json")
    }
    names = models or ["tiny-llada"]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{twice[0]} is named twice: name each model once")
    if len(names) > 1 and (out, adapter) != (None, None):
        raise UserError("--out and --adapter are for one model: leave them out, and name adapters as MODEL+FOLDER")
    named = [name for name, chosen in (("quick", quick), ("full", full), ("paper", paper)) if chosen]
    if len(named) > 1:
        raise UserError(f"--{named[0]} and --{named[1]} exclude each other: name one")
    from maskwise.runs.settings import chosen_settings

    preset: Any = named[0] if named else "default"
    numbers = whole_numbers(relevant)
    settings = chosen_settings(preset, probes, questions, numbers, distractors, seed, chat, select_tasks)
    check_models(names, adapter, dtype, weights)
    from maskwise.runs.run import diagnose as run_probes

    if len(names) > 1:  # each, before the first is asked
        from maskwise.models.checkpoints.examine import examine
        from maskwise.runs.diagnose import refuse_inapplicable

        for name in names:
            examine(name, any_base=any_base)
            refuse_inapplicable(name, settings)
    given |= {"preset": preset, "relevant": numbers, "command": command_line()}
    if dry_run:
        return print_expected(names, given, json)
    runs = [run_probes(name, **given, confirm=confirmation(yes)) for name in names]
    from maskwise.runs.runner import join_crew

    if join_crew().is_first:
        print_runs(runs, None, verbose, json)


def confirmation(yes: bool) -> Callable[[str], bool] | None:
    """What asks a person in a terminal."""
    is_asked = sys.stdin.isatty() and sys.stderr.isatty() and not yes
    return (lambda line: typer.confirm("this takes over an hour: go on?", err=True)) if is_asked else None


def print_expected(names: Sequence[str], given: dict[str, Any], json: bool) -> None:
    from maskwise.models.checkpoints.opening import opened_model
    from maskwise.report.screen import CONTRAST, LEADS, PROBE_OF
    from maskwise.runs.diagnose import plan_run
    from maskwise.runs.run import QUESTION_ARGUMENTS, run_inputs
    from maskwise.runs.runner import batch_budget, own_device
    from maskwise.runs.workload import expected, in_words
    from maskwise.support.progress import in_minutes
    from maskwise.tasks.contrast_questions import RULES

    inputs = run_inputs(**{name: given.get(name) for name in QUESTION_ARGUMENTS})
    opening = {name: given[name] for name in ("dtype", "device_map", "adapter", "check_weights", "weights", "any_base")}
    found = {}
    for name in names:
        model = opened_model(name, device=own_device(given["device"]), **opening)
        texts = inputs.source.words, inputs.text, inputs.data
        planned = plan_run(model, inputs.settings, *texts, tasks=inputs.tasks)
        asked = [probe.name for probe in planned.probes]
        lead = next((PROBE_OF[key] for key in LEADS if PROBE_OF[key] in asked), "")
        budget, answers = batch_budget(model, given["batch_tokens"]), RULES if lead == CONTRAST else 1
        found[name] = expected(model, planned.units, planned.firsts, budget, lead, answers)
    if json:
        return print_json(found)
    for name, one in found.items():
        size, time = in_words(one["prompts"], one["tokens"]), in_minutes(3600 * one["hours"])
        echo(f"{one_line(name)}: {size}, {one['gib']:.2g} GiB, about {time} (the model was opened, a batch timed)")
        if "half_width_10" in one:
            few, many = (100 * one[f"half_width_{share}"] for share in (10, 30))
            echo(f"the change is known to {few:.1f} points where 10 % of the answers change, {many:.1f} where 30 % do")


def print_runs(runs: "Sequence[Run]", out: Path | None, verbose: bool, json: bool, as_table: bool = False) -> None:
    """Writes the page and result.json of each run; prints the first screens, or a table with a row for each run."""
    from maskwise.report.measured import labels_of
    from maskwise.report.page import home_of, sections_of, write_page
    from maskwise.report.result import RESULT, result_of, table_of_runs, write_result
    from maskwise.report.section import rows_of

    page = write_page(runs, out or home_of(runs))
    for run in runs:
        write_result(run)
    if json:
        found = [result_of(run) for run in runs]
        return print_json(found[0] if len(found) == 1 else {"report": str(page), "runs": found})
    if as_table:
        print_rows(*table_of_runs({label: run for run, label in zip(runs, labels_of(runs), strict=True)}))
    for run in () if as_table else runs:
        echo(f"{run}\n")
    for section in sections_of(runs) if verbose else ():
        for label, estimates in section.estimates.items():
            echo(f"{section.probe.name}, {label}\n" + "\n".join(f"  {one}" for one in estimates))
        for figure, title, table in section.figures:
            print_rows(*rows_of(figure, table), title=title)
    echo(f"page {one_line(page)}   numbers {one_line(runs[0].folder / RESULT)}")


def print_rows(heads: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    from rich.table import Column, Table
    from rich.text import Text

    table = Table(
        *(Column(Text(head)) for head in heads), title=Text(title) if title else None, box=None, pad_edge=False
    )
    for row in rows:
        table.add_row(*map(Text, row))
    common.print_table(table)


def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders of maskwise diagnose, or folders that contain these.")],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the page and its figures.")] = None,
    card: Annotated[
        bool, typer.Option("--card", help="Print a model card section of one folder instead; nothing is written.")
    ] = False,
    verbose: Verbose = False,
    json: common.Json = False,
) -> None:
    """Draw the page again from run folders; several runs share one table and one page."""
    from maskwise.records.folder import runs_in
    from maskwise.runs.run import read_run

    if twice := [folder for folder in folders if folders.count(folder) > 1]:
        raise UserError(f"{twice[0]} is named twice: name each folder once")
    runs = [read_run(folder) for folder in runs_in(folders)]
    if not card:
        return print_runs(runs, out, verbose, json, as_table=len(runs) > 1)
    if len(runs) > 1:
        raise UserError(f"--card is of one run: name one of them, such as {runs[0].folder}")
    from maskwise.report.card import card_of

    echo(card_of(runs[0]).rstrip("\n"))


def compare(
    names: Annotated[
        list[str], typer.Argument(help="Models, adapter folders or run folders; the first is the baseline.")
    ],
    quick: Quick = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page; by default next to the first run.", callback=for_results)
    ] = None,
    questions: Questions = None,
    relevant: Relevant = None,
    distractors: Distractors = None,
    words: Words = None,
    seed: Seed = 0,
    chat: Chat = False,
    batch_tokens: BatchTokens = None,
    dtype: common.Dtype = "auto",
    device: common.Device = None,
    check_weights: common.CheckWeights = True,
    any_base: common.AnyBase = False,
    yes: Yes = False,
    json: common.Json = False,
) -> None:
    """Ask several models the same questions and report the change from the first, for example after tuning."""
    given = {name: value for name, value in locals().items() if name not in ("names", "quick", "out", "yes", "json")}
    if len(names) < 2:
        raise UserError("name at least two models or run folders to compare")
    if len(set(names)) < len(names):
        raise UserError(f"{max(names, key=names.count)} is named twice: name different models or run folders")
    asked = [name for name in names if not (Path(name) / "manifest.json").exists()]
    refuse_without_models(asked, given | {"quick": quick})
    check_models(asked, None, dtype)
    with collection_paused():
        from maskwise.compare import compare as compare_models
        from maskwise.runs.runner import join_crew

    if out is not None:
        make_folder(out)
    given |= {"relevant": whole_numbers(relevant), "preset": "quick" if quick else "default"}
    found = compare_models(*names, **given, command=command_line(), confirm=confirmation(yes))
    if join_crew().is_first:
        page = found.report(out)
        output = {"finding": found.finding, "estimates": found.listed, "report": str(page)}
        print_json(output) if json else echo(f"{found}\n\npage {one_line(page)}")


def toy(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the figure and toy.json.", callback=for_results)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the initial weights.")] = 0,
    json: common.Json = False,
) -> None:
    """Train a model on 100 short sequences and show how parallel decoding breaks two dependent tokens."""
    with collection_paused():
        from maskwise.toy import toy as run_toy

    folder = out or Path("runs") / "toy"
    found = run_toy(seed, out=folder)
    print_json(found) if json else echo(f"{found}\n\nfigure: {one_line(folder / 'toy.svg')}")
