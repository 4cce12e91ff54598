"""The command that says which decoding settings to use."""

from pathlib import Path
from typing import Annotated

import typer

from maskwise.cli import common
from maskwise.cli.common import LARGEST_SEED, echo, for_results, print_json
from maskwise.cli.early import check_models
from maskwise.cli.measuring import refuse_local, refuse_served, server_of
from maskwise.support.errors import UserError


def advise(
    checkpoint: Annotated[
        str | None, typer.Argument(metavar="MODEL", help="A checkpoint folder, embedded or published name.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="A .jsonl file with prompt and answer per line; by default embedded questions.")
    ] = None,
    exact: Annotated[
        bool, typer.Option("--exact-match", "--exact", help="Quality: the generated text equals the answer.")
    ] = False,
    pattern: Annotated[
        str | None, typer.Option(help="Quality: this regular expression finds the same in text and answer.")
    ] = None,
    function: Annotated[
        str | None, typer.Option(help="Quality: MODULE:NAME of your function of (text, answer).")
    ] = None,
    judge: Annotated[str | None, typer.Option(help="Quality: log-likelihood of the text under this model.")] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            help="Limit on decoding time, in minutes. Default: none (all questions); 8 for the embedded ones."
        ),
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option("--max-new-tokens", "-n", help="Masks appended to the prompt; 128 if left out.  [1 or more]"),
    ] = None,
    canvases: Annotated[str | None, typer.Option(help="Canvases (masks seen) to try, e.g. fixed,growing.")] = None,
    blocks: Annotated[str | None, typer.Option(help="Block sizes to try, e.g. 8,32.")] = None,
    rules: Annotated[
        str | None, typer.Option(help="Unmasking strategies to try, e.g. low-confidence,threshold:tau=0.8.")
    ] = None,
    steps: Annotated[str | None, typer.Option(help="Numbers of steps to try, e.g. 128,64.")] = None,
    caches: Annotated[str | None, typer.Option(help="Caches to try, e.g. none,dual,dual:refresh=8.")] = None,
    endpoint: common.EndpointUrl = None,
    model: common.ServedModel = None,
    concurrency: common.Concurrency = 4,
    max_tokens: Annotated[str | None, typer.Option(help="With --endpoint: max_tokens to try, e.g. 128,64.")] = None,
    temperatures: Annotated[str | None, typer.Option(help="With --endpoint: temperatures to try, e.g. 0,0.7.")] = None,
    body: Annotated[
        list[str] | None,
        typer.Option(help="With --endpoint: values to try of another request field, e.g. steps=8,16; repeatable."),
    ] = None,
    cost: Annotated[
        str | None,
        typer.Option(
            help="Cost to minimise: passes (forward passes; the default) or seconds (always with --endpoint)."
        ),
    ] = None,
    templates: Annotated[
        Path | None, typer.Option(help="Also confirm the settings under these rewordings: YAML, {prompt} in each.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the search; by default one under runs/.", callback=for_results)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="Seed of the order of the questions.")] = 0,
    dtype: common.Dtype = "auto",
    device: common.Device = None,
    adapter: common.Adapter = None,
    any_base: common.AnyBase = False,
    check_weights: common.CheckWeights = True,
    json: common.Json = False,
) -> None:
    """Find the canvas (masks in view), block, strategy, steps and cache to decode with, from your own questions.

    Settings are searched on some questions and confirmed on others. Run it again to resume.
    """
    served = {"endpoint": endpoint, "model": model, "concurrency": concurrency}
    given = {
        name: value for name, value in locals().items() if name not in (*served, "served", "checkpoint", "data", "json")
    }
    if endpoint is None:
        refuse_served(served)
        if checkpoint is None:
            raise UserError("name a model, or the address of a server with --endpoint")
    else:
        own = {"exact": None} | ({"device": None} if judge else {})  # a measure here; where the judge is opened
        refuse_local([checkpoint] if checkpoint else [], given | own)
        from maskwise.advice.search_request import OF_SERVERS, prepare

        measure = (exact, pattern, function, judge)
        searched = {name: given[name] for name in OF_SERVERS}
        prepare(data, *measure, budget, cost, seed, templates, ("", ""), **searched)  # before the server is reached
    check_models([name for name in (checkpoint, judge) if name], adapter, dtype)
    from maskwise.advice.advise import advise as search_settings

    found = search_settings(
        checkpoint or server_of(served), data, **given, on_cost=lambda cost: echo(f"maskwise: {cost}", err=True)
    )
    from maskwise.runs.runner import join_crew

    if join_crew().rank > 0:
        return
    if json:
        return print_json(found)
    from maskwise.report.pages.advice import PAGE, read_search
    from maskwise.report.words.advice_text import advice_text

    search = read_search(Path(found["folder"]))
    echo(advice_text(search, search.folder / PAGE))
