"""Prompt and answer pairs in token ids, from jsonl or plain text.

The file is read and checked once (`read_data_file`), before a model is opened, and tokenised once (`tokenize_pairs`).
A prompt is tokenised alone, as it will be at inference, and the answer after it. Every answer ends with the model's
end-of-turn token.
"""

import hashlib
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from maskwise.models.checkpoints.chat import render_chat
from maskwise.models.checkpoints.tokenizer import TURN_ENDS
from maskwise.models.model import Model
from maskwise.support.errors import UserError
from maskwise.support.files import Records, parse_json, to_json

JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
FORMS = "prompt and answer, question and answer (or response), or messages"
COLUMNS = (("prompt", "answer"), ("question", "answer"), ("question", "response"))


@dataclass(frozen=True)
class Entry:
    """One line of a jsonl file, its form checked, or one paragraph of plain text."""

    where: str  # the file and the line or paragraph, for messages
    content: dict[str, Any] | str


@dataclass(frozen=True)
class DataFile:
    path: Path
    sha256: str
    entries: tuple[Entry, ...]


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
    dropped: int  # pairs that leave no room for two different mask counts


Check = Callable[[Any, str], None]  # of a line's content and where it stands
Cut = Callable[[Path, Sequence[str]], list[Entry]]  # of the lines of a plain text


def read_data(
    source: Records, check: Check | None = None, cut: Cut | None = None, forms: str = f"lines with {FORMS}"
) -> DataFile:
    """`read_data_file`, or the same of what a JSON lines file would hold: a list of dicts, a datasets.Dataset."""
    if isinstance(source, str | Path):
        return read_data_file(Path(source), check, cut, forms)
    try:
        items = iter(source)
    except TypeError:
        what = "None" if source is None else f"of the type {type(source).__name__}"
        raise UserError(f"the data is {what}: give a file, or a list of {forms.replace('lines', 'objects')}") from None
    entries, content = [], hashlib.sha256()
    for number, given in enumerate(items, 1):
        where = f"item {number}"
        item = dict(given) if isinstance(given, Mapping) else given
        (check or _check_form)(item, where)
        entries.append(Entry(where, item))
        content.update(f"{to_json(item)}\n".encode())
    if not entries:
        raise UserError(f"the list is empty: it needs {forms.replace('lines', 'objects')}")
    return DataFile(Path("the given list"), content.hexdigest(), tuple(entries))


def read_data_file(
    path: Path, check: Check | None = None, cut: Cut | None = None, forms: str = f"lines with {FORMS}"
) -> DataFile:
    """Everything that can be said about a data file without a tokenizer; a broken line is refused by its number.

    check, cut and forms: what a JSON line must be, how plain text becomes entries, and both in words; pairs by default.
    """
    if not path.is_file():
        raise UserError(f"there is no data file {path}: give a .jsonl or .txt file")
    try:
        content = path.read_bytes()
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise UserError(f"{path} is not UTF-8 text ({problem.reason} at byte {problem.start}): convert it") from None
    except OSError as problem:
        raise UserError(f"{path} cannot be read ({problem.strerror})") from None
    lines = [line.rstrip("\n") for line in io.StringIO(text, newline=None)]
    json_lines = path.suffix.lower() in JSON_SUFFIXES
    entries = _json_entries(path, lines, check or _check_form) if json_lines else (cut or _paragraphs)(path, lines)
    if not entries:
        raise UserError(f"{path} is empty: it needs {forms}, or plain text")
    return DataFile(path, hashlib.sha256(content).hexdigest(), tuple(entries))


def tokenize_pairs(data: DataFile, model: Model, context: int, text_piece: int = 256) -> Pairs:
    """The pairs that fit into `context` tokens with at least one appended mask; the others are counted."""
    if model.tokenizer is None:
        raise UserError(f"{model.name} has no tokenizer: put its tokenizer files into the checkpoint folder")
    if context > model.window:
        raise UserError(
            f"context {context} is more than the context length of {model.name}, {model.window}: lower --context"
        )
    end, piece = end_of_turn(model), min(text_piece, context // 2)
    texts = (text for entry in data.entries for text in _texts(entry, model.tokenizer, piece))
    pairs = [_pair(model, text, end) for text in texts]
    if not pairs:
        raise UserError(f"no two words of {data.path} fit into {piece} tokens: raise --context")
    kept = tuple(pair for pair in pairs if pair.length < context)
    if not kept:
        shortest = min(pair.length for pair in pairs)
        raise UserError(
            f"none of the {len(pairs)} pairs of {data.path} leaves room for masks in a context of {context} tokens "
            f"(the shortest has {shortest}): raise --context or shorten the prompts"
        )
    return Pairs(kept, len(pairs) - len(kept))


def end_of_turn(model: Model) -> int:
    """What closes an assistant's turn in the chat template, else a known end-of-turn token, else the end of text."""
    tokenizer = model.tokenizer
    if tokenizer.chat_template:
        said = "maskwise"
        text = render_chat(tokenizer, _turns(said, said))
        after = tokenizer(text[text.rfind(said) + len(said) :], add_special_tokens=False)["input_ids"]
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


def _json_entries(path: Path, lines: Sequence[str], check: Check) -> list[Entry]:
    entries = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{path} line {number}"
        try:
            content = parse_json(line)
        except ValueError as problem:
            raise UserError(f"{where} is not valid JSON ({problem}): correct or delete it") from None
        check(content, where)
        entries.append(Entry(where, content))
    return entries


def _check_form(content: Any, where: str) -> None:
    """Refuses what is neither a pair of texts nor messages that end with the assistant's."""
    if not isinstance(content, dict):
        raise UserError(f"{where} is not a JSON object: write {FORMS}")
    if "messages" in content:
        return check_messages(content["messages"], where)
    columns = _columns(content)
    if columns is None:
        raise UserError(f"{where} has the keys {', '.join(content) or 'none'}: write {FORMS}")
    texts = [content[name] for name in columns] + [content.get("system_prompt") or ""]
    if not all(isinstance(text, str) for text in texts):
        raise UserError(f"{where}: {' and '.join(columns)} must be texts, and system_prompt where there is one")


def check_messages(messages: Any, where: str) -> None:
    well_formed = isinstance(messages, list) and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in messages
    )
    if not well_formed or len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise UserError(f"{where}: messages must be a list of role and content that ends with the assistant's")


