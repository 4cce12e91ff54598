"""The settings that are searched: distinct, valid, and written in three ways that mean the same."""

import re
import shlex

import pytest
import typer

from maskwise.advice.plan import FASTEST_PASS, asked_at_most, fit_plan, most_passes
from maskwise.advice.questions import EMBEDDED_SPACE
from maskwise.advice.search_space import SearchSpace, Setting, settings_in, within_blocks
from maskwise.advice.selection import Plan, fewest_questions
from maskwise.cli import app
from maskwise.cli.decoding import decoding_options
from maskwise.decoding.options import OPTION_NAMES, DecodingOptions
from maskwise.lm_eval.model import decoding_options as lm_eval_options
from maskwise.probes.library.confidence import HELD, TAU, advice
from maskwise.scoring.estimates import Estimate
from maskwise.support.errors import UserError

SPACES = [SearchSpace(), EMBEDDED_SPACE, SearchSpace(max_new_tokens=64, rules=("random", "klass:tau=0.8:eps=0.02"))]
STOPPING = SearchSpace(max_new_tokens=64, blocks=(8,), end_ids=(382, 7))


def every(space: SearchSpace) -> list[Setting]:
    first = settings_in(space)
    return [*first, *(variant for setting in first for variant in space.cached_variants(setting))]


@pytest.mark.parametrize("space", SPACES)
def test_settings_have_names_of_their_own_and_the_reference_shows_all_masks_and_takes_the_most_steps(space):
    settings = every(space)
    assert len({setting.name for setting in settings}) == len(settings) == len({s.options for s in settings})
    reference = settings[0]
    assert reference.options.chosen_canvas == "fixed" and reference.options.cache == "none"
    assert reference.passes == max(setting.passes for setting in settings)
    assert all(setting.options.guidance == 0 for setting in settings)


@pytest.mark.parametrize("space", SPACES)
def test_python_and_lm_eval_say_the_same_options(space):
    for setting in every(space):
        given = eval(setting.python().replace("mw.generate(model, prompts, ", "dict("))
        assert DecodingOptions(**given) == setting.options
        arguments = shlex.split(setting.lm_eval("tiny-llada", "a b"))
        assert arguments[:3] == ["--model", "maskwise", "--model_args"]
        pairs = dict(part.split("=") for part in arguments[3].split(","))
        assert (pairs.pop("pretrained"), pairs.pop("adapter")) == ("tiny-llada", "a b")
        new = int(pairs.pop("max_new_tokens"))
        read = {k: float(v) if "." in v else int(v) if v.isdecimal() else v for k, v in pairs.items()}
        options = {name: value for name, value in setting.given.items() if name != "max_new_tokens"}
        assert lm_eval_options(read) == DecodingOptions(**options) and new > 0


def test_the_command_line_gives_the_same_options():
    command = typer.main.get_command(app).commands["generate"]
    for setting in (*every(SPACES[0])[::5], *every(STOPPING)[::5]):
        words = shlex.split(setting.command("tiny-llada", "folder"))
        assert words[:3] == ["maskwise", "generate", "tiny-llada"]
        given = command.make_context("generate", words[2:]).params
        assert given["adapter"] == "folder"
        assert decoding_options({name: given[name] for name in OPTION_NAMES}) == setting.options


def test_what_does_not_fit_is_left_out_and_said():
    space = SearchSpace(max_new_tokens=96, blocks=(8, 7, 96), rules=("low-confidence", "margin"), steps=(96, 12, 5))
    settings = settings_in(space)
    assert {setting.options.block for setting in settings} == {None, 8}
    assert {setting.passes for setting in settings if setting.options.block == 8} == {96, 12}
    one_step_a_block = [s for s in settings if s.options.canvas == "growing" and s.passes == 12]
    assert len(one_step_a_block) == 1  # both strategies would fill the block at once
    left = "; ".join(space.not_tried())
    assert re.search(r"strategies random, .*threshold", left) and "blocks 7, which do not divide 96" in left
    assert "blocks 96, which hold all 96 tokens at once" in left
    assert "guidance" in left and "low-confidence" not in left
    with pytest.raises(UserError, match="fewer than two settings"):
        settings_in(SearchSpace(canvases=("fixed",), rules=("low-confidence",), steps=(128,)))


