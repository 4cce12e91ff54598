"""The Gradio page: layout, and the computation behind each control."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr

from maskwise.decoding.options import CACHES
from maskwise.decoding.strategies import STRATEGIES
from maskwise.models.checkpoints.locations import planted_in
from maskwise.studio import probing, tracing
from maskwise.studio.folders import found_runs, page_of
from maskwise.studio.shelf import Shelf, label_of
from maskwise.studio.sizes import MOST_CHARACTERS
from maskwise.studio.views import Side, page_view, probed_view, problem_view, trace_view
from maskwise.support.errors import UserError

NONE = "none"
CANVAS_CHOICES = ("full", "growing", "window")
SECONDS_PER_FRAME = 0.5
# The embedded models were trained on such lines: few strategies write them well in few passes.
PROMPT = "Options: (A) bed, (B) mosquito, (C) bathtub\nAnswer:[B].\n\nOptions:"
# Jobs that run a model, or draw, wait for each other: one at a time whoever asks.
MODEL_JOB: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "model"}
DRAWING_JOB: dict[str, Any] = {"concurrency_limit": 1, "concurrency_id": "drawing"}
CHEAP: dict[str, Any] = {
    "concurrency_limit": 8,
    "concurrency_id": "cheap",
    "show_progress": "hidden",
    "api_visibility": "private",
}


def build_app(shelf: Shelf, root: Path) -> gr.Blocks:
    with gr.Blocks(analytics_enabled=False, title="maskwise studio", fill_width=True) as app:
        gr.HTML('<h1 class="studio">maskwise studio</h1>', apply_default_css=False)
        with gr.Tab("Probe"):
            _probe_tab(app, shelf)
        with gr.Tab("Decode"):
            _decode_tab(shelf)
        with gr.Tab("Runs"):
            _runs_tab(app, root)
    return app


# Probe


def _probe_tab(app: gr.Blocks, shelf: Shelf) -> None:
    with gr.Row():
        with gr.Column(scale=1, min_width=300):
            model, beside = _model(shelf, "Model"), _model(shelf, "Beside it", none=True)
            masks = _slider("Masks after the answer's own", 0, probing.MOST_MASKS, 0, elem_id="masks")
            place = _slider("Place of the relevant block: % of the distracting examples before it", 0, 100, 100)
            distractors = _slider("Distracting examples", 0, probing.MOST_DISTRACTORS, 10)
            relevant = _slider("Relevant examples", 0, probing.MOST_RELEVANT, 1)
            task = gr.Dropdown(probing.TASK_NAMES, value="animal-largest", label="Draw from the task")
            point = _slider("Question of the task", 0, probing.MOST_POINTS - 1, 4)
            context = _text("Relevant block: the examples drawn, or your own context", 4, elem_id="context")
            question = _text("Question, up to the place of the answer", 3, elem_id="question")
            answer = _text("Right answer (may be left out)", 1, elem_id="answer")
        with gr.Column(scale=2, min_width=300):
            result = _html("probed")
    asked = [model, beside, context, question, answer, task, point, relevant, distractors, place, masks]
    drawn = {"fn": _draw, "inputs": [task, point, relevant], "outputs": [context, question, answer, result], **CHEAP}
    then = {"fn": partial(_ask, shelf), "inputs": asked, "outputs": result, "show_progress": "hidden", **MODEL_JOB}
    gr.on([task.input, point.input, relevant.input, app.load], trigger_mode="always_last", **drawn)
    # `change` of the texts, whoever wrote them: `input` misses what is pasted.
    changes = [one.change for one in (context, question, answer)]
    changes += [one.input for one in (model, beside, distractors, place, masks)]
    gr.on(changes, trigger_mode="always_last", api_name="probe", **then)


def _draw(task: str, point: int, relevant: int) -> tuple[Any, ...]:
    try:
        drawn = probing.draw_question(task, point, relevant)
    except UserError as problem:
        return gr.skip(), gr.skip(), gr.skip(), problem_view(problem)
    return drawn.context, drawn.question, drawn.answer, gr.skip()


def _ask(
    shelf: Shelf,
    model: str,
    beside: str,
    context: str,
    question: str,
    answer: str,
    task: str,
    point: int,
    relevant: int,
    distractors: int,
    place: int,
    masks: int,
) -> Iterator[str]:
    """The answers first, one model after the other, then the attributions, which take longer."""
    try:
        asked = probing.ContextQuestion(
            context, question, answer, task, point, relevant, distractors, place / 100, masks
        )
        names = [model] if beside in (NONE, model) else [model, beside]
        sides = [Side(label_of(name), None) for name in names]
        for number, name in enumerate(names):
            sides[number] = Side(sides[number].label, probing.probe(shelf.take(name), asked))
            yield probed_view(sides)
        for number, side in enumerate(sides):
            assert side.found is not None
            sides[number] = Side(side.label, probing.attributed(side.found))
            yield probed_view(sides)
    except UserError as problem:
        yield problem_view(problem)


# Decode


def _decode_tab(shelf: Shelf) -> None:
    with gr.Row():
        model = _model(shelf, "Model")
        prompt = _text("Prompt", 4, value=PROMPT, elem_id="prompt")
        new = gr.Slider(8, tracing.MOST_NEW, value=32, step=8, label="New tokens")
    with gr.Row():
        first = _strategy("First", "low-confidence", "")
        second = _strategy("Second", "threshold", "tau=0.2")
    with gr.Row():
        start = gr.Button("Decode", variant="primary")
        play, pause = gr.Button("Play"), gr.Button("Pause")
    step = gr.Slider(0, 1, value=0, step=1, label="Forward passes", elem_id="step")
    with gr.Row():
        with gr.Column(min_width=300):
            left = _html("left")
        with gr.Column(min_width=300):
            right = _html("right")
    traces, timer = gr.State(None), gr.Timer(SECONDS_PER_FRAME, active=False)
    gr.on(
        [start.click, prompt.submit],
        partial(_decode, shelf),
        [model, prompt, new, *first, *second],
        [traces, step, left, right, timer],
        trigger_mode="once",
        api_name="decode",
        **MODEL_JOB,
    )
    step.input(_frame, [traces, step], [left, right], trigger_mode="always_last", **CHEAP)
    play.click(_rewind, [traces, step], [step, left, right, timer], **CHEAP)
    pause.click(lambda: gr.Timer(active=False), None, timer, **CHEAP)
    timer.tick(_advance, [traces, step], [step, left, right, timer], trigger_mode="once", **CHEAP)


def _strategy(title: str, rule: str, parameters: str) -> list[gr.components.Component]:
    with gr.Column(min_width=300), gr.Accordion(title, open=True):
        with gr.Row():
            chosen = gr.Dropdown([one.name for one in STRATEGIES], value=rule, label="Unmasking strategy", scale=3)
            settings = gr.Textbox(
                parameters, label="Its parameters", placeholder="tau=0.8", max_length=200, scale=2, min_width=120
            )
        with gr.Row():
            steps = gr.Slider(0, tracing.MOST_STEPS, value=0, step=1, label="Steps (0: one per token)", scale=3)
            block = gr.Dropdown([0, 4, 8, 16, 32], value=0, label="Block (0: none)", scale=2, min_width=120)
        with gr.Row():
            canvas = gr.Radio(list(CANVAS_CHOICES), value="full", label="Canvas", scale=3)
            window = gr.Slider(0, 64, value=8, step=1, label="Window (masks)", scale=2, min_width=120)
        cache = gr.Radio(list(CACHES), value="none", label="Cache")
    return [chosen, settings, steps, block, canvas, window, cache]


def _decode(shelf: Shelf, model: str, prompt: str, new: int, *controls: Any) -> tuple[Any, ...]:
    half = len(controls) // 2
    try:
        options = [tracing.decoding_options(new, *one) for one in (controls[:half], controls[half:])]
        opened = shelf.take(model)
        traces = [
            (f"{label_of(model)}, {tracing.in_words(opened, one)}", prompt, tracing.trace(opened, prompt, one))
            for one in options
        ]
    except UserError as problem:
        return None, gr.skip(), problem_view(problem), "", gr.Timer(active=False)
    last = _longest(traces)
    return traces, gr.Slider(maximum=last, value=last), *_frame(traces, last), gr.Timer(active=False)


def _longest(traces: Any) -> int:
    return max(trace.forwards for _, _, trace in traces)


def _frame(traces: Any, step: int) -> tuple[str, str]:
    if not traces:
        return problem_view("decode a prompt first"), ""
    left, right = (trace_view(label, prompt, trace, max(0, int(step))) for label, prompt, trace in traces)
    return left, right


def _rewind(traces: Any, step: int) -> tuple[Any, ...]:
    """Resumes the playback; at the end it restarts."""
    if not traces:
        return gr.skip(), *_frame(traces, 0), gr.Timer(active=False)
    at = 0 if step >= _longest(traces) else step
    return at, *_frame(traces, at), gr.Timer(active=True)


def _advance(traces: Any, step: int) -> tuple[Any, ...]:
    if not traces:
        return gr.skip(), gr.skip(), gr.skip(), gr.Timer(active=False)
    at = min(step + 1, _longest(traces))
    return at, *_frame(traces, at), gr.Timer(active=at < _longest(traces))


# Runs


def _runs_tab(app: gr.Blocks, root: Path) -> None:
    with gr.Row():
        first = gr.Dropdown([NONE], value=NONE, label=f"Run folder in {root}", elem_id="first-run")
        second = gr.Dropdown([NONE], value=NONE, label="Compared with", elem_id="second-run")
    with gr.Row():
        show, again = gr.Button("Show the page", variant="primary"), gr.Button("Read the list again")
    page = _html("page")
    gr.on([app.load, again.click], partial(_choices, root), None, [first, second], **CHEAP)
    show.click(partial(_page, root), [first, second], page, trigger_mode="once", api_name="page", **DRAWING_JOB)


def _choices(root: Path) -> tuple[Any, Any]:
    names = found_runs(root)
    return gr.Dropdown([NONE, *names], value=NONE), gr.Dropdown([NONE, *names], value=NONE)


def _page(root: Path, first: str, second: str) -> str:
    try:
        return page_view(page_of(root, *(None if name == NONE else name for name in (first, second))))
    except UserError as problem:
        return problem_view(problem)


# Controls


def _model(shelf: Shelf, label: str, none: bool = False) -> gr.Dropdown:
    choices = [(f"{name} (planted)" if planted_in(name) else name, name) for name in shelf.names]
    return gr.Dropdown(
        [*([(NONE, NONE)] if none else []), *choices], value=NONE if none else shelf.names[0], label=label
    )


def _slider(label: str, low: int, high: int, value: int, **more: Any) -> gr.Slider:
    return gr.Slider(low, high, value=value, step=1, label=label, **more)


def _text(label: str, lines: int, **more: Any) -> gr.Textbox:
    return gr.Textbox(label=label, lines=lines, max_lines=12, max_length=MOST_CHARACTERS, **more)


def _html(name: str) -> gr.HTML:
    return gr.HTML(elem_id=name, apply_default_css=False)
