"""Where a command's prompts come from: its argument, a file, standard input."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from maskwise.support.errors import UserError
from maskwise.support.files import read_records, read_text

if TYPE_CHECKING:
    from maskwise.models.generation import PromptInput

# What `maskwise generate` continues when it is given nothing: a document the embedded models can go on with.
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
    """One prompt per line, or for a .jsonl file one JSON object with a "prompt" or "messages" per line."""
    if file.suffix == ".jsonl":
        lines = read_records(file, set())
        for number, line in enumerate(lines, 1):
            if not isinstance(line.get("prompt"), str) and not _are_messages(line.get("messages")):
                raise UserError(f"object {number} of {file} has neither a text prompt nor messages of role and content")
        return [line["prompt"] if isinstance(line.get("prompt"), str) else line["messages"] for line in lines]
    return prompts_of(read_text(file, "give one prompt a line").split("\n"), str(file))


def _are_messages(given: object) -> bool:
    turns = given if isinstance(given, list) and given else [None]
    return all(isinstance(turn, dict) and {"role", "content"} <= turn.keys() for turn in turns)


def prompts_of(lines: Iterable[str], what: str) -> list[str]:
    prompts = [line.rstrip("\n") for line in lines if line.strip()]
    if not prompts:
        raise UserError(f"{what} holds no prompt: write one a line")
    return prompts
