"""Controls and queues that the tabs of the page share."""

from typing import Any

import gradio as gr
from markupsafe import escape

from maskwise.studio.shelf import Shelf, label_of
from maskwise.studio.sizes import MOST_CHARACTERS

NONE = "none"
# Of all sessions together, one job runs a model at a time.
MODEL_JOB: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "model"}
CHEAP: dict[str, Any] = {
    "concurrency_limit": 8,
    "concurrency_id": "cheap",
    "show_progress": "hidden",
    "api_visibility": "private",
}


def model_choice(shelf: Shelf, label: str, none: bool = False) -> gr.Dropdown:
    choices = [(label_of(name), name) for name in shelf.names]
    return gr.Dropdown(
        [*([(NONE, NONE)] if none else []), *choices], value=NONE if none else shelf.names[0], label=label
    )


def slider(label: str, low: float, high: float, value: float, step: float = 1, **more: Any) -> gr.Slider:
    return gr.Slider(low, high, value=value, step=step, label=label, **more)


def text(label: str, lines: int, **more: Any) -> gr.Textbox:
    return gr.Textbox(label=label, lines=lines, max_lines=12, max_length=MOST_CHARACTERS, **more)


def html(name: str, value: str = "") -> gr.HTML:
    return gr.HTML(value, elem_id=name, apply_default_css=False)


def lead(line: str) -> None:
    """One line at the top of a tab: what it shows."""
    gr.HTML(f'<p class="lead">{line}</p>', apply_default_css=False)


def toast(problem: object) -> None:
    """A problem as a message over the page. Gradio renders it as HTML, so it is escaped."""
    gr.Warning(str(escape(problem)), title="Nothing was changed")
