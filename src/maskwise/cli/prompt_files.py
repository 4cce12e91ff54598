"""Where a command's prompts come from: its argument, a file, standard input."""

from collections.abc import Iterable
from pathlib import Path
from typing import IO

from maskwise.errors import UserError
from maskwise.files import read_records, read_text

# What `maskwise generate` continues when it is given nothing: a document the embedded models can go on with.
TRY = """Word: otter
Kind:[animal].

Word: lemon
Kind:[fruit].

Word: brave
Kind:[adjective].

Word: green
Kind:["""


def gather_prompts(prompt: str | None, file: Path | None, standard_input: IO[str]) -> list[str]:
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


def read_prompts(file: Path) -> list[str]:
    """One prompt per line, or for a .jsonl file one JSON object with a "prompt" per line."""
    if file.suffix == ".jsonl":
        return [line["prompt"] for line in read_records(file, {"prompt"})]
    return prompts_of(read_text(file, "give one prompt a line").split("\n"), str(file))


def prompts_of(lines: Iterable[str], what: str) -> list[str]:
    prompts = [line.rstrip("\n") for line in lines if line.strip()]
    if not prompts:
        raise UserError(f"{what} holds no prompt: write one a line")
    return prompts
