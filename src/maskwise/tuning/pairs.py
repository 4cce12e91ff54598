"""Prompt and answer pairs in token ids, from jsonl or plain text.

A prompt is tokenised alone, as it will be at inference, and the answer after it. Every answer ends with the model's
end-of-turn token.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from maskwise.errors import UserError
from maskwise.models.base import Model
from maskwise.models.tokens import TURN_ENDS

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
FORMS = "prompt and answer, question and answer (or response), or messages"


@dataclass(frozen=True)
class Pair:
    prompt: tuple[int, ...]
    answer: tuple[int, ...]  # ends with the end-of-turn token

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.answer)


@dataclass(frozen=True)
class Pairs:
    kept: tuple[Pair, ...]
    dropped: int  # pairs without room for two different mask counts


def read_pairs(path: Path, model: Model, context: int, text_piece: int = 256) -> Pairs:
    """The pairs of a file that fit into `context` tokens with at least one appended mask; the others are counted."""
    if model.tokenizer is None:
        raise UserError(f"{model.name} has no tokenizer: put its tokenizer files into the checkpoint folder")
    if not path.is_file():
        raise UserError(f"there is no data file {path}: give a .jsonl or .txt file")
    if context > model.window:
        raise UserError(f"context {context} is more than the window of {model.name}, {model.window}: lower --context")
    end = end_of_turn(model)
    if path.suffix.lower() in JSON_SUFFIXES:
        texts = _json_texts(path, model.tokenizer)
    else:
        texts = _continuations(path, model.tokenizer, min(text_piece, context // 2))
    pairs = [_pair(model, text, end) for text in texts]
    if not pairs:
        raise UserError(f"{path} is empty: it needs lines with {FORMS}, or plain text")
    kept = tuple(pair for pair in pairs if pair.length < context)
    if not kept:
        shortest = min(pair.length for pair in pairs)
        raise UserError(
            f"none of the {len(pairs)} pairs of {path} leaves room for masks in a context of {context} tokens "
            f"(the shortest has {shortest}): raise --context or shorten the prompts"
        )
    return Pairs(kept, len(pairs) - len(kept))


def end_of_turn(model: Model) -> int:
    """What closes an assistant's turn in the chat template, else a known end-of-turn token, else the end of text."""
    tokenizer = model.tokenizer
    if tokenizer.chat_template:
        said = "maskwise"
        text = tokenizer.apply_chat_template(_turns(said, said), tokenize=False)
        after = tokenizer(text[text.rindex(said) + len(said) :], add_special_tokens=False)["input_ids"]
        if after and after[0] in tokenizer.all_special_ids:
            return int(after[0])
    vocabulary = tokenizer.get_vocab()
    for name in TURN_ENDS:
        if name in vocabulary:
            return int(vocabulary[name])
    return end_of_text(model)


def end_of_text(model: Model) -> int:
    found = model.tokenizer.eos_token_id
    if found is None:
        raise UserError(f"the tokenizer of {model.name} has no end-of-text token: set eos_token in its configuration")
    return int(found)


@dataclass(frozen=True)
class _Text:
    prompt: str
    answer: str
    templated: bool  # the prompt already holds its special tokens
    where: str


def _pair(model: Model, text: _Text, end: int) -> Pair:
    prompt = model.tokenizer(text.prompt, add_special_tokens=not text.templated)["input_ids"]
    answer = model.tokenizer(text.answer, add_special_tokens=False)["input_ids"]
    if not answer:
        raise UserError(f"{text.where}: the answer has no tokens; fill it in or delete the line")
    if not prompt:
        raise UserError(f"{text.where}: the prompt has no tokens; fill it in or delete the line")
    if model.mask_id in answer:
        raise UserError(f"{text.where}: the answer contains the mask token, which the model never predicts; delete it")
    if max(*prompt, *answer, end) >= model.vocab:
        raise UserError(
            f"{text.where} has token ids beyond the model's {model.vocab}: is the tokenizer another model's?"
        )
    return Pair(tuple(prompt), (*answer, end))


