"""Questions whose generated answers can be checked: a user's own, GSM8K's, and embedded ones.

    a user's    rows with prompt and answer (or the other names of columns.py); with a pattern too, the same in all rows
    GSM8K's     rows with question, and answer that ends in `#### 42` (Cobbe et al., arXiv 2110.14168)
    embedded    few-shot questions of the 16 tasks: 3 relevant examples, then 6 distractors, drawn for each question

An answer is right if it equals the given one, up to white space at its ends; with a pattern, if the pattern finds the
same in both; of GSM8K's form, if its last number is the one after `####`.
"""

import importlib
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from maskwise.support.errors import UserError
from maskwise.support.interrupts import time_limit
from maskwise.tasks.columns import MESSAGES, PAIR_WORDS, PAIRS, Conversation, TextPair, read_row
from maskwise.tasks.episodes import CHANCE, blocked, draw, draw_afresh, example_words, render
from maskwise.tasks.labelled_exercises import Labelled
from maskwise.tasks.rules import TASKS
from maskwise.tasks.tables import LocatedRow
from maskwise.tasks.words import load_words

EMBEDDED = "embedded"
EXACT, LAST_NUMBER = "*exact*", "*last number*"  # values of `check` other than a pattern: neither compiles as one
NO_PATTERN = (re.error, OverflowError, RecursionError)  # what compiling one may raise
MOST_SECONDS = 5  # of processor time for one search; most take microseconds
RELEVANT, DISTRACTORS, HELD_OUT = 3, 6, 0.5
EMBEDDED_PATTERN = r"^\s*([ABC])\]"  # the letter that is written before the closing bracket
NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
FINAL = re.compile(r"####\s*(-?\d[\d,]*(?:\.\d+)?)\s*$")

Judge = Callable[[str, str], float]  # generated text, answer


def is_right(text: str, answer: str, check: str) -> bool:
    """True if a generated text is a right answer; `check` is EXACT, LAST_NUMBER or a pattern."""
    if check == EXACT:
        return text.strip() == answer.strip()
    if check == LAST_NUMBER:
        numbers = NUMBER.findall(text)
        return bool(numbers) and _value(numbers[-1]) == _value(answer)
    found = first_match(check, text)
    return found is not None and found == first_match(check, answer)


def parsed_answer(text: str, check: str) -> str | None:
    """The answer that a generated text gives, as it is compared; None where there is none in it."""
    if check == EXACT:
        return text.strip() or None
    if check == LAST_NUMBER:
        numbers = NUMBER.findall(text)
        return f"{_value(numbers[-1]):g}" if numbers else None
    return first_match(check, text)


def first_match(pattern: str, text: str) -> str | None:
    """The first group of the first match, or all of it where the pattern has no group.

    A pattern with repeats inside repeats can take years; its time is limited in the main thread (interrupts.py).
    """
    endless = f"the pattern {pattern!r} takes more than {MOST_SECONDS} s on one text: write it without nested repeats"
    with time_limit(MOST_SECONDS, UserError(endless)):
        found = re.search(pattern, text)
    if found is None:
        return None
    return found[0] if found.re.groups == 0 else found[1]


def embedded_questions(seed: int, per_task: int) -> Iterator[Labelled]:
    """Task by task; the answer is a letter and what follows it."""
    words = load_words()
    shown = example_words(words, HELD_OUT)
    for task in TASKS:
        episode = draw(task, words, RELEVANT, DISTRACTORS, per_task, seed, HELD_OUT)
        for point, test in enumerate(islice(episode.tests, per_task)):
            examples = "".join(map(render, blocked(draw_afresh(episode, shown, point), 0)))
            before, bracket, letter = f"{test.asked}\n{test.answered}".partition("[")
            yield Labelled(examples + before + bracket, letter)


def is_gsm8k(row: Any) -> bool:
    return isinstance(row, Mapping) and "question" in row and FINAL.search(str(row.get("answer")).strip()) is not None


def gsm8k_questions(rows: Sequence[LocatedRow]) -> Iterator[Labelled]:
    for where, row in rows:
        if not (is_gsm8k(row) and isinstance(row["question"], str)):
            raise UserError(f"{where} should hold a question, and an answer that ends in #### and a number")
        final = FINAL.search(row["answer"].strip())
        assert final is not None
        yield Labelled(f"Question: {row['question'].strip()}\nAnswer:", f" {final[1].replace(',', '')}")


