"""The command that runs the settings behind a published score."""

from pathlib import Path
from typing import Annotated

import typer

from maskwise.cli.common import Device, Json, echo, print_json
from maskwise.cli.early import check_models
from maskwise.support.garbage_collection import collection_paused


def reproduce(
    card: Annotated[
        str,
        typer.Argument(
            help="A YAML file with every setting, or a card of maskwise: tiny-llada, llada-8b-base-gsm8k, "
            "dream-7b-instruct-gsm8k (the last two were not run by us)."
        ),
    ],
    data: Annotated[
        Path | None, typer.Option(help="Questions (gsm8k or prompts) to use instead of the card's.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model to use instead of the card's.")] = None,
    budget: Annotated[float, typer.Option(help="Minutes for runs in which one setting is changed, over 0.")] = 10.0,
    device: Device = None,
    json: Json = False,
) -> None:
    """Run the settings behind a published score, and find the single setting that moves it most."""
    from msgspec import structs

    from maskwise.experiments.score_cards import card_questions, read_card

    found = read_card(card)
    if model is not None:
        found = structs.replace(found, model=model)
    check_models([found.model], None, found.dtype)
    card_questions(found, data)
    with collection_paused():
        from maskwise.experiments.reproduction import lines_of
        from maskwise.experiments.reproduction import reproduce as run_card

    result = run_card(found, data, budget, device, on_phase=lambda line: echo(f"maskwise: {line}", err=True))
    return print_json(result) if json else echo("\n".join(lines_of(result)))
