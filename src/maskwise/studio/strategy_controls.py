"""Controls of one unmasking strategy. Its sliders are made from the parameters that the strategy declares."""

import sys
from math import ceil
from typing import Any

import gradio as gr

from maskwise.decoding.options import CACHES, DecodingOptions
from maskwise.decoding.strategies import STRATEGIES, Parameter, Strategy, find_strategy
from maskwise.studio.controls import CHEAP, slider
from maskwise.studio.tracing import MOST_STEPS, decoding_options

CANVAS_CHOICES = (("all", "fixed"), ("growing", "growing"), ("window", "window"))  # label, value
# Every parameter of every strategy has a slider of its own, which keeps its value while another strategy is chosen.
PARAMETERS = tuple((strategy, parameter) for strategy in STRATEGIES for parameter in strategy.parameters)


def strategy_controls(title: str, rule: str) -> list[gr.components.Component]:
    """The components whose values `strategy_options` takes, in its order."""
    names, about = [one.name for one in STRATEGIES], find_strategy(rule).title
    chosen = gr.Dropdown(names, value=rule, label=title, info=about, elem_id=title.split()[0])
    sliders = [parameter_slider(*one, visible=one[0].name == rule) for one in PARAMETERS]
    with gr.Accordion("Steps, block, canvas, cache", open=False):
        steps = slider("Steps (0: one per token)", 0, MOST_STEPS, 0, visible=not find_strategy(rule).adaptive)
        block = gr.Dropdown([0, 4, 8, 16, 32], value=0, label="Block size (0: one block)")
        canvas = gr.Radio(list(CANVAS_CHOICES), value="fixed", label="Canvas: masks that the model sees")
        window = slider("Masks past the block", 0, 64, 8, visible=False)
        cache = gr.Radio(list(CACHES), value="none", label="Cache")
    chosen.input(_fitting, chosen, [chosen, steps, *sliders], **CHEAP)
    canvas.input(lambda canvas: gr.Slider(visible=canvas == "window"), canvas, window, **CHEAP)
    return [chosen, *sliders, steps, block, canvas, window, cache]


def parameter_slider(strategy: Strategy, parameter: Parameter, visible: bool = True) -> gr.Slider:
    """From 0 to the largest value, or to twice what the strategy's own settings reach. The step reaches the default."""
    reached = [parameter.default, *(speed.get(parameter.name, 0) for speed in strategy.speeds), 1]
    largest = 2 * ceil(max(reached)) if parameter.largest == sys.float_info.max else parameter.largest
    step = 0.01 if round(parameter.default, 2) == parameter.default else 0.001
    return slider(parameter.name, 0, largest, parameter.default, step, visible=visible)


def strategy_options(new: int, rule: str, *values: Any) -> DecodingOptions:
    """Decoding options of one set of controls; parameters of other strategies are left out."""
    numbers, others = values[: len(PARAMETERS)], values[len(PARAMETERS) :]
    named = zip(PARAMETERS, numbers, strict=True)
    own = {parameter.name: number for (strategy, parameter), number in named if strategy.name == rule}
    return decoding_options(new, rule, own, *others)


def _fitting(rule: str) -> list[Any]:
    chosen = find_strategy(rule)
    shown = [gr.Slider(visible=strategy.name == rule) for strategy, _ in PARAMETERS]
    return [gr.Dropdown(info=chosen.title), gr.Slider(visible=not chosen.adaptive), *shown]