def _columns(content: dict[str, Any]) -> tuple[str, str] | None:
    """The names of the prompt and of the answer."""
    return next((names for names in COLUMNS if set(names) <= content.keys()), None)


def _paragraphs(path: Path, lines: Sequence[str]) -> list[Entry]:
    """Paragraphs of at least two words, for the second half of each continues the first."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    numbered = [Entry(f"{path} paragraph {number}", text) for number, text in enumerate(paragraphs, start=1)]
    return [entry for entry, text in zip(numbered, paragraphs, strict=True) if len(text.split()) >= 2]


def _texts(entry: Entry, tokenizer: Any, piece: int) -> Iterator[_Text]:
    """One pair of texts for a line; for a paragraph one for each piece of at most `piece` tokens."""
    if isinstance(entry.content, str):
        yield from _continuations(entry.content, tokenizer, piece, entry.where)
    elif "messages" in entry.content:
        yield _from_messages(entry.content["messages"], tokenizer, entry.where)
    else:
        yield _from_columns(entry.content, tokenizer, entry.where)


def _from_columns(content: dict[str, Any], tokenizer: Any, where: str) -> _Text:
    """A prompt as it stands; a question through the chat template, or without one with line breaks."""
    columns = _columns(content)
    assert columns is not None
    prompt, answer = (content[name] for name in columns)
    system = content.get("system_prompt") or ""
    if columns[0] == "prompt":
        return _Text(prompt, answer, False, where)
    if tokenizer.chat_template:
        return _from_messages(_turns(prompt, answer, system), tokenizer, where)
    return _Text("\n".join([system, prompt, ""] if system else [prompt, ""]), answer, False, where)


def _turns(question: str, answer: str, system: str = "") -> list[dict[str, str]]:
    before = [{"role": "system", "content": system}] if system else []
    return [*before, {"role": "user", "content": question}, {"role": "assistant", "content": answer}]


def _from_messages(messages: Sequence[dict[str, str]], tokenizer: Any, where: str) -> _Text:
    """The last message is the answer; everything before it is the prompt, with the assistant's turn opened."""
    if not tokenizer.chat_template:
        raise UserError(f"{where}: the tokenizer has no chat template; write prompt and answer instead of messages")
    prompt = render_chat(tokenizer, messages[:-1], f"{where}: the chat template", add_generation_prompt=True)
    return _Text(prompt, messages[-1]["content"], True, where)


def _continuations(paragraph: str, tokenizer: Any, piece: int, where: str) -> Iterator[_Text]:
    """The paragraph, cut after sentences where it is over `piece` tokens; each second half continues its first."""
    for words in _pieces(paragraph.split(), tokenizer, piece):
        if len(words) >= 2:
            half = len(words) // 2
            yield _Text(" ".join(words[:half]), " " + " ".join(words[half:]), False, where)


def _pieces(words: Sequence[str], tokenizer: Any, piece: int) -> Iterator[Sequence[str]]:
    """Runs of words of at most `piece` tokens, ending with a sentence where one ends in their second half."""
    counts = [len(ids) for ids in tokenizer([" " + word for word in words], add_special_tokens=False)["input_ids"]]
    start = 0
    while start < len(words):
        stop, tokens = start + 1, counts[start]
        while stop < len(words) and tokens + counts[stop] <= piece:
            tokens += counts[stop]
            stop += 1
        if stop < len(words):
            second_half = range(start + (stop - start) // 2, stop)
            ends = [place for place in second_half if words[place].rstrip("\"')]").endswith((".", "!", "?"))]
            stop = ends[-1] + 1 if ends else stop
        yield words[start:stop]
        start = stop
