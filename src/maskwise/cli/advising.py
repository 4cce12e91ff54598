"""The command that says which decoding settings to use."""

from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec import to_builtins

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
    settings: Annotated[
        str | None,
        typer.Option(help="What is tried, as options of generate: 'steps=64 steps=16 canvas=growing,block=32'."),
    ] = None,
    questions: Annotated[
        int | None, typer.Option(help="How many are asked, half to choose and half to confirm; all if left out.")
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option("--max-new-tokens", "-n", min=1, help="Masks appended to the prompt; 128 if left out."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the answers; by default one under runs/.", callback=for_results)
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

    Settings are chosen on half of the questions and confirmed on the others. Run it again to resume.
    """
    given: dict[str, Any] = {name: value for name, value in locals().items() if name not in ("model", "data", "json")}
    check_models([model], adapter, dtype)
    from maskwise.advise import advise as find_settings

    found = find_settings(model, data, **given)
    from maskwise.runs.runner import join_crew

    if join_crew().is_first:
        print_json(to_builtins(found)) if json else echo(str(found))