def test_a_plan_costs_at_most_what_is_said_and_a_small_budget_buys_fewer_questions():
    settings = settings_in(EMBEDDED_SPACE)
    whole = fit_plan(settings, 2, 160, 0.05, None)
    assert whole.searched + whole.held == 160
    fitted = fit_plan(settings, 2, 160, 0.01, 480)
    assert fitted.searched < whole.searched
    assert most_passes(settings, 2, fitted).search * 0.01 <= 120
    with pytest.raises(UserError, match=r"too small for one round: up to [\d,]+ forward passes"):
        fit_plan(settings, 2, 160, FASTEST_PASS, 0.06)
    with pytest.raises(UserError, match="10 questions are too few for 7 settings: give 32 or more, or fewer"):
        fit_plan(settings, 2, 10, FASTEST_PASS, None)
    # 7 settings of 24 passes; 4 stay with two caches each, 12 in all; 4 are confirmed
    assert fewest_questions(7) == 32 and asked_at_most(7, 2, Plan((4, 8), 24)) == 7 * 4 + 12 * 8
    cost = most_passes(settings, 2, Plan((4, 8), 24))
    assert cost.search == 7 * 24 * 4 + 4 * 24 * 4 + 2 * 4 * 24 * 8 and cost.per_held == 4 * 24


def test_texts_that_stop_at_a_token_say_so_in_python_and_on_the_command_line():
    setting = settings_in(STOPPING)[0]
    assert setting.options.early_stop and setting.options.end_ids == (382, 7)
    assert DecodingOptions(**eval(setting.python().replace("mw.generate(model, prompts, ", "dict("))) == setting.options
    assert "--early-stop" in setting.command("m") and "--end-id 382 --end-id 7" in setting.command("m")
    assert "end" not in setting.lm_eval("m")


def test_a_model_with_blocks_of_its_own_searches_those_and_what_divides_them():
    space = within_blocks(SearchSpace(max_new_tokens=64, blocks=(8, 24, 32, 64)), 32)
    settings = settings_in(space)
    assert {(one.options.canvas, one.options.block) for one in settings} == {("blocks", 32), ("blocks", 8)}
    assert settings[0].name == "blocks canvas, block 32, low-confidence, 64 steps"  # the reference
    assert {one.options.cache for one in space.cached_variants(settings[0])} == {"prefix", "dual"}
    assert "canvases fixed, growing, window" in "; ".join(space.not_tried())
    short = settings_in(within_blocks(SearchSpace(max_new_tokens=16, blocks=(4, 8)), 32))
    assert {one.options.block for one in short} == {None, 4, 8} and short[0].options.canvas is None


@pytest.mark.parametrize(("verified_low", "shown"), [(0.91, True), (0.84, False)])
def test_the_threshold_that_the_probe_confidence_advises_is_taken_by_advise_and_if_shown_by_generate(
    verified_low, shown
):
    held = Estimate(HELD, 0.95, verified_low, 0.97, 32, against=0.9, claim="above")
    line = advice([Estimate(TAU, 0.63), held])
    decode = "--rule threshold --parameter tau=0.63"
    assert ("--rule threshold" in line) == (decode in line) == shown
    if not shown:
        rules = tuple(re.search(r"maskwise advise --rules (\S+)", line)[1].split(","))
        found = settings_in(SearchSpace(max_new_tokens=8, blocks=(8,), rules=rules))
        (one,) = [setting for setting in found if setting.options.rule == "threshold"]
        assert one.options.parameters == {"tau": 0.63} and decode in one.command("m")
