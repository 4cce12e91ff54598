"""Each strategy has the sliders that its declared parameters give, and no others."""

import sys

import pytest

from maskwise.decoding.strategies import STRATEGIES, find_strategy

pytest.importorskip("gradio", reason="no Gradio here: pip install .[studio]")

from maskwise.studio.strategy_controls import PARAMETERS, parameter_slider, strategy_options

OTHERS = (0, 0, "fixed", 8, "none")


@pytest.mark.parametrize(("strategy", "parameter"), PARAMETERS, ids=lambda one: one.name)
def test_a_slider_begins_at_the_default_and_covers_what_the_strategy_declares(strategy, parameter):
    slider = parameter_slider(strategy, parameter)
    assert (slider.label, slider.minimum, slider.value) == (parameter.name, 0, parameter.default)
    assert slider.maximum == parameter.largest or parameter.largest == sys.float_info.max
    for value in (parameter.default, *(speed.get(parameter.name, 0) for speed in strategy.speeds)):
        assert value <= slider.maximum
        assert value / slider.step == pytest.approx(round(value / slider.step))


@pytest.mark.parametrize("rule", [strategy.name for strategy in STRATEGIES])
def test_only_the_chosen_strategys_parameters_count(rule):
    values = [0.5 if strategy.name == rule else 0.25 for strategy, _ in PARAMETERS]
    options = strategy_options(8, rule, *values, *OTHERS)
    assert options.all_parameters == {parameter.name: 0.5 for parameter in find_strategy(rule).parameters}
    assert options.strategy.name == rule
