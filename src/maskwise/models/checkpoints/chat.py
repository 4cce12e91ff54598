"""Rendering of chat templates, which are untrusted code: in transformers' sandbox and in bounded time."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError, nodes
from jinja2.sandbox import ImmutableSandboxedEnvironment

from maskwise.support.errors import UserError
from maskwise.support.interrupts import time_limit

SECONDS = 10
LARGEST_NUMBER = 10**6  # in a template; real ones count messages


class _TooLong(Exception):
    pass


def render_chat(tokenizer: Any, turns: Sequence[dict[str, str]], what: str = "the chat template", **how: Any) -> str:
    """The turns as the tokenizer's chat template writes them; what it refuses, or cannot do in time, is one line."""
    named = tokenizer.chat_template  # one template, or several by name
    for template in named.values() if isinstance(named, dict) else [named]:
        reason = _refusal(template) if isinstance(template, str) else None
        if reason:
            raise UserError(f"{what} {reason}: use another template, or none")
    try:
        with time_limit(SECONDS, _TooLong()):
            written = tokenizer.apply_chat_template(list(turns), tokenize=False, **how)
    except _TooLong:
        raise UserError(f"{what} takes more than {SECONDS} seconds: use another template, or none") from None
    except TemplateError as problem:
        raise UserError(f"{what} refuses these turns ({str(problem).splitlines()[0] or 'no reason'})") from None
    except Exception as problem:  # a program of a stranger may raise anything
        reason = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise UserError(f"{what} cannot be used ({reason}): use another template, or none") from None
    if not isinstance(written, str):
        raise UserError(f"{what} writes no text: use another template, or none")
    return written


@lru_cache(maxsize=64)
def _refusal(template: str) -> str | None:
    """Refuses operations that a timeout cannot interrupt, such as 10**10**8, or that fill the memory."""
    try:
        tree = ImmutableSandboxedEnvironment(extensions=["jinja2.ext.loopcontrols"]).parse(template)
    except TemplateError:
        return None  # transformers knows more tags; where it does not, rendering says so
    except (RecursionError, ValueError):
        return "cannot be read"
    if next(tree.find_all(nodes.Pow), None) is not None:
        return "computes powers"
    numbers = (constant.value for constant in tree.find_all(nodes.Const) if isinstance(constant.value, int | float))
    return "counts beyond a million" if any(abs(number) > LARGEST_NUMBER for number in numbers) else None
