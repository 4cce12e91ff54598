"""Documents to train on, from plain text or jsonl: tokenised once, then cut or packed into rows.

In a text every token carries loss; in a chat the tokens of the assistant's turns do, the end-of-turn tokens included;
after a prompt those of its answer.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from maskwise.models.model import Model
from maskwise.models.tokenizers.chat import render_chat
from maskwise.support.errors import UserError
from maskwise.support.files import Records
from maskwise.tasks.columns import MESSAGES, PAIR_WORDS, PAIRS, TEXT, Conversation, TextPair, Turns, read_row
from maskwise.training.data.end_tokens import check_context, end_of_text, end_of_turn
from maskwise.training.data.reading import DataEntry, DataFile, DataForm, read_data

TEXTS_AT_ONCE = 256
FORMS = f"text, messages, {PAIR_WORDS}"


@dataclass(frozen=True)
class TextPiece:
    """The tokens of a document or of a part of one."""

    ids: Tensor  # [n] int32
    carries: Tensor | None = None  # [n] bool, the tokens that carry loss; None: all

    @property
    def count(self) -> int:
        """The number of tokens that carry loss."""
        return len(self.ids) if self.carries is None else int(self.carries.sum())

    @property
    def places(self) -> Tensor | None:
        return None if self.carries is None else self.carries.nonzero()[:, 0]

    def part(self, start: int, stop: int) -> "TextPiece":
        return TextPiece(self.ids[start:stop], None if self.carries is None else self.carries[start:stop])


PackedRow = tuple[TextPiece, ...]  # pieces that do not see each other; at most `context` tokens together


@dataclass(frozen=True)
class PackedRows:
    """The documents of a data file as rows."""

    kept: tuple[PackedRow, ...]
    tokens: int  # of all documents
    dropped: int  # chats longer than a row


def read_documents(source: Records) -> DataFile:
    """Documents from a text or .jsonl file, a list of dicts or a datasets.Dataset, checked but not tokenised."""
    # Text and a pair in one row are refused: the loss is on all tokens of a text, and on the answer of a pair.
    read = partial(read_row, forms=(TEXT, MESSAGES, *PAIRS), wanted=FORMS, weakest=False)
    return read_data(source, DataForm(read, _documents, f"lines with {FORMS}"))


def _documents(path: Path, lines: Sequence[str]) -> list[DataEntry]:
    """Plain text is one document, or several with form feeds between them."""
    texts = "\n".join(lines).split("\f")
    return [DataEntry(f"{path} document {n}", text.strip("\n")) for n, text in enumerate(texts, 1) if text.strip()]


def tokenize_rows(data: DataFile, model: Model, context: int, rows: str) -> PackedRows:
    """All documents as rows of at most `context` tokens, each document with the end-of-text token behind it."""
    check_context(model, context)
    pieces = list(_pieces(data, model))
    tokens = sum(len(piece.ids) for piece in pieces)
    if tokens < context:
        raise UserError(
            f"{data.path} has {tokens} tokens, less than a row of {context}: give more text, or lower --context"
        )
    kept, dropped = (cut_stream(pieces, context), 0) if rows == "full" else pack(pieces, context)
    if not kept:
        raise UserError(f"no document of {data.path} fits into a row of {context} tokens: raise --context")
    return PackedRows(tuple(kept), tokens, dropped)


def cut_stream(pieces: Sequence[TextPiece], context: int) -> list[PackedRow]:
    """All documents end to end, cut every `context` tokens; what is left over at the end is dropped."""
    ids = torch.cat([piece.ids for piece in pieces])
    if all(piece.carries is None for piece in pieces):
        stream = TextPiece(ids)
    else:
        every = [torch.ones(len(p.ids), dtype=torch.bool) if p.carries is None else p.carries for p in pieces]
        stream = TextPiece(ids, torch.cat(every))
    cuts = (stream.part(start, start + context) for start in range(0, len(ids) - context + 1, context))
    return [(cut,) for cut in cuts if cut.count]


def pack(pieces: Sequence[TextPiece], context: int) -> tuple[list[PackedRow], int]:
    """Documents side by side in rows of at most `context` tokens, longer texts cut; (rows, chats that are too long)."""
    rows: list[PackedRow] = []
    row: list[TextPiece] = []
    room, dropped = context, 0
    for piece in pieces:
        if piece.carries is not None and len(piece.ids) > context:
            dropped += 1
            continue
        for start in range(0, len(piece.ids), context):
            part = piece.part(start, start + context)
            if len(part.ids) < 2 or not part.count:  # a single token has no context
                continue
            if len(part.ids) > room:
                rows.append(tuple(row))
                row, room = [], context
            row.append(part)
            room -= len(part.ids)
    return ([*rows, tuple(row)] if row else rows), dropped


def _pieces(data: DataFile, model: Model) -> Iterator[TextPiece]:
    end = end_of_text(model)
    chats = [_as_chat(entry, model) for entry in data.entries]
    closing = _closing(model) if any(chats) else None
    for start in range(0, len(data.entries), TEXTS_AT_ONCE):
        entries = data.entries[start : start + TEXTS_AT_ONCE]
        texts = [entry.content for entry in entries if isinstance(entry.content, str)]
        tokenised = iter(model.tokenizer(texts)["input_ids"] if texts else [])
        for entry, chat in zip(entries, chats[start : start + TEXTS_AT_ONCE], strict=True):
            if chat is not None:
                piece = _chat(chat, model, closing, entry.where)
            elif isinstance(entry.content, TextPair):
                piece = _prompt_and_answer(entry.content, model, end)
            else:
                piece = TextPiece(torch.tensor([*next(tokenised), end], dtype=torch.int32))
            _check_ids(piece.ids, model, entry.where)
            yield piece


def _as_chat(entry: DataEntry, model: Model) -> Turns | None:
    """The turns of a chat, or of a question if there is a chat template; None for texts and prompts."""
    if isinstance(entry.content, str):
        return None
    templated = isinstance(entry.content, Conversation) or (entry.content.is_question and model.tokenizer.chat_template)
    return entry.content.turns if templated else None


def _prompt_and_answer(pair: TextPair, model: Model, end: int) -> TextPiece:
    """The answer carries the loss, the end of text after it included."""
    prompt = model.tokenizer(pair.plain_prompt)["input_ids"]
    answer = [*model.tokenizer(pair.answer, add_special_tokens=False)["input_ids"], end]
    carries = [False] * len(prompt) + [True] * len(answer)
    return TextPiece(torch.tensor([*prompt, *answer], dtype=torch.int32), torch.tensor(carries))


def _check_ids(ids: Tensor, model: Model, where: str) -> None:
    if int(ids.max()) >= model.vocab:
        raise UserError(f"{where} has token ids beyond the model's {model.vocab}: is the tokenizer another model's?")
    if model.mask_id is not None and bool((ids == model.mask_id).any()):
        raise UserError(f"{where} contains the mask token, which the model never predicts: delete it")


def _closing(model: Model) -> str | None:
    """The end of turn after which a finished chat is cut; None where the template writes nothing behind it.
    LLaDA's template opens another turn of the assistant after every chat, with or without `add_generation_prompt`."""
    tokenizer = model.tokenizer
    if not tokenizer.chat_template:
        return None
    said = "maskwise"
    chat = [{"role": role, "content": said} for role in ("user", "assistant", "user")]
    finished = render_chat(tokenizer, chat[:2])
    if render_chat(tokenizer, chat[:2], add_generation_prompt=True) != finished:
        return None  # it opens a turn only with add_generation_prompt
    if render_chat(tokenizer, chat).startswith(finished):
        return None  # it opens none
    end = str(tokenizer.decode([end_of_turn(model)]))
    if end not in finished[finished.rfind(said) :]:
        raise UserError(
            f"the chat template of {model.name} opens a turn behind every chat, and no token of the tokenizer ends "
            "one: use another template, or write text instead of messages"
        )
    return end


def _chat(messages: Sequence[dict[str, str]], model: Model, closing: str | None, where: str) -> TextPiece:
    """The chat as its template writes it; each of the assistant's turns carries loss to its end."""
    tokenizer = model.tokenizer
    if not tokenizer.chat_template:
        raise UserError(f"{where}: the tokenizer has no chat template; write text instead of messages")
    ids: list[int] = []
    carries: list[bool] = []
    written = ""
    for number, message in enumerate(messages):
        if message["role"] != "assistant":
            continue
        for turns, opened, answer in ((messages[:number], True, False), (messages[: number + 1], False, True)):
            text = render_chat(tokenizer, turns, f"{where}: the chat template", add_generation_prompt=opened)
            if answer and closing is not None:
                text = text[: text.rfind(closing) + len(closing)]
            if not text.startswith(written):
                raise UserError(f"{where}: the chat template rewrites earlier turns; keep the last answer alone")
            more = tokenizer(text[len(written) :], add_special_tokens=False)["input_ids"]
            ids, carries, written = ids + more, carries + [answer] * len(more), text
    return TextPiece(torch.tensor(ids, dtype=torch.int32), torch.tensor(carries))
