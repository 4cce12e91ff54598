"""Commands that measure: one model, several compared, the toy experiment, the comparison of mitigations."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from maskwise.cli.common import (
    LARGEST_SEED,
    Adapter,
    AnyBase,
    CheckWeights,
    Concurrency,
    Device,
    DeviceMap,
    Dtype,
    EndpointUrl,
    Json,
    MaxMemory,
    ModelName,
    ServedModel,
    Weights,
    device_limits,
    echo,
    for_results,
    print_json,
    whole_numbers,
)
from maskwise.cli.early import check_models, named_data
from maskwise.cli.renamed import CommandWithOldNames
from maskwise.support.errors import UserError
from maskwise.support.garbage_collection import collection_paused
from maskwise.support.terminal import one_line

Quick = Annotated[bool, typer.Option("--quick", help="Short prompts, few tasks and conditions: minutes on a CPU.")]
Points = Annotated[int | None, typer.Option(help="Test points per task, and passages of text.  [1 or more]")]
Seed = Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Draws the examples and questions.")]
Chat = Annotated[bool, typer.Option("--chat", help="Ask through the chat template (Instruct models).")]
BatchTokens = Annotated[int | None, typer.Option(help="Tokens per batch; halved when memory runs out.  [1 or more]")]


class ListsProbes(CommandWithOldNames):
    """Its help ends with the probes, which are looked up only when it is shown."""

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        from maskwise.probes import PROBES

        with formatter.section("Probes (* with --quick, + by default; --full runs all)"):
            named = [(probe, "*" * ("quick" in probe.presets) + "+" * ("default" in probe.presets)) for probe in PROBES]
            formatter.write_dl([(probe.name + marks, probe.about) for probe, marks in named])


OF_ENDPOINTS = {"endpoint": None, "model": None, "concurrency": 4, "canvas": None, "steps": None, "strategy": None}
OF_OPENED = ("dtype", "device", "device_map", "adapter", "weights", "chat", "exact", "batch_tokens", "tensor_parallel")


def refuse_served(given: dict[str, Any]) -> None:
    """Options of a server's model without a server."""
    for name, value in given.items():
        if value != OF_ENDPOINTS[name]:
            raise UserError(f"--{name} goes with --endpoint: give the address of a server, or leave it out")


def refuse_local(models: list[str] | None, given: dict[str, Any]) -> None:
    """Options of a model that is opened here, which a server's does not take."""
    if models:
        raise UserError(f"--endpoint measures what a server offers: leave {models[0]} out, and name it with --model")
    for name in OF_OPENED:
        if given.get(name) not in ((None, 1) if name == "tensor_parallel" else (None, False, "auto")):
            raise UserError(f"--{name.replace('_', '-')} is for a model opened here: leave it or --endpoint out")


def server_of(given: dict[str, Any]) -> Any:
    from maskwise.runs.endpoint import Endpoint, UserStated

    stated = UserStated(given.get("canvas"), given.get("steps"), given.get("strategy"))
    return Endpoint(given["endpoint"], given["model"], given["concurrency"], stated)


def command_line() -> str:
    """The command line that the user typed, for the run's manifest."""
    return shlex.join(["maskwise", *sys.argv[1:]])


