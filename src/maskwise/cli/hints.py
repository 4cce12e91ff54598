"""Help and messages in words, with hints for options of other tools and for what 0.3 removed."""

import re
from typing import Any

import typer
import typer.core

from maskwise.support.removed import removed

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


def in_words(text: str, command: str | None = None) -> str:
    """A help text or message (of a command) with ranges such as x>=1 as people say them."""
    for pattern, words in RANGES:
        text = re.sub(pattern, words, text)
    found = re.match(r"No such (?:option|command):? (\S+?)\.?(?: |$)", text)
    if found:
        kind = "command" if "command" in found[0] else "option"
        name = found[1].strip("'")
        if line := removed(kind, name) or removed(f"{kind} of {command}", name):
            return line
        if found[1] in ELSEWHERE:
            return f"{found[0].strip().rstrip('.')}: {ELSEWHERE[found[1]]}"
    if text.startswith("Got unexpected extra argument"):
        return f"{text}: leave it out, or put a text of several words in quotes"
    return text


class Command(typer.core.TyperCommand):
    """A command whose help says types and ranges in words."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        for one in self.params:
            _describe_in_words(one)

    def get_help(self, ctx: Any) -> str:
        return in_words(super().get_help(ctx))


def _describe_in_words(parameter: Any) -> None:
    """Before typer lays the help out: no <str> or <list[Path]> after an argument's name, no x>=1."""
    if parameter.param_type_name == "argument":
        parameter.display_type_rich = lambda ctx: None
    describe = getattr(parameter, "_get_number_range_help_str", lambda: None)
    parameter._get_number_range_help_str = lambda: in_words(describe() or "") or None
