"""What a good answer is: one measure, which the user names. There is no default. Imports no torch until a judge scores.

exact      1 where the generated text is the answer, white space at its ends aside
pattern    1 where the pattern finds the same in the generated text and in the answer
function   what a function of the user's gives for (generated text, answer): a number
judge      log-likelihood (nats per token) of the generated text after its prompt, under another model
"""

import importlib
import math
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from maskwise.advice.questions import DecodingQuestion
from maskwise.support.errors import UserError
from maskwise.tasks.checkable import EXACT, NO_PATTERN, first_match, is_right

if TYPE_CHECKING:
    from maskwise.models.model import Model

Judge = Callable[[str, str], float]  # generated text, answer
JUDGE_SAMPLES = 32  # Monte Carlo draws for a masked judge; an autoregressive one takes one pass


@dataclass(frozen=True)
class Quality:
    """The measure of an answer that the user named."""

    kind: Literal["exact", "pattern", "function", "judge"]
    said: str  # the pattern, module:function, or the judge's name
    function: Judge | None = None

    @property
    def needs_answers(self) -> bool:
        return self.kind != "judge"

    @property
    def in_words(self) -> str:
        return {
            "exact": "exact match",
            "pattern": f"the pattern {self.said} finds what it finds in the answer",
            "function": f"the function {self.said}",
            "judge": f"log-likelihood in nats per token under {self.said}",
        }[self.kind]

    @property
    def is_share(self) -> bool:
        return self.kind in ("exact", "pattern")

    def of_text(self, text: str, answer: str) -> float:
        """Of one generated text; not of a judge."""
        if self.kind in ("exact", "pattern"):
            return float(is_right(text, answer, EXACT if self.kind == "exact" else self.said))
        assert self.function is not None
        return as_number(self.function(text, answer), self.said)


def chosen_quality(
    exact: bool = False, pattern: str | None = None, function: str | Judge | None = None, judge: Any = None
) -> Quality:
    """The one measure that was named; none or several are refused, as are a broken pattern and a missing function."""
    measures = {"exact": exact or None, "pattern": pattern, "function": function, "judge": judge}
    named = [name for name, given in measures.items() if given is not None]
    if not named:
        raise UserError("say how answers are judged: --exact, --pattern REGEX, --function MODULE:NAME or --judge MODEL")
    if len(named) > 1:
        raise UserError(f"--{named[0]} and --{named[1]} exclude each other: name one measure")
    if pattern is not None:
        try:
            re.compile(pattern)
        except NO_PATTERN as problem:
            raise UserError(f"the pattern {pattern!r} does not compile: {problem}") from None
        return Quality("pattern", pattern)
    if callable(function):
        return Quality("function", f"{function.__module__}:{function.__qualname__}", function)
    if function is not None:
        return Quality("function", function, find_function(function))
    if exact:
        return Quality("exact", "exact")
    return Quality("judge", str(judge) if isinstance(judge, str | Path) else judge.name)


def check_quality(quality: Quality, questions: Sequence[DecodingQuestion]) -> None:
    """A measure must give its best to the answers themselves; refuses one that finds nothing in them."""
    if quality.kind == "pattern":
        found = [first_match(quality.said, question.answer or "") for question in questions]
        missing = [number for number, match in enumerate(found, 1) if match is None]
        if len(missing) == len(questions):
            raise UserError(
                f"the pattern {quality.said!r} never matches its own answers: it must find the result in them too, as "
                f"in {questions[0].answer!r}"
            )
        if missing:
            raise UserError(
                f"the pattern {quality.said!r} does not match the answer of question {missing[0]}, "
                f"{questions[missing[0] - 1].answer!r}: no generated text could be right"
            )
    elif quality.kind == "function":
        for question in questions:
            quality.of_text(question.answer or "", question.answer or "")


def find_function(name: str) -> Judge:
    """The function of `module:function`; modules of the working directory are found too."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise UserError(f"{name!r} is no function: write it as MODULE:NAME, such as grading:is_right")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(importlib.import_module(module), function, None)
    except ImportError as problem:
        raise UserError(f"the module {module!r} of {name!r} cannot be imported: {problem}") from None
    if not callable(found):
        raise UserError(f"the module {module!r} has no function {function!r}: write it as MODULE:NAME")
    return found


def as_number(value: Any, name: str) -> float:
    """What a user's function returned."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise UserError(f"the function {name} returned {value!r}: it must return a number, or True or False") from None
    if not math.isfinite(number):
        raise UserError(f"the function {name} returned {number}: it must return a finite number")
    return number


def judged(judge: "Model", prompts: Sequence[str], texts: Sequence[str], seed: int) -> list[float]:
    """Nats per token of each text after its prompt. An empty text counts as one token drawn from all alike."""
    from maskwise.decoding.score import score

    written = [place for place, text in enumerate(texts) if text.strip()]
    values = [-log(judge.vocab)] * len(texts)
    if written:
        pairs = [{"prompt": prompts[place], "answer": texts[place]} for place in written]
        for place, found in zip(written, score(judge, pairs, samples=JUDGE_SAMPLES, seed=seed), strict=True):
            values[place] = found.log_likelihood / found.tokens
    return values
