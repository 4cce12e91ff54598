"""Unmasking strategies as values: what they say about themselves, and one of a user's own."""

import re
from dataclasses import fields

import pytest

import maskwise as mw
from helpers.references import dense_logits
from helpers.tiny import tiny_llada
from maskwise.cli.decoding import decoding_options
from maskwise.decoding.options import DecodingOptions
from maskwise.decoding.strategies import STRATEGIES, Parameter, Strategy, find_strategy, parse_parameters
from maskwise.decoding.strategies.choosing import best
from maskwise.decoding.strategies.state import Choice
from maskwise.support.errors import UserError

EVEN = "maskwise.decoding.strategies.choosing:even_counts"


def right_to_left(rows, state, parameters):
    """Adaptive: the last `width` open rows."""
    after = rows.open.flip(-1).cumsum(-1).flip(-1)  # open rows from here to the end
    return Choice(rows.open & (after <= parameters["width"]))


RIGHT_TO_LEFT = Strategy("right-to-left", "the last masks", right_to_left, parameters=(Parameter("width", 2.0),))


def test_a_strategy_of_ones_own_is_a_value_and_touches_no_other_file():
    model, prompt = tiny_llada(), [5, 9, 2, 30]
    (found,) = mw.generate(model, [prompt], 6, rule=RIGHT_TO_LEFT)
    assert found.order == [2, 2, 1, 1, 0, 0] and found.forwards == 3
    canvas = [*prompt, *[model.mask_id] * 6]
    for first in (8, 6, 4):
        tokens = dense_logits(model, canvas).argmax(-1)
        canvas[first : first + 2] = tokens[first : first + 2].tolist()
    assert found.sequence == canvas
    (single,) = mw.generate(model, [prompt], 6, rule=RIGHT_TO_LEFT, parameters={"width": 1}, block=3)
    assert single.order == [2, 1, 0, 5, 4, 3]
    with pytest.raises(UserError, match="strategy right-to-left decides itself"):
        mw.generate(model, [prompt], 6, rule=RIGHT_TO_LEFT, steps=3)
    with pytest.raises(UserError, match="right-to-left has no parameter 'tau': threshold and klass have it"):
        mw.generate(model, [prompt], 6, rule=RIGHT_TO_LEFT, parameters={"tau": 1})


def test_a_strategy_of_ones_own_may_use_a_schedule_and_functions_by_their_paths():
    def largest_ids(rows, state, parameters):
        return best(rows.tokens.float(), rows, state)

    by_id = Strategy(
        "by-id", "the largest ids", largest_ids, count_function="maskwise.decoding.strategies.choosing:even_counts"
    )
    (found,) = mw.generate(tiny_llada(), [[5, 9]], 6, steps=3, rule=by_id)
    assert sorted(found.order) == [0, 0, 1, 1, 2, 2]
    function, counts = (
        "maskwise.decoding.strategies.llada_remasking:low_confidence",
        EVEN,
    )
    same = Strategy("mine", "the most probable tokens", function, counts)
    assert mw.generate(tiny_llada(), [[5, 9]], 6, rule=same) == mw.generate(tiny_llada(), [[5, 9]], 6)


def test_an_adaptive_strategy_that_commits_nothing_is_stopped():
    idle = Strategy("idle", "nothing", lambda rows, state, parameters: Choice(rows.open & False))
    with pytest.raises(UserError, match="strategy idle commits no token in some steps"):
        mw.generate(tiny_llada(), [[5, 9]], 6, rule=idle)


def test_an_extended_tuple_is_searched_by_name():
    assert find_strategy("right-to-left", (*STRATEGIES, RIGHT_TO_LEFT)) is RIGHT_TO_LEFT
    assert find_strategy(RIGHT_TO_LEFT) is RIGHT_TO_LEFT


