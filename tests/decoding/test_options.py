"""One list of decoding options: the library, the command line and lm-eval have the same names and defaults."""

import inspect
import subprocess
import sys
from dataclasses import fields, replace
from typing import get_type_hints

from typer.testing import CliRunner

import maskwise as mw
from maskwise.cli import app
from maskwise.cli.decoding import SPELLED
from maskwise.decoding.options import OPTION_NAMES, DecodingOptions, SoftMask
from maskwise.lm_eval.model import ARGUMENTS, MaskwiseLM, decoding_options

DEFAULT = DecodingOptions()
DEFAULTS = {name: getattr(DEFAULT, name) for name in OPTION_NAMES}


def test_the_signature_of_generate_is_the_dataclass():
    parameters = inspect.signature(mw.generate).parameters
    others = {"model", "prompts", "generator", "seed", "batch", "out", "divergence", "on_step", "named"}
    assert {name: one.default for name, one in parameters.items() if name not in others} == DEFAULTS
    assert list(parameters)[:4] == ["model", "prompts", "max_new_tokens", "steps"]  # given by position in scripts


def test_generate_documents_every_option():
    for option in fields(DecodingOptions):
        assert f"{option.name}: {option.metadata['help']}"[:40] in mw.generate.__doc__, option.name


def command_options():
    (command,) = [one for one in app.registered_commands if one.callback.__name__ == "generate"]
    return inspect.signature(command.callback).parameters


def test_the_command_line_has_every_option_with_its_help_and_default():
    parameters = command_options()
    for option in fields(DecodingOptions):
        parameter = parameters[option.name]
        (typed,) = parameter.annotation.__metadata__
        assert typed.help.startswith(option.metadata["help"])
        assert parameter.default == (False if option.name == "soft_mask" else option.default), option.name
        if option.name not in SPELLED:
            assert parameter.annotation.__origin__ == get_type_hints(DecodingOptions)[option.name]


def test_help_of_the_command_names_strategies_and_flags():
    shown = CliRunner().invoke(app, ["generate", "--help"], terminal_width=200).output
    flags = [SPELLED[name].flag if name in SPELLED else f"--{name.replace('_', '-')}" for name in OPTION_NAMES]
    for word in (*flags, "low-confidence", "dream-entropy", "-n,"):
        assert word in shown, word


def test_lm_eval_takes_every_option_but_those_it_decides_itself():
    assert set(OPTION_NAMES) - set(ARGUMENTS) == {"max_new_tokens", "chat"}
    assert inspect.signature(MaskwiseLM).parameters["max_new_tokens"].default is None  # what the task asks for
    assert decoding_options({}) == DEFAULT
    given = {"rule": "threshold", "tau": 0.5, "block": 4, "cache": "dual", "soft_mask": True, "end_ids": [1, 2]}
    expected = DecodingOptions(
        block=4, rule="threshold", parameters={"tau": 0.5}, cache="dual", soft_mask=SoftMask(), end_ids=(1, 2)
    )
    assert decoding_options(given) == expected


def test_exact_options_are_those_without_cache_and_window():
    options = DecodingOptions(block=8, canvas="window", window=4, cache="dual", refresh=2, rule="margin")
    assert options.approximate and not options.exact().approximate
    assert options.exact() == DecodingOptions(block=8, canvas="blocks", rule="margin")
    assert replace(options, canvas=None, window=None).exact() == DecodingOptions(block=8, rule="margin")


def test_the_summary_names_what_was_chosen():
    summary = DecodingOptions(block=4, rule="klass", parameters={"tau": 0.5}, soft_mask=SoftMask(scale=0.1)).summary()
    assert set(summary) == set(OPTION_NAMES)
    assert (summary["rule"], summary["parameters"]) == ("klass", {"tau": 0.5, "eps": 0.01})
    assert (summary["canvas"], summary["soft_mask"]["scale"]) == ("blocks", 0.1)


WITHOUT_TORCH = """
import sys
from typer.testing import CliRunner
from maskwise.cli import app
from maskwise.decoding.strategies import STRATEGIES

for arguments in (["--rule", "best"], ["--rule", "threshold", "--parameter", "gamma=1"], ["--canvas", "oil"],
                  ["--rule", "klass", "--parameter", "tau=2"], ["--top-k", "0"], ["--help"]):
    done = CliRunner().invoke(app, ["generate", "tiny-llada", "hello", *arguments])
    assert done.exit_code == (0 if "--help" in arguments else 2), done.output
    if "--help" not in arguments:
        print(done.stderr.strip())
assert len(STRATEGIES) > 10 and "torch" not in sys.modules
"""


def test_wrong_options_are_one_line_and_wait_for_no_torch():
    done = subprocess.run([sys.executable, "-c", WITHOUT_TORCH], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    strategy, parameter, canvas, value, top_k = done.stdout.splitlines()
    assert strategy.startswith("maskwise: unknown unmasking strategy 'best': choose one of random, low-confidence, ")
    assert (
        parameter
        == "maskwise: the strategy threshold has no parameter 'gamma': entropy-bound has it, give --rule entropy-bound"
    )
    assert "unknown canvas 'oil'" in canvas and "top_k 0" in top_k
    assert value == "maskwise: tau of the strategy klass is 2.0: it must be between 0 and 1"
