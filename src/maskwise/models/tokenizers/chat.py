"""Chat templates are programs of a stranger: they are rendered in a sandbox, in bounded time and memory."""

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import TemplateError

from maskwise.models.tokenizers.chat_sandbox import LimitedEnvironment, TooLong
from maskwise.support.errors import UserError
from maskwise.support.interrupts import time_limit

SECONDS = 3  # of processor time; most take milliseconds
# What a template that writes the date is shown, so that records and training data do not differ by the day.
FIXED_DATE = datetime(2026, 1, 1)


class _OutOfTime(Exception):
    pass


def writes_date(tokenizer: Any) -> bool:
    """Whether the chat template asks for the date."""
    return "strftime_now" in str(getattr(tokenizer, "chat_template", None))


def render_chat(
    tokenizer: Any,
    turns: Sequence[dict[str, str]],
    what: str = "the chat template",
    add_generation_prompt: bool = False,
    today: bool = False,
) -> str:
    """The turns as the tokenizer's chat template writes them; what it refuses, or cannot do in time, is one line.
    today: a template that writes the date is given today's, else FIXED_DATE."""
    date = datetime.now() if today else FIXED_DATE
    shown = {**tokenizer.special_tokens_map, "strftime_now": date.strftime}
    messages = [{key: value for key, value in turn.items() if value is not None} for turn in turns]
    try:
        with time_limit(SECONDS, _OutOfTime()):
            template = _compiled(tokenizer.get_chat_template(None, None))
            written = template.render(
                messages=messages, tools=None, documents=None, add_generation_prompt=add_generation_prompt, **shown
            )
    except _OutOfTime:
        raise UserError(f"{what} takes more than {SECONDS} seconds: use another template, or none") from None
    except TooLong as problem:
        raise UserError(f"{what} cannot be used ({problem}): use another template, or none") from None
    except TemplateError as problem:
        raise UserError(f"{what} refuses these turns ({(str(problem).splitlines() or ['no reason'])[0]})") from None
    except Exception as problem:  # a program of a stranger may raise anything
        reason = f"{type(problem).__name__}: {problem}".splitlines()[0]
        raise UserError(f"{what} cannot be used ({reason}): use another template, or none") from None
    return str(written)


@lru_cache(maxsize=64)
def _compiled(template: str) -> Any:
    return LimitedEnvironment().compile_limited(template)