def diagnose(
    models: Annotated[
        list[str] | None, typer.Argument(help="Checkpoint folders, embedded or published names; tiny-llada if none.")
    ] = None,
    probes: Annotated[str | None, typer.Option(help="Which probes, separated by commas; else the preset's.")] = None,
    quick: Quick = False,
    full: Annotated[bool, typer.Option("--full", help="Every probe, up to 1000 points per task.")] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="The paper's setting and probes alone, next to its published values.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Run folder; else one under runs/ named after all settings.", callback=for_results),
    ] = None,
    points: Points = None,
    relevant: Annotated[
        str | None, typer.Option(help="Number of relevant examples; a list, as 1,10, runs each in turn.")
    ] = None,
    distractors: Annotated[
        int | None, typer.Option(help="Distracting examples in addition to the relevant ones.  [1 or more]")
    ] = None,
    precision: Annotated[
        float | None,
        typer.Option(
            help="Few-shot probes: add questions until each paired difference is known to within +- so many points."
        ),
    ] = None,
    seed: Seed = 0,
    chat: Chat = False,
    words: Annotated[
        str | None, typer.Option(help="paper, unfamiliar-1, unfamiliar-2, or a JSON file of word sets or word lists.")
    ] = None,
    text: Annotated[Path | None, typer.Option(help="A text file for the probes that read prose.")] = None,
    data: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=PATH of a data set, such as hotpotqa, gsm8k, prompts; repeatable.", callback=named_data
        ),
    ] = None,
    templates: Annotated[
        Path | None, typer.Option(help="Templates of your own for the probe templates: YAML, name and text of each.")
    ] = None,
    batch_tokens: BatchTokens = None,
    exact: Annotated[bool, typer.Option("--exact", help="One prompt at a time: byte-identical records.")] = False,
    dtype: Dtype = "auto",
    weights: Weights = None,
    device: Device = None,
    check_weights: CheckWeights = True,
    adapter: Adapter = None,
    any_base: AnyBase = False,
    device_map: DeviceMap = None,
    max_memory: MaxMemory = None,
    tensor_parallel: Annotated[
        int, typer.Option(min=1, help="Under torchrun: processes per copy of the model; copies share the questions.")
    ] = 1,
    endpoint: EndpointUrl = None,
    model: ServedModel = None,
    concurrency: Concurrency = 4,
    canvas: Annotated[int | None, typer.Option(min=1, help="--endpoint: masks to fill, if it states none.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="--endpoint: denoising steps, if it states none.")] = None,
    strategy: Annotated[str | None, typer.Option(help="--endpoint: unmasking strategy, if it states none.")] = None,
    power: Annotated[
        bool, typer.Option("--power", help="Print the smallest difference that this run detects; no model is opened.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="Print a table for each probe too.")] = False,
    json: Json = False,
) -> None:
    """Measure context locality and sensitivity to appended masks; writes a report. Run again, it resumes.

    Several models are asked the same questions, one after the other, and laid side by side on one page.
    """
    given = {
        name: value
        for name, value in locals().items()
        if name not in (*OF_ENDPOINTS, "models", "quick", "full", "paper", "power", "verbose", "json")
    }
    names = models or ["tiny-llada"]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UserError(f"{twice[0]} is named twice: name each model once")
    if len(names) > 1 and (out, adapter) != (None, None):
        raise UserError("--out and --adapter are for one model: leave them out, and name adapters as MODEL+FOLDER")
    limits = device_limits(device_map, max_memory)
    named = [name for name, chosen in (("quick", quick), ("full", full), ("paper", paper)) if chosen]
    if len(named) > 1:
        raise UserError(f"--{named[0]} and --{named[1]} exclude each other: name one")
    from maskwise.runs.settings import chosen_settings

    preset: Any = named[0] if named else "default"
    numbers = whole_numbers(relevant)
    settings = chosen_settings(preset, probes, points, numbers, distractors, precision, seed, chat)
    if power and precision is not None:
        raise UserError("--precision asks as many questions as it takes: leave it or --power out")
    if power:
        return _print_power(settings, words, leave_out=words is not None and probes is None, json=json)
    served = {name: value for name, value in locals().items() if name in OF_ENDPOINTS}
    if endpoint is None:
        refuse_served(served)
        check_models(names, adapter, dtype, weights)
    else:
        refuse_local(models, given)
    from maskwise.runs.run import diagnose as run_probes

    if len(names) > 1:  # each, before the first is asked
        from maskwise.models.checkpoints.examine import examine
        from maskwise.runs.diagnose import refuse_inapplicable

        for name in names:
            examine(name, any_base=any_base)
            refuse_inapplicable(name, settings)
    given |= {"preset": preset, "relevant": numbers, "max_memory": limits, "command": command_line()}
    runs = [run_probes(name, **given) for name in (names if endpoint is None else [server_of(served)])]
    from maskwise.runs.runner import join_crew

    if not join_crew().is_first:
        return
    from maskwise.report.pages.page import home_of, write_page
    from maskwise.report.readings import readings_of
    from maskwise.report.words.finding import advice_lines, finding, with_finding
    from maskwise.report.words.printed_summary import print_summary

    readings = readings_of(runs)
    page = write_page(readings, home_of(readings))
    if json:
        summaries = [with_finding(reading) for reading in readings]
        return print_json(summaries[0] if len(names) == 1 else {"report": str(page), "runs": summaries})
    for reading in readings:
        print_summary(reading, verbose, readings)
    echo(f"\n{finding(readings).sentence}")
    for line in advice_lines(readings):
        echo(f"what to do: {one_line(line)}")
    echo(f"report: {one_line(page)}")


def _print_power(settings: Any, words: str | None, leave_out: bool, json: bool) -> None:
    from maskwise.runs.settings import power_of, with_words
    from maskwise.scoring.power import power_in_words
    from maskwise.tasks.word_sources import load_word_source

    found = power_of(with_words(settings, load_word_source(words), leave_out))
    if json:
        return print_json(found)
    echo("Smallest difference in accuracy that this run detects (80 % power, 5 % two-sided, paired questions):")
    for one in found:
        echo(power_in_words(one))


def report(
    folders: Annotated[
        list[Path], typer.Argument(help="Folders of maskwise diagnose and advise, or folders that contain these.")
    ],
    out: Annotated[Path | None, typer.Option("--out", help="Folder for the pages and figures.")] = None,
    sort: Annotated[
        str | None, typer.Option(help="Several runs: the column that sorts the table, such as mask_tax.")
    ] = None,
    reverse: Annotated[bool, typer.Option("--reverse", help="Sort with the largest first.")] = False,
    json: Json = False,
) -> None:
    """Draw the report again from run folders alone; several runs are one table, and laid side by side."""
    from maskwise.report.pages.redraw import print_redrawn, redraw

    drawn = redraw(folders, out, sort, reverse)
    for problem in drawn.left_out:
        echo(f"maskwise: left out: {one_line(problem.as_typed)}", err=True)
    return print_json(drawn.summary) if json else print_redrawn(drawn)


def run_card(
    folder: Annotated[Path, typer.Argument(help="A folder written by maskwise diagnose or advise.")],
    out: Annotated[Path | None, typer.Option("--out", help="A file for it; else it is printed.")] = None,
) -> None:
    """Write the part of a model card that states mask sensitivity, locality and the settings of every number."""
    from maskwise.report.words.card import run_card_of
    from maskwise.support.files import replace_file, writing

    text = run_card_of(folder)
    if out is None:
        return echo(text.rstrip("\n"))
    with writing(out, "name another file with --out"):
        replace_file(out, [text])
    echo(one_line(out))


def compare(
    names: Annotated[list[str], typer.Argument(help="Models, adapter folders or run folders; the first is before.")],
    quick: Quick = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the page; else one next to the first run.", callback=for_results)
    ] = None,
    points: Points = None,
    seed: Seed = 0,
    chat: Chat = False,
    batch_tokens: BatchTokens = None,
    dtype: Dtype = "auto",
    device: Device = None,
    check_weights: CheckWeights = True,
    any_base: AnyBase = False,
    json: Json = False,
) -> None:
    """Compare models before and after tuning: the same questions to each, and what changed from the first."""
    given = {name: value for name, value in locals().items() if name not in ("names", "quick", "out", "json")}
    if len(names) < 2:
        raise UserError("name at least two models or run folders to compare")
    if len(set(names)) < len(names):
        raise UserError(f"{max(names, key=names.count)} is named twice: name different models or run folders")
    check_models([name for name in names if not (Path(name) / "manifest.json").exists()], None, dtype)
    with collection_paused():
        from maskwise.experiments.compare import compare as compare_models
        from maskwise.report.pages.results import make_folder
        from maskwise.report.words.comparison import rows_of
        from maskwise.report.words.printed_summary import print_changes
        from maskwise.runs.runner import join_crew

    if out is not None:
        make_folder(out)
    found = compare_models(*names, preset="quick" if quick else "default", command=command_line(), **given)
    if join_crew().rank > 0:
        return
    page = found.report(out)
    if json:
        return print_json(found.result(page))
    print_changes([reading.label for reading in found.readings], rows_of(found.models, found.changes))
    echo(f"\n{one_line(found.sentence)}")
    echo(f"report: {one_line(page)}")


def toy(
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the page, the figure and toy.json.", callback=for_results)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Draws the starting weights.")] = 0,
    json: Json = False,
) -> None:
    """Train a model on 100 short sequences and show how parallel decoding breaks two dependent tokens."""
    with collection_paused():
        from maskwise.experiments.toy import toy as run_toy
        from maskwise.report.pages.results import print_result
        from maskwise.report.pages.toy_page import toy_result

    folder = out or Path("runs") / "toy"
    found = run_toy(seed, out=folder)
    return print_json(found) if json else print_result(toy_result(found), folder)


