"""Column names of data files: ours, and those of TRL, Alpaca and OpenOrca.

A row is read as a pair of texts, a chat, or a text. A row that can be read in two ways is refused in one line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from maskwise.support.errors import UserError

Turns = list[dict[str, str]]  # each with role and content


@dataclass(frozen=True)
class TextPair:
    """A prompt and its answer. A question goes through the chat template where there is one, a prompt never does."""

    prompt: str
    answer: str
    is_question: bool = False
    system: str = ""

    @property
    def turns(self) -> Turns:
        before = [{"role": "system", "content": self.system}] if self.system else []
        user, assistant = ("user", self.prompt), ("assistant", self.answer)
        return before + [{"role": role, "content": content} for role, content in (user, assistant)]

    @property
    def plain_prompt(self) -> str:
        """The text before the answer without a chat template: a question ends with a line break."""
        if not self.is_question:
            return self.prompt
        return "\n".join([self.system, self.prompt, ""] if self.system else [self.prompt, ""])


@dataclass(frozen=True)
class Conversation:
    """A chat that ends with the assistant's turn."""

    turns: Turns


RowContent = TextPair | Conversation | str


@dataclass(frozen=True)
class ColumnForm:
    """One way to name the columns: the names that must be there, and what a row with them holds."""

    names: tuple[str, ...]
    read: Callable[[Mapping[str, Any], str], RowContent]

    @property
    def words(self) -> str:
        return " and ".join(self.names)


def _pair(names: tuple[str, str]) -> ColumnForm:
    def read(row: Mapping[str, Any], where: str) -> RowContent:
        prompt, answer = (row[name] for name in names)
        if isinstance(prompt, list) and isinstance(answer, list):  # TRL's conversational form
            return _conversation([*prompt, *answer], where)
        further = "input" if names[0] == "instruction" else "system_prompt"
        more = row.get(further) or ""
        if not all(isinstance(text, str) for text in (prompt, answer, more)):
            raise UserError(f"{where}: {' and '.join(names)} must be texts, and {further} where there is one")
        if names[0] == "prompt":
            return TextPair(prompt, answer)
        if further == "input":
            return TextPair(f"{prompt}\n{more}" if more else prompt, answer, is_question=True)
        return TextPair(prompt, answer, is_question=True, system=more)

    return ColumnForm(names, read)


def _conversation(messages: Any, where: str) -> Conversation:
    well_formed = isinstance(messages, list) and all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and isinstance(m.get("content"), str) for m in messages
    )
    if not well_formed or len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise UserError(f"{where}: messages must be a list of role and content that ends with the assistant's")
    return Conversation(messages)


def _text(row: Mapping[str, Any], where: str) -> str:
    if not isinstance(row["text"], str):
        raise UserError(f"{where}: text must be a text, not {type(row['text']).__name__}")
    return row["text"]


PAIRS = (
    _pair(("prompt", "answer")),
    _pair(("prompt", "completion")),
    _pair(("question", "answer")),
    _pair(("question", "response")),
    _pair(("instruction", "output")),
)
MESSAGES = ColumnForm(("messages",), lambda row, where: _conversation(row["messages"], where))
TEXT = ColumnForm(("text",), _text)
PAIR_WORDS = "prompt and answer (or completion), question and answer (or response), instruction and output"


def read_row(row: Any, where: str, forms: Sequence[ColumnForm], wanted: str, weakest: bool = True) -> RowContent:
    """The content of a row in one of these forms; `wanted` describes them. A null column counts as missing.

    weakest: `text` counts only where no other form does, because data sets such as Alpaca's repeat a pair in it.
    """
    if not isinstance(row, Mapping):
        raise UserError(f"{where} is not a JSON object: write {wanted}")
    given = {name for name, value in row.items() if value is not None}
    found = [form for form in forms if given.issuperset(form.names)]
    if MESSAGES in found or weakest:
        found = [form for form in found if form is not TEXT] or found
    empty = [name for name in row if name not in given and any(name in form.names for form in forms)]
    if not found and empty:
        raise UserError(f"{where}: {', '.join(empty)} is null; write {wanted}")
    if not found:
        raise UserError(f"{where} has the keys {keys_in_words(row)}: write {wanted}")
    if len(found) > 1:
        raise UserError(f"{where} has {found[0].words}, and also {found[1].words}: keep one of them")
    return found[0].read(row, where)


def keys_in_words(row: Mapping[str, Any]) -> str:
    names = [str(name)[:40] for name in row]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "") or "none"
