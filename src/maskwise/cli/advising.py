"""The command that says which decoding settings to use."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from maskwise.cli.common import (
    LARGEST_SEED,
    Adapter,
    CheckWeights,
    Device,
    Dtype,
    Json,
    ModelName,
    echo,
    print_json,
)
from maskwise.cli.early import check_models
from maskwise.support.imports import collection_paused
from maskwise.support.terminal import one_line

if TYPE_CHECKING:
    from maskwise.report.pages.advice import Search


def advise(
    model: ModelName,
    data: Annotated[
        Path | None, typer.Option(help="A .jsonl file; each line has prompt and answer. Else embedded questions.")
    ] = None,
    exact: Annotated[bool, typer.Option("--exact", help="Quality: the generated text is the answer.")] = False,
    pattern: Annotated[
        str | None, typer.Option(help="Quality: this regular expression finds the same in text and answer.")
    ] = None,
    function: Annotated[
        str | None, typer.Option(help="Quality: MODULE:NAME of your function of (text, answer).")
    ] = None,
    judge: Annotated[str | None, typer.Option(help="Quality: log-likelihood of the text under this model.")] = None,
    budget: Annotated[
        float | None, typer.Option(help="Minutes of decoding, over 0; else all questions (embedded ones: 8 minutes).")
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option("--max-new-tokens", "-n", help="Masks appended to the prompt; 128 if left out.  [1 or more]"),
    ] = None,
    canvases: Annotated[str | None, typer.Option(help="Canvases to try, as fixed,growing; else all.")] = None,
    blocks: Annotated[str | None, typer.Option(help="Block sizes to try, as 8,32.")] = None,
    rules: Annotated[
        str | None, typer.Option(help="Unmasking strategies to try, as low-confidence,threshold:tau=0.8.")
    ] = None,
    steps: Annotated[str | None, typer.Option(help="Numbers of steps to try, as 128,64.")] = None,
    caches: Annotated[str | None, typer.Option(help="Caches to try, as none,dual,dual:refresh=8.")] = None,
    cost: Annotated[str, typer.Option(help="What is to be small: passes (forward passes) or seconds.")] = "passes",
    out: Annotated[Path | None, typer.Option(help="Folder of the search; else one under runs/.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=LARGEST_SEED, help="The order of the questions.")] = 0,
    dtype: Dtype = "auto",
    device: Device = None,
    adapter: Adapter = None,
    check_weights: CheckWeights = True,
    json: Json = False,
) -> None:
    """Find the canvas, block, strategy, steps and cache to decode with, from questions of your own. It resumes.

    Settings are searched on some questions and confirmed on others. With --data one measure of quality must be named.
    """
    check_models([model, *([judge] if judge else [])], adapter, dtype)
    from maskwise.advice.request import prepare

    request = prepare(
        data, exact, pattern, function, judge, budget, cost, seed, max_new_tokens=max_new_tokens, canvases=canvases,
        blocks=blocks, rules=rules, steps=steps, caches=caches,
    )  # fmt: skip
    with collection_paused():
        from maskwise.advice.advise import advise_on
        from maskwise.models.checkpoints.opening import open as open_model
        from maskwise.runs.runner import join_crew, own_device

    place = own_device(device)
    opened = open_model(model, dtype=dtype, device=place, adapter=adapter, check_weights=check_weights)
    scoring = open_model(judge, device=place, check_weights=check_weights) if judge else None
    try:
        found = advise_on(
            request, opened, scoring, model, adapter, out, lambda said: echo(f"maskwise: {said}", err=True)
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt("the answers so far are kept: run it again to go on") from None
    if join_crew().rank > 0:
        return
    from maskwise.report.pages.advice import read_search, write_search

    search = read_search(Path(found["folder"]))
    page = write_search(search, search.folder)
    return print_json(found) if json else print_advice(search, page)


def print_advice(search: "Search", page: Path) -> None:
    """What was confirmed, the finding, the three settings, and what was not tried."""
    found = search.found
    asked = found["questions"]
    echo(wrapped(f"{found['model']}: quality is {found['quality']}"))
    echo(
        f"{asked['searched']} questions searched, {asked['held_back']} held back, {found['passes']:,} forward passes "
        f"in {found['seconds']:.0f} s\n\nOn the questions held back:\n"
        f"    {'quality':24} {'difference from reference':26} {'passes':>7} {'seconds':>8}"
    )
    for row in found["confirmed"]:
        is_reference = row["setting"] == found["reference"]
        beside = "reference" if is_reference else search.with_ends(row["to_reference"], signed=True)
        echo(f"{'*' if row['frontier'] else ' '} {one_line(row['setting'])}")
        echo(f"    {search.with_ends(row['quality']):24} {beside:26} {row['passes']:7.1f} {row['seconds']:8.2g}")
    echo(
        "* on the frontier: none is as good with fewer passes.\n"
        f"  All differences together hold in 95 % of runs.\n\n{wrapped(found['sentence'])}"
    )
    for setting in dict.fromkeys(row["setting"] for row in found["advice"]):
        same = [row for row in found["advice"] if row["setting"] == setting]
        goals, row = ", ".join(row["goal"] for row in same), same[0]
        echo("\n" + wrapped(f"{goals}: {setting}"))
        for written in (row["command"], row["python"], f"lm_eval {row['lm_eval']}"):
            echo(f"  {one_line(written)}")
    for number, line in enumerate(search.undecided):
        echo(("" if number else "\n") + wrapped(line))
    echo(f"\ndropped in the search: {len(found['dropped'])} settings (--json lists them)")
    echo(wrapped(f"not tried: {'; '.join(found['not_tried'])}"))
    echo(f"folder: {one_line(search.folder)}\npage: {one_line(page)}")


def wrapped(text: str) -> str:
    """Prose in 80 columns; what is meant to be copied stays on one line."""
    return textwrap.fill(one_line(text), 80, break_long_words=False, break_on_hyphens=False)