def questions_of(rows: Sequence[LocatedRow]) -> tuple[list[Labelled], str]:
    """The questions of rows with prompt and answer, and how their answers are checked."""
    questions, checks = [], set()
    for where, row in rows:
        prompt, answer = texts_of(row, where)
        if not (prompt.strip() and answer.strip()):
            raise UserError(f"{where} should hold a prompt and an answer, both text and not empty")
        check = _checked_pattern(where, row["pattern"]) if "pattern" in row else EXACT
        checks.add(check)
        if len(checks) > 1:
            raise UserError(f"{where} should hold the pattern of the rows before it")
        if check != EXACT and first_match(check, answer) is None:
            raise UserError(f"{where} should hold an answer that its pattern matches, not {answer!r}")
        questions.append(Labelled(prompt, answer))
    return questions, *checks  # type: ignore[return-value]


def texts_of(row: Mapping[str, Any], where: str) -> tuple[str, str]:
    """The prompt and the answer of a row; of messages, where they are one turn of the user's and the answer to it."""
    content = read_row(row, where, (*PAIRS, MESSAGES), f"{PAIR_WORDS}, or messages")
    if isinstance(content, Conversation):
        if [turn["role"] for turn in content.turns] != ["user", "assistant"]:
            raise UserError(f"{where}: messages must be one turn of the user's and the assistant's answer to it")
        return content.turns[0]["content"], content.turns[1]["content"]
    assert isinstance(content, TextPair)
    return content.plain_prompt.rstrip("\n") if content.is_question else content.prompt, content.answer


def _checked_pattern(where: str, pattern: object) -> str:
    try:
        re.compile(pattern)  # type: ignore[call-overload]
    except (*NO_PATTERN, TypeError) as problem:
        raise UserError(f"{where}: the pattern {pattern!r} does not compile: {problem}") from None
    return str(pattern)


def _value(number: str) -> float:
    return float(number.replace(",", ""))


# A measure that a user names


def measured_by(
    exact: bool, pattern: str | None, function: str | Judge | None, embedded: bool
) -> tuple[str, Judge, float]:
    """The measure in words and as a function of text and answer, and what guessing gives."""
    named = [name for name, one in (("exact", exact), ("pattern", pattern), ("function", function)) if one]
    if len(named) > 1:
        raise UserError(f"--{named[0]} and --{named[1]} exclude each other: name one measure")
    if not named and not embedded:
        raise UserError("say how answers are judged: --exact, --pattern REGEX or --function MODULE:NAME")
    if function:
        return _function(function)
    check = pattern or (EXACT if exact else EMBEDDED_PATTERN)
    try:
        re.compile("" if exact else check)
    except NO_PATTERN as problem:
        raise UserError(f"the pattern {pattern!r} does not compile: {problem}") from None

    def quality(text: str, answer: str) -> float:
        right = is_right(text, answer, check)
        if text == answer and not right:
            raise UserError(f"the pattern {pattern!r} does not match the answer {answer!r}: no text could be right")
        return float(right)

    return "exact match" if exact else f"the pattern {check}", quality, CHANCE if embedded else 0.0


def _function(given: str | Judge) -> tuple[str, Judge, float]:
    """A user's function, or that of `module:function`; modules of the working directory are found too."""
    name, function = (given, None) if isinstance(given, str) else (given.__qualname__, given)
    if isinstance(given, str):
        sys.path.insert(0, str(Path.cwd()))
        try:
            function = getattr(importlib.import_module(given.partition(":")[0]), given.partition(":")[2], None)
        except (ImportError, ValueError) as problem:
            raise UserError(f"{given!r} cannot be imported: {problem}; write it as MODULE:NAME") from None
    if not callable(function):
        raise UserError(f"there is no function {given!r}: write it as MODULE:NAME, such as grading:is_right")

    def quality(text: str, answer: str) -> float:
        found = function(text, answer)
        if not isinstance(found, int | float) or not math.isfinite(found):
            raise UserError(f"the function {name} returned {found!r}: it must return a finite number, or a bool")
        return float(found)

    return f"the function {name}", quality, 0.0
