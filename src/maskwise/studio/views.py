"""HTML of the studio's results: the templates escape all text that was typed, generated or read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import jinja2
from markupsafe import escape

from maskwise.report.pages.drill import likelihood, shown_prompt
from maskwise.report.pages.jinja_environment import environment, style
from maskwise.scoring.numbers import number, percent
from maskwise.studio.probing import MOST_MASKS, MaskCurve, Probed
from maskwise.studio.tracing import Trace
from maskwise.tasks.episodes import CHANCE, LETTERS

ATTENDED = {"masks": "masks", "near": "nearest context", "far": "farther context", "answer": "itself"}


@dataclass(frozen=True)
class Side:
    """One model's answer. `found` is None while it is being asked the question; `curve` is empty until it is known."""

    label: str
    found: Probed | None
    question: str = ""
    curve: MaskCurve = ()


@cache
def _templates() -> jinja2.Environment:
    return environment("studio", "report/pages")


def studio_style() -> str:
    return style("colours", "prompt") + (Path(__file__).parent / "studio.css").read_text(encoding="utf-8")


def probed_view(sides: Sequence[Side]) -> str:
    template = _templates().get_template("probed.html.jinja")
    return template.render(sides=[_side(side) for side in sides], most=MOST_MASKS)


def trace_view(label: str, prompt: str, trace: Trace, step: int) -> str:
    """The canvas after `step` forward passes, or after the last one."""
    at = min(step, trace.forwards)
    frame = trace.frames[at]
    written = sum(cell.step > 0 for cell in frame)
    pace = number(written / at) if at else "–"
    shown = {"label": label, "prompt": prompt, "at": at, "forwards": trace.forwards, "written": written, "pace": pace}
    cells = [_painted(cell, at, trace.forwards) for cell in frame]
    return _templates().get_template("traced.html.jinja").render(**shown, places=len(frame), cells=cells)


def problem_view(problem: object) -> str:
    return f'<p class="problem" role="alert">{escape(problem)}</p>'


def _side(side: Side) -> dict:
    if side.found is None:
        return {"label": side.label, "prompt": None, "question": side.question, "curve": ""}
    found = side.found
    layers = list(zip(*(found.attention[key] for key in ATTENDED), strict=True))
    mean = sum(found.attention["masks"]) / len(layers)
    return {
        "label": side.label,
        "prompt": shown_prompt(found.shown, side.label),
        "right": found.right,
        "greedy": found.shown["top"][0][0],
        "sure": likelihood(found.answer.confidence or 0.0),
        "entropy": number(found.answer.entropy),
        "nll": number(found.answer.nll),
        "curve": " ".join(f"{masks},{100 - 100 * chance:.1f}" for masks, chance in side.curve),
        "below_guessing": bool(side.curve) and found.right in LETTERS and max(p for _, p in side.curve) < CHANCE,
        "now": max(0, found.prompt.masks - 1),
        "percent": round(100 * found.shown.probability, 1),
        "masks": found.prompt.masks,
        "unseen": 0 if found.visible is None else found.prompt.masks - found.visible,
        "to_masks": percent(mean, 1) if found.prompt.masks > 1 else None,
        "layers": [[round(100 * share, 1) for share in shares] for shares in layers],
        "attended": list(ATTENDED.values()),
    }


def _painted(cell, at: int, steps: int) -> dict:
    """age: how late it was written, in percent of all steps. sure: the confidence in percent."""
    age = round(100 * (cell.step - 1) / max(1, steps - 1)) if cell.step else 0
    sure = None if cell.confidence is None else likelihood(cell.confidence)
    return {
        "text": cell.text,
        "kind": "new" if cell.step and cell.step == at else "old" if cell.step else "mask" if cell.shown else "unseen",
        "age": age,
        "sure": 0 if cell.confidence is None else round(100 * cell.confidence),
        "about": f"step {cell.step}" + (f", {sure}" if sure else "") if cell.step else "",
    }
