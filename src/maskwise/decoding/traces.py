"""Records of a call of `generate`: its settings, one trace per prompt, and their file."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

from maskwise.decoding.checks import end_tokens, is_approximate
from maskwise.decoding.options import DecodingOptions
from maskwise.decoding.prompt_ids import has_chat_template
from maskwise.models.generation import Generation, PromptInput
from maskwise.models.model import Model
from maskwise.support.errors import UserError
from maskwise.support.files import open_own, partial_of, refuse_unwritable, to_json, writing


def trace_of(prompt: PromptInput, tokens: list[int], generation: Generation, guided: bool) -> dict[str, Any]:
    """One generation as JSON."""
    return {
        "prompt": prompt,
        "text": generation.text,
        "prompt_tokens": len(tokens),
        "masks": len(generation.ids),
        "steps": generation.forwards // (2 if guided else 1),
        "forwards": generation.forwards,
        "ids": generation.ids,
        "order": generation.order,
    }


def recorded_settings(model: Model, options: DecodingOptions) -> dict[str, Any]:
    """Every option by name; without those of masked models where the model is autoregressive."""
    chat = has_chat_template(model) if options.chat is None else options.chat
    ends = end_tokens(model) if options.end_ids is None else options.end_ids
    settings = options.summary() | {"chat": chat, "end_ids": list(ends)}
    if model.causal:
        shared = [option.name for option in fields(options) if not option.metadata["masked_only"]]
        return {name: settings[name] for name in shared} | {"kind": "autoregressive"}
    return settings | {"masks": options.max_new_tokens, "approximate": is_approximate(model, options)}


@contextmanager
def trace_file(out: Path) -> Iterator[Callable[[Iterable[dict[str, Any]]], None]]:
    """A .jsonl file that is written whole: finished batches go to FILE.partial, which gets its name at the end."""
    partial = partial_of(out)

    def write(traces: Iterable[dict[str, Any]], append: bool = True) -> None:
        try:
            with open_own(partial, append=append) as file:
                file.writelines(f"{to_json(trace)}\n".encode() for trace in traces)
        except OSError as problem:
            raise UserError(f"cannot write {partial}: {problem.strerror}") from None

    refuse_unwritable(out)
    write([], append=False)  # an empty file in place of what a killed command left
    yield write
    with writing(out, f"the generations are in {partial}"):
        partial.replace(out)
