"""Words and punctuation as tokens, for models that are given text and whose tokenizer is not here."""

import re
from collections.abc import Sequence
from threading import Lock
from typing import Any

GAP, GAP_TEXT = 0, "<|gap|>"  # in place of the answer
PIECE = re.compile(r" ?\w+|[^\w\s]+|\s+?(?= ?\w)|\s+")


class TextPieces:
    """The interface of a fast tokenizer over pieces of text, numbered as they come; `decode` gives the text back.
    A word has the space before it, as in most vocabularies. Threads may share it."""

    is_fast, chat_template, name_or_path = True, None, "words"

    def __init__(self) -> None:
        self._ids = {GAP_TEXT: GAP}
        self._pieces = [GAP_TEXT]
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._pieces)

    def __call__(self, text: Any, add_special_tokens: bool = True, return_offsets_mapping: bool = False) -> Any:
        if not isinstance(text, str):
            return {"input_ids": [self(one)["input_ids"] for one in text]}
        found = list(PIECE.finditer(text))
        return {"input_ids": [self._id(one[0]) for one in found], "offset_mapping": [one.span() for one in found]}

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return "".join(self._pieces[one] for one in ids if not (skip_special_tokens and one == GAP))

    def _id(self, piece: str) -> int:
        with self._lock:
            if piece not in self._ids:
                self._ids[piece] = len(self._pieces)
                self._pieces.append(piece)
            return self._ids[piece]
