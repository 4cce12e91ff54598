"""Prompt and answer pairs in token ids.

A prompt is tokenised alone, as it will be at inference, and the answer after it. Every answer ends with the model's
end-of-turn token.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from maskwise.models.model import Model
from maskwise.models.tokenizers.chat import render_chat
from maskwise.support.errors import UserError
from maskwise.support.files import Records
from maskwise.tasks.columns import MESSAGES, PAIR_WORDS, PAIRS, TEXT, Conversation, Turns, read_row
from maskwise.training.data.end_tokens import check_context, end_of_turn
from maskwise.training.data.reading import DataEntry, DataFile, DataForm, read_data

FORMS = f"{PAIR_WORDS}, messages, or text"


@dataclass(frozen=True)
class Pair:
    """A prompt and its answer in token ids."""

    prompt: tuple[int, ...]
    answer: tuple[int, ...]  # ends with the end-of-turn token

    @property
    def length(self) -> int:
        return len(self.prompt) + len(self.answer)


@dataclass(frozen=True)
class TokenizedPairs:
    """The pairs of a data file in token ids."""

    kept: tuple[Pair, ...]
    dropped: int  # pairs that leave no room for two different mask counts


def read_pairs(source: Records) -> DataFile:
    """Pairs from a .jsonl or text file, a list of dicts or a datasets.Dataset, checked but not tokenised."""
    read = partial(read_row, forms=(*PAIRS, MESSAGES, TEXT), wanted=FORMS)
    return read_data(source, DataForm(read, _paragraphs, f"lines with {FORMS}"))


def tokenize_pairs(data: DataFile, model: Model, context: int, text_piece: int = 256) -> TokenizedPairs:
    """The pairs that fit into `context` tokens with at least one appended mask; the others are counted."""
    check_context(model, context)
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
    return TokenizedPairs(kept, len(pairs) - len(kept))


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


def _paragraphs(path: Path, lines: Sequence[str]) -> list[DataEntry]:
    """Paragraphs of at least two words, for the second half of each continues the first."""
    paragraphs = re.split(r"\n\s*\n", "\n".join(lines))
    numbered = [DataEntry(f"{path} paragraph {number}", text) for number, text in enumerate(paragraphs, start=1)]
    return [entry for entry, text in zip(numbered, paragraphs, strict=True) if len(text.split()) >= 2]


def _texts(entry: DataEntry, tokenizer: Any, piece: int) -> Iterator[_Text]:
    """One pair of texts for a line; for a text one for each piece of at most `piece` tokens."""
    content = entry.content
    if isinstance(content, str):  # each second half continues its first
        for words in _pieces(content.split(), tokenizer, piece):
            if len(words) >= 2:
                half = len(words) // 2
                yield _Text(" ".join(words[:half]), " " + " ".join(words[half:]), False, entry.where)
    elif isinstance(content, Conversation) or (content.is_question and tokenizer.chat_template):
        yield _from_turns(content.turns, tokenizer, entry.where)
    else:
        yield _Text(content.plain_prompt, content.answer, False, entry.where)


def _from_turns(turns: Turns, tokenizer: Any, where: str) -> _Text:
    """The last message is the answer; everything before it is the prompt, with the assistant's turn opened."""
    if not tokenizer.chat_template:
        raise UserError(f"{where}: the tokenizer has no chat template; write prompt and answer instead of messages")
    prompt = render_chat(tokenizer, turns[:-1], f"{where}: the chat template", add_generation_prompt=True)
    return _Text(prompt, turns[-1]["content"], True, where)


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