def _json_texts(path: Path, tokenizer: Any) -> Iterator[_Text]:
    for number, line in enumerate(_lines(path), start=1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            entry = json.loads(line)
        except json.JSONDecodeError as problem:
            raise UserError(f"{where} is not valid JSON ({problem}): correct or delete it") from None
        yield _from_entry(entry, tokenizer, where)


def _from_entry(entry: Any, tokenizer: Any, where: str) -> _Text:
    if not isinstance(entry, dict):
        raise UserError(f"{where} is not a JSON object: write {FORMS}")
    if "messages" in entry:
        return _from_messages(entry["messages"], tokenizer, where)
    for asked, told in (("prompt", "answer"), ("question", "answer"), ("question", "response")):
        if asked in entry and told in entry:
            prompt, answer, system = entry[asked], entry[told], entry.get("system_prompt") or ""
            if not all(isinstance(text, str) for text in (prompt, answer, system)):
                raise UserError(f"{where}: {asked} and {told} must be texts, and system_prompt where there is one")
            if asked == "prompt":
                return _Text(prompt, answer, False, where)
            if tokenizer.chat_template:
                return _from_messages(_turns(prompt, answer, system), tokenizer, where)
            return _Text("\n".join([system, prompt, ""] if system else [prompt, ""]), answer, False, where)
    raise UserError(f"{where} has the keys {', '.join(entry) or 'none'}: write {FORMS}")


def _turns(question: str, answer: str, system: str = "") -> list[dict[str, str]]:
    before = [{"role": "system", "content": system}] if system else []
    return [*before, {"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _from_messages(messages: Any, tokenizer: Any, where: str) -> _Text:
    """The last message is the answer; everything before it is the prompt, with the assistant's turn opened."""
    well_formed = isinstance(messages, list) and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in messages
    )
    if not well_formed or len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise UserError(f"{where}: messages must be a list of role and content that ends with the assistant's")
    if not tokenizer.chat_template:
        raise UserError(f"{where}: the tokenizer has no chat template; write prompt and answer instead of messages")
    try:
        prompt = tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
    except TemplateError as problem:
        raise UserError(f"{where}: the chat template refuses these turns ({problem})") from None
    return _Text(prompt, messages[-1]["content"], True, where)


def _continuations(path: Path, tokenizer: Any, piece: int) -> Iterator[_Text]:
    """Paragraphs, those over `piece` tokens cut after sentences; the second half of each continues the first."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(_lines(path)))
    for number, paragraph in enumerate(paragraphs, start=1):
        for words in _pieces(paragraph.split(), tokenizer, piece):
            if len(words) >= 2:
                half = len(words) // 2
                where = f"{path} paragraph {number}"
                yield _Text(" ".join(words[:half]), " " + " ".join(words[half:]), False, where)


def _pieces(words: Sequence[str], tokenizer: Any, piece: int) -> Iterator[Sequence[str]]:
    """Runs of words of at most `piece` tokens, ending with a sentence where one ends in their second half."""
    counts = (
        [len(ids) for ids in tokenizer([" " + w for w in words], add_special_tokens=False)["input_ids"]]
        if words
        else []
    )
    start = 0
    while start < len(words):
        stop, tokens = start + 1, counts[start]
        while stop < len(words) and tokens + counts[stop] <= piece:
            tokens += counts[stop]
            stop += 1
        if stop < len(words):
            ends = [
                at
                for at in range(start + (stop - start) // 2, stop)
                if words[at].rstrip("\"')]").endswith((".", "!", "?"))
            ]
            stop = ends[-1] + 1 if ends else stop
        yield words[start:stop]
        start = stop


def _lines(path: Path) -> Iterator[str]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line in file:
                yield line.rstrip("\n")
    except UnicodeDecodeError as problem:
        raise UserError(f"{path} is not UTF-8 text ({problem.reason} at byte {problem.start}): convert it") from None
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror})") from None
