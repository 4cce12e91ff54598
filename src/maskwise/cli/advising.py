"""The command that says which decoding settings to use."""

from pathlib import Path
from typing import Annotated

import typer

from maskwise.cli import common
from maskwise.cli.common import LARGEST_SEED, echo, for_results, print_json
from maskwise.cli.early import check_models


def advise(
    model: Annotated[str, typer.Argument(help="A checkpoint folder, embedded or published name.")],
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
    cost: Annotated[
        str | None,
        typer.Option(help="Cost to minimise: passes (forward passes; the default) or seconds."),
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
    given = {name: value for name, value in locals().items() if name not in ("model", "data", "json")}
    check_models([model, judge] if judge else [model], adapter, dtype)
    from maskwise.advice.advise import advise as search_settings

    found = search_settings(model, data, **given, on_cost=lambda cost: echo(f"maskwise: {cost}", err=True))
    from maskwise.runs.runner import join_crew

    if join_crew().rank > 0:
        return
    if json:
        return print_json(found)
    from maskwise.report.pages.advice import PAGE, read_search
    from maskwise.report.words.advice_text import advice_text

    search = read_search(Path(found["folder"]))
    echo(advice_text(search, search.folder / PAGE))
