"""The command that opens the local page."""

from typing import Annotated

import typer

from maskwise.cli.common import Device, Dtype, echo
from maskwise.cli.early import check_models


def studio(
    models: Annotated[
        list[str] | None,
        typer.Argument(help="Models to offer besides the embedded ones: checkpoint folders or published names."),
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 is any free one.")] = 7860,
    dtype: Dtype = "auto",
    device: Device = None,
) -> None:
    """Open a page to try models by hand: one question under more and more masks, decoding step by step.

    The page is reachable only from this machine, until Ctrl-C. Needs Gradio: pip install '.[studio]' in a clone
    """
    from maskwise.studio.serving import claim_port, guarded_app, require_gradio, serve

    require_gradio()
    check_models(models or [], None, dtype)
    with claim_port(port) as held:
        address = held.getsockname()
        app = guarded_app(models or ["tiny-llada"], address[1], dtype, device)
        echo(f"maskwise studio: http://{address[0]}:{address[1]}  (Ctrl-C ends it)")
        try:
            serve(held, app)
        except KeyboardInterrupt:
            echo("maskwise studio: ended", err=True)