def test_every_strategy_is_complete():
    assert len({strategy.name for strategy in STRATEGIES}) == len(STRATEGIES)
    for strategy in STRATEGIES:
        assert strategy.title and callable(strategy.pick)
        assert not strategy.paper or re.search(r", arXiv \d{4}\.\d{5}$", strategy.paper), strategy.name
        assert (strategy.counts is None and strategy.times is None) == strategy.adaptive
        assert strategy.complete(None) == {parameter.name: parameter.default for parameter in strategy.parameters}
    unpublished = {strategy.name for strategy in STRATEGIES if not strategy.paper}
    assert unpublished == {"entropy", "left-to-right"}


def test_wrong_names_and_parameters_are_named():
    with pytest.raises(UserError, match="unknown unmasking strategy 'best': choose one of random, low-confidence"):
        find_strategy("best")
    with pytest.raises(UserError, match="strategy threshold has no parameter 'gamma': choose one of tau, threshold"):
        find_strategy("threshold").complete({"gamma": 1.0})
    for name, parameter, value, within in (
        ("remdm", "eta", -1.0, "between 0 and 1"),
        ("threshold", "tau", float("nan"), "between 0 and 1"),
        ("dream-origin", "eps", 2.0, "between 0 and 1"),
        ("factor", "f", float("inf"), "a number, 0 or more"),
    ):
        with pytest.raises(UserError, match=f"{parameter} of the strategy {name} is {value}: it must be {within}"):
            find_strategy(name).complete({parameter: value})


def test_parameters_are_written_with_their_values():
    assert parse_parameters(["tau=0.8", "eps=1e-3"]) == {"tau": 0.8, "eps": 1e-3}
    for wrong in ("tau", "tau=high", "="):
        with pytest.raises(UserError, match="is not a parameter and its value"):
            parse_parameters([wrong])
    with pytest.raises(UserError, match="parameter tau is given twice: leave one out"):
        parse_parameters(["tau=0.8", "tau=0.9"])


def test_parameters_have_their_published_names_as_keywords():
    """Fast-dLLM's threshold and factor, KLASS's thresholds, Dream's alg_temp: by themselves where only one strategy has
    them; and the command line takes the same."""
    model = tiny_llada()
    prompt, chosen = [[5, 6, 7]], {"rule": "threshold", "parameters": {"tau": 0.1}}
    expected = mw.generate(model, prompt, 8, **chosen)
    assert mw.generate(model, prompt, 8, threshold=0.1) == mw.generate(model, prompt, 8, rule="threshold", tau=0.1)
    assert mw.generate(model, prompt, 8, parameters={"threshold": 0.1}) == expected != mw.generate(model, prompt, 8)
    assert mw.generate(model, prompt, 8, threshold=0.1) == expected
    klass = mw.generate(model, prompt, 8, rule="klass", parameters={"tau": 0.2, "eps": 0.5})
    assert mw.generate(model, prompt, 8, conf_threshold=0.2, kl_threshold=0.5) == klass
    values = {option.name: option.default for option in fields(DecodingOptions)}
    assert decoding_options(values | {"parameters": ["threshold=0.1"]}).all_parameters == {"tau": 0.1}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"thresold": 0.3},
            r"no 'thresold': did you mean threshold\? Parameters that the strategies have: tau",
        ),
        ({"max_tokens": 3}, "no 'max_tokens': did you mean max_new_tokens"),
        (
            {"rule": "threshold", "gamma": 1.0},
            "Parameters that the strategy threshold has: tau, threshold; ",
        ),
        ({"tau": 0.3}, "the strategy low-confidence has no parameter 'tau'"),  # two strategies have a tau
        ({"threshold": 3.0}, "tau of the strategy threshold is 3.0: it must be between 0 and 1"),
        ({"rule": "thresold"}, r"unknown unmasking strategy 'thresold': did you mean threshold\?"),
    ],
)
def test_a_wrong_parameter_is_one_line_that_lists_the_right_ones(given, said):
    with pytest.raises(UserError, match=said):
        mw.generate("no such model", "hi", **given)