def cures(
    model: ModelName = "tiny-llada",
    adapter: Annotated[
        list[str] | None, typer.Option(help="An adapter of `tune`, a row each; else the embedded one.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the page, the figure and cures.json.", callback=for_results)
    ] = None,
    points: Annotated[int | None, typer.Option(help="Questions per task.  [1 or more]")] = None,
    seed: Seed = 0,
    dtype: Dtype = "auto",
    device: Device = None,
    check_weights: CheckWeights = True,
    any_base: AnyBase = False,
    json: Json = False,
) -> None:
    """Compare mitigations of the sensitivity to masks: accuracy at 2 and 200 masks, loss recovered, speed, training."""
    given = {name: value for name, value in locals().items() if name not in ("out", "json")}
    if points is not None and points < 1:
        raise UserError(f"--points must be at least 1, not {points}")
    check_models([model], None, dtype)
    for one in adapter or []:
        check_models([model], one, dtype)
    with collection_paused():
        from maskwise.experiments.mitigations import cures as compare_cures
        from maskwise.report.pages.mitigations_page import cures_result
        from maskwise.report.pages.results import print_result
        from maskwise.scoring.experiment_results import Mitigations
        from maskwise.support.typed import convert

    folder = out or Path("runs") / f"cures-{Path(model).name}"
    try:
        found = compare_cures(**given, out=folder)
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the answers so far are kept, the same command goes on from there") from None
    return print_json(found) if json else print_result(cures_result(convert(found, Mitigations)), folder)
