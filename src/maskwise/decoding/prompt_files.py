"""Prompts of a command from its argument, a file or standard input, and the answers to score. Imports no torch."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from maskwise.support.errors import UserError
from maskwise.support.files import Records, read_text
from maskwise.tasks.columns import MESSAGES, PAIR_WORDS, PAIRS, Conversation, TextPair, keys_in_words, read_row
from maskwise.tasks.tables import located_rows, note_json_lines

if TYPE_CHECKING:
    from maskwise.models.generation import PromptInput

# How models write their masks.
MASK_LIKE = re.compile(r"\[MASK\]|<\|?(?:mdm_)?mask\|?>", re.IGNORECASE)

# The prompt of `maskwise generate` without an argument: a document that the embedded models can continue.
TRY = """Word: otter
Kind:[animal].

Word: lemon
Kind:[fruit].

Word: brave
Kind:[adjective].

Word: green
Kind:["""


def gather_prompts(prompt: str | None, file: Path | None, standard_input: IO[str]) -> "Sequence[PromptInput]":
    """The prompts of a command: its argument, a file, standard input for `-`, or one to try."""
    if file is not None and prompt is not None:
        raise UserError("a prompt and --file exclude each other: give one")
    if file is not None:
        return read_prompts(file)
    if prompt != "-":
        return [TRY if prompt is None else prompt]
    try:
        return prompts_of(standard_input, "standard input")
    except UnicodeDecodeError:
        raise UserError("standard input is not UTF-8 text: give one prompt a line") from None


def read_prompts(file: Path) -> "Sequence[PromptInput]":
    """One prompt per line; a .jsonl file has one JSON object with a "prompt" or "messages" per line."""
    if file.suffix in (".jsonl", ".json", ".ndjson", ".csv", ".tsv", ".parquet"):
        return [_prompt(row, where) for where, row in located_rows(file)]
    text = read_text(file, "save it as .txt, a prompt a line, or as .jsonl or .csv")
    note_json_lines(file, text)
    return prompts_of(text.split("\n"), str(file))


def _prompt(row: Any, where: str) -> "PromptInput":
    """A text prompt, or messages, which TRL calls prompt too."""
    if not isinstance(row, Mapping):
        raise UserError(f"{where} is not a JSON object: write prompt, or messages of role and content")
    given = [name for name in ("prompt", "messages") if row.get(name) is not None]
    if len(given) == 2:
        raise UserError(f"{where} has prompt, and also messages: keep one of them")
    found: Any = row[given[0]] if given else None
    turns = found if isinstance(found, list) and found else [None]
    are_messages = all(isinstance(turn, dict) and {"role", "content"} <= turn.keys() for turn in turns)
    if not (isinstance(found, str) and given == ["prompt"]) and not are_messages:
        keys = keys_in_words(row)
        raise UserError(f"{where} has the keys {keys}: write a text prompt, or messages of role and content")
    prompt: PromptInput = found
    return prompt


def prompts_of(lines: Iterable[str], what: str) -> list[str]:
    prompts = [line.rstrip("\n") for line in lines if line.strip()]
    if not prompts:
        raise UserError(f"{what} holds no prompt: write one a line")
    return prompts


@dataclass(frozen=True)
class ScoreRequest:
    """A row of the data: a prompt and the answer whose likelihood is wanted."""

    where: str
    row: Mapping[str, Any]
    content: TextPair | Conversation

    @property
    def answer(self) -> str:
        return self.content.turns[-1]["content"]


def read_requests(data: Records) -> list[ScoreRequest]:
    """The rows of a file or a list, their columns checked."""
    found = []
    for where, row in located_rows(data):
        content = read_row(row, where, (*PAIRS, MESSAGES), f"{PAIR_WORDS}, or messages")
        assert not isinstance(content, str)
        if not content.turns[-1]["content"]:
            raise UserError(f"{where} has an answer of no tokens: write at least one")
        found.append(ScoreRequest(where, dict(row), content))
    return found
