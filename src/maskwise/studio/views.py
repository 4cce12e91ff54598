"""HTML of the studio's results: the templates escape all text that was typed, generated or read."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import escape

from maskwise.report import prompts
from maskwise.studio.probing import MOST_MASKS, Side
from maskwise.studio.tracing import Trace

HERE = Path(__file__).parent


@cache
def _templates() -> jinja2.Environment:
    made = prompts.environment()
    made.loader = jinja2.FileSystemLoader([HERE, prompts.HERE])
    return made


def studio_style() -> str:
    """The colours and the prompt of the report's page, and our own rules; its others are for a whole page."""
    shared, _, _ = (prompts.HERE / "page.css").read_text("utf-8").partition("/* Of the report's page alone")
    return shared + (HERE / "studio.css").read_text("utf-8")


def probed_view(sides: Sequence[Side]) -> str:
    shown = [(side, side.shown) for side in sides]
    return _templates().get_template("probed.html.jinja").render(sides=shown, most=MOST_MASKS)


def trace_view(trace: Trace, step: int) -> str:
    """The canvas after `step` forward passes, or after the last one."""
    at = min(max(0, int(step)), trace.forwards)
    return _templates().get_template("traced.html.jinja").render(trace=trace, at=at, cells=trace.frames[at])


def problem_view(problem: object) -> str:
    return f'<p class="problem" role="alert">{escape(problem)}</p>'
