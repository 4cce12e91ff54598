"""Options that have another name now: the old spelling works for one version, with one line on standard error."""

import re
from typing import Any

import typer
import typer.core

from maskwise.cli.common import echo

# command -> {old spelling: new spelling}; to be removed with the version after 0.2
RENAMED_OPTIONS = {"tune": {"--rate": "--learning-rate", "--checkpointing": "--gradient-checkpointing"}}
RANGES = (
    (r"(\d+)<=x<=9223372036854775807", r"\1 or more"),
    (r"\bx>=(\d+)", r"\1 or more"),
    (r"(\d+)<=x<=(\d+)", r"\1 to \2"),
    (r"\{([A-Z]+)\}", r"\1"),  # an argument that must be given, in the line of usage
)
# What people type who know other tools, and what it is called here.
ELSEWHERE = {
    "--model": "the model is the first argument",
    "--model-name": "the model is the first argument",
    "--prompt": "the prompt is the argument after the model",
    "--num-beams": "there is no beam search",
    "--load-in-4bit": "use --weights fp8",
    "--load-in-8bit": "use --weights fp8",
    "--mc_num": "use --samples",
    "--num-steps": "use --steps",
    "--epochs": "the length of a training is given in --steps (tune, train)",
    "--num-train-epochs": "the length of a training is given in --steps (tune, train)",
    "--tau": "use --parameter tau=0.8",
    "--threshold": "use --parameter threshold=0.9",
    "--lora-r": "use --lora-rank",
    "--output": "use --out",
    "--output-dir": "use --out",
    "--fast": "use --quick",
    "'chat'": "use maskwise generate, or maskwise studio",
    "'eval'": "use maskwise score, or lm_eval --model maskwise",
    "'lm_eval'": "run lm_eval --model maskwise --model_args pretrained=MODEL",
}


def in_words(text: str) -> str:
    """A help text or message with ranges such as x>=1 as people say them."""
    for pattern, words in RANGES:
        text = re.sub(pattern, words, text)
    found = re.match(r"No such (?:option|command):? (\S+?)\.?(?: |$)", text)
    if found and found[1] in ELSEWHERE:
        return f"{found[0].strip().rstrip('.')}: {ELSEWHERE[found[1]]}"
    if text.startswith("Got unexpected extra argument"):
        return f"{text}: leave it out, or put a text of several words in quotes"
    return text


class CommandWithOldNames(typer.core.TyperCommand):
    """A command that still reads the old spellings of its options, and whose help says types and ranges in words."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        for one in self.params:
            _describe_in_words(one)

    def get_help(self, ctx: Any) -> str:
        return in_words(super().get_help(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        renamed = RENAMED_OPTIONS.get(self.name or "", {})
        return super().parse_args(ctx, [_current_name(argument, renamed) for argument in args])


def _describe_in_words(parameter: Any) -> None:
    """Before typer lays the help out: no <str> or <list[Path]> after an argument's name, no x>=1."""
    if parameter.param_type_name == "argument":
        parameter.display_type_rich = lambda ctx: None
    describe = getattr(parameter, "_get_number_range_help_str", lambda: None)
    parameter._get_number_range_help_str = lambda: in_words(describe() or "") or None


def _current_name(argument: str, renamed: dict[str, str]) -> str:
    """`--rate` and `--rate=1e-4`, with a line on standard error; anything else as it is."""
    option, equals, value = argument.partition("=")
    if option not in renamed:
        return argument
    echo(f"maskwise: {option} is now {renamed[option]}; the old name will be removed", err=True)
    return renamed[option] + equals + value
