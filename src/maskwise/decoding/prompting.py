"""Prompts as a user gives them: an argument, a file, standard input; plain or as a chat."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from maskwise.decoding.request import text_ids
from maskwise.errors import UserError
from maskwise.files import read_text
from maskwise.models.base import Model

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
    return prompts_of(standard_input, "standard input") if prompt == "-" else [TRY if prompt is None else prompt]


def read_prompts(file: Path) -> list[str]:
    """One prompt a line, or for a .jsonl file one JSON object with a "prompt" a line."""
    if file.suffix == ".jsonl":
        return [line["prompt"] for line in read_records(file, {"prompt"})]
    return prompts_of(read_text(file, "give one prompt a line").split("\n"), str(file))


def prompts_of(lines: Iterable[str], what: str) -> list[str]:
    prompts = [line.rstrip("\n") for line in lines if line.strip()]
    if not prompts:
        raise UserError(f"{what} holds no prompt: write one a line")
    return prompts


def read_records(file: Path, wanted: set[str]) -> list[dict[str, Any]]:
    """The objects of a JSON lines file, each with these fields as text; a broken line is named by its number."""
    records = []
    for number, line in enumerate(read_text(file, "give one JSON object a line").split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except json.JSONDecodeError as problem:
            raise UserError(f"{file} line {number} is not JSON ({problem.msg})") from None
        if not isinstance(record, dict) or not all(isinstance(record.get(field), str) for field in wanted):
            raise UserError(f"{file} line {number} must be an object with the texts {', '.join(sorted(wanted))}")
        records.append(record)
    if not records:
        raise UserError(f"{file} is empty: give one JSON object a line")
    return records


def has_chat(model: Model) -> bool:
    return model.tokenizer is not None and bool(model.tokenizer.chat_template)


def prompt_ids(model: Model, prompts: Sequence[str], chat: bool) -> list[list[int]]:
    """Token ids of the prompts as they are, or each as the user's turn of a chat with the assistant's turn opened."""
    if model.tokenizer is None:
        raise UserError(f"{model.name or model.kind} has no tokenizer, so it reads no text")
    if not chat:
        return [text_ids(model, prompt) for prompt in prompts]
    if not has_chat(model):
        raise UserError(f"the tokenizer of {model.name or model.kind} has no chat template: use --no-chat")
    turns = [[{"role": "user", "content": prompt}] for prompt in prompts]
    texts = [model.tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False) for turn in turns]
    # The template has written the special tokens out already.
    return [list(model.tokenizer(text, add_special_tokens=False)["input_ids"]) for text in texts]
