"""The tab Decode: one prompt under two unmasking strategies, forward pass by forward pass."""

from functools import partial
from typing import Any

import gradio as gr

from maskwise.studio import tracing
from maskwise.studio.controls import CHEAP, MODEL_JOB, html, lead, model_choice, slider, text, toast
from maskwise.studio.shelf import Shelf, label_of
from maskwise.studio.strategy_controls import strategy_controls, strategy_options
from maskwise.studio.views import trace_view
from maskwise.support.errors import UserError

NEW = 32
SECONDS_PER_FRAME = 0.5
# Documents of these forms are what the embedded models were trained on; smol-diffusion was trained on natural text.
PROMPT = "Word: otter\nKind:[animal].\n\nWord: green\nKind:["
EXAMPLES = {
    "Kinds of words": ("tiny-llada", PROMPT),
    "Which is the animal?": ("tiny-llada", "Options: (A) bed, (B) mosquito, (C) bathtub\nAnswer:[B].\n\nOptions:"),
    "English (135 M, slower)": ("smol-diffusion", "Photosynthesis is the process by which"),
}


def decode_tab(shelf: Shelf) -> None:
    lead("One prompt, two unmasking strategies. Decode, then play the forward passes or move the slider.")
    with gr.Row():
        with gr.Column(scale=1, min_width=300):
            model = model_choice(shelf, "Model")
            prompt = text("Prompt", 5, value=PROMPT, elem_id="prompt")
            _examples(shelf, model, prompt)
            new = slider("New tokens", 8, tracing.MOST_NEW, NEW, 8)
            first = strategy_controls("First strategy", "low-confidence")
            second = strategy_controls("Second strategy", "threshold")
        with gr.Column(scale=3, min_width=300):
            with gr.Row():
                start = gr.Button("Decode", variant="primary", min_width=90)
                play, pause = gr.Button("Play", min_width=90), gr.Button("Pause", min_width=90)
            step = slider("Forward pass", 0, 1, 0, elem_id="step")
            with gr.Row():
                empty = [trace_view(title, PROMPT, tracing.empty_trace(NEW), 0) for title in ("First", "Second")]
                with gr.Column(min_width=300):
                    left = html("left", empty[0])
                with gr.Column(min_width=300):
                    right = html("right", empty[1])
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


def _examples(shelf: Shelf, model: gr.Dropdown, prompt: gr.Textbox) -> None:
    offered = {title: [*example] for title, example in EXAMPLES.items() if example[0] in shelf.names}
    shown: Any = {"example_labels": list(offered), "label": "Examples", "api_visibility": "private"}
    gr.Examples(list(offered.values()), [model, prompt], **shown)


def _decode(shelf: Shelf, model: str, prompt: str, new: int, *controls: Any) -> tuple[Any, ...]:
    half = len(controls) // 2
    try:
        options = [strategy_options(new, *one) for one in (controls[:half], controls[half:])]
        opened = shelf.take(model)
        traces = [
            (f"{label_of(model)}, {tracing.in_words(opened, one)}", prompt, tracing.trace(opened, prompt, one))
            for one in options
        ]
    except UserError as problem:
        toast(problem)
        return gr.skip(), gr.skip(), gr.skip(), gr.skip(), gr.Timer(active=False)
    last = _longest(traces)
    return traces, gr.Slider(maximum=last, value=last), *_frame(traces, last), gr.Timer(active=False)


def _longest(traces: Any) -> int:
    return max(trace.forwards for _, _, trace in traces)


def _frame(traces: Any, step: int) -> tuple[Any, Any]:
    if not traces:
        toast("Decode the prompt first.")
        return gr.skip(), gr.skip()
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
