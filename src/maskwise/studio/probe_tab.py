"""The tab Probe: one question asked of one or two models, with masks after the answer."""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

import gradio as gr

from maskwise.studio import probing
from maskwise.studio.controls import CHEAP, MODEL_JOB, NONE, html, lead, model_choice, slider, text
from maskwise.studio.shelf import Shelf, label_of
from maskwise.studio.views import Side, probed_view, problem_view
from maskwise.support.errors import UserError

TASK, POINT, RELEVANT = "animal-largest", 4, 1  # what the page asks first


def probe_tab(app: gr.Blocks, shelf: Shelf) -> None:
    first = probing.draw_question(TASK, POINT, RELEVANT)
    lead(
        "One question with masks after the answer. The curve shows the right answer's probability; colours show which "
        "tokens the answer depends on."
    )
    with gr.Row():
        with gr.Column(scale=1, min_width=300):
            model, other = model_choice(shelf, "Model"), model_choice(shelf, "Compare with", none=True)
            masks = slider("Masks after the answer", 0, probing.MOST_MASKS, 0, elem_id="masks")
            distance = slider("Distance of the relevant example (%)", 0, 100, 0)
            distractors = slider("Distractors", 0, probing.MOST_DISTRACTORS, 10)
            with gr.Accordion("Question and context", open=False):
                task = gr.Dropdown(probing.TASK_NAMES, value=TASK, label="Task")
                point = slider("Question number", 0, probing.MOST_POINTS - 1, POINT)
                relevant = slider("Relevant examples", 0, probing.MOST_RELEVANT, RELEVANT)
                context = text("Context", 4, value=first.context, elem_id="context")
                question = text("Question", 3, value=first.question, elem_id="question")
                answer = text("Right answer (optional)", 1, value=first.answer, elem_id="answer")
        with gr.Column(scale=3, min_width=300):
            waiting = Side(label_of(shelf.names[0]), None, f"{first.context}\n\n{first.question}")
            result = html("probed", probed_view([waiting]))
    given = [model, other, context, question, answer, task, point, relevant, distractors, distance, masks]
    gr.on(
        [task.input, point.input, relevant.input],
        _draw,
        [task, point, relevant],
        [context, question, answer, result],
        trigger_mode="always_last",
        **CHEAP,
    )
    # `change` of the texts, whoever wrote them: `input` misses what is pasted.
    changes = [one.change for one in (context, question, answer)]
    changes += [one.input for one in (model, other, distractors, distance, masks)]
    then: dict = {"fn": partial(_ask, shelf), "inputs": given, "outputs": result, "show_progress": "hidden"}
    gr.on([app.load, *changes], trigger_mode="always_last", api_name="probe", **then, **MODEL_JOB)


def _draw(task: str, point: int, relevant: int) -> tuple[Any, ...]:
    try:
        drawn = probing.draw_question(task, point, relevant)
    except UserError as problem:
        return gr.skip(), gr.skip(), gr.skip(), problem_view(problem)
    return drawn.context, drawn.question, drawn.answer, gr.skip()


def _ask(shelf: Shelf, model: str, other: str, *given: Any) -> Iterator[str]:
    """The answers first, one model after the other, then the curves and the attributions, which take longer."""
    *fields, distance, masks = given
    try:
        asked = probing.ContextQuestion(*[*fields, 1 - distance / 100, masks])
        names = [model] if other in (NONE, model) else [model, other]
        sides = [Side(label_of(name), None, f"{asked.context}\n\n{asked.question}") for name in names]
        for number, name in enumerate(names):
            sides[number] = replace(sides[number], found=probing.probe(shelf.take(name), asked))
            yield probed_view(sides)
        for number, name in enumerate(names):
            sides[number] = replace(sides[number], curve=_curve(shelf, name, replace(asked, masks=0)))
        yield probed_view(sides)
        for number, side in enumerate(sides):
            assert side.found is not None
            sides[number] = replace(side, found=probing.attributed(side.found))
            yield probed_view(sides)
    except UserError as problem:
        yield problem_view(problem)


@lru_cache(maxsize=64)  # another number of masks moves the mark along the same curve
def _curve(shelf: Shelf, name: str, asked: probing.ContextQuestion) -> probing.MaskCurve:
    return probing.right_answer_curve(shelf.take(name), asked)
