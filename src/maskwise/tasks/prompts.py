"""From questions to token ids: a whole text is tokenised with the true letter in place, then the letter is masked.

Nothing is ever tokenised in pieces and joined: some tokenizers (Qwen's) make `].` and the blank line after it one
token. Only what is no text, masks and fillers, is appended as ids.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from maskwise.errors import UserError
from maskwise.tasks.episodes import LETTERS, Question, render

Place = Literal["right", "middle", "left"]


@dataclass(frozen=True)
class Encoded:
    """A prompt's tokens with the answer still visible: `ids[row]` is the token to be predicted."""

    ids: tuple[int, ...]
    row: int


@dataclass(frozen=True)
class Prompt:
    """What the model is given (`ids`), and what is read: the prediction of position `row`, right if `answer_id`.

    For a diffusion model `ids[row]` is a mask; an autoregressive prompt ends before it (`row == len(ids)`).
    """

    ids: tuple[int, ...]
    row: int
    answer_id: int
    masks: int


def encode_question(
    tokenizer: Any, examples: Sequence[Question], test: Question, place: Place = "right", chat: bool = False
) -> Encoded:
    """The examples in their order with the test question before (left), amid (middle) or after (right) them.

    The text ends with the last answer's closing `].`. In a chat each question is a user's turn and each answer the
    assistant's turn after it.
    """
    before = {"left": 0, "middle": len(examples) // 2, "right": len(examples)}[place]
    questions = [*examples[:before], test, *examples[before:]]
    text, letter_at = _chat_text(tokenizer, questions, before) if chat else _plain_text(questions, before)
    return _encode_at(tokenizer, text, letter_at, letter_at + 1, add_special_tokens=not chat)


def encode_last_word(tokenizer: Any, passage: str, word_at: int) -> Encoded:
    """A passage and the character at which its last word begins; the row is the first token that is part of it."""
    ids, spans = _tokens(tokenizer, passage, add_special_tokens=True)
    row = next(place for place, (_, end) in enumerate(spans) if end > word_at)
    return Encoded(ids, row)


def closed(encoded: Encoded, mask_id: int | None, masks: int | float = 1, tail: Sequence[int] = ()) -> Prompt:
    """Format A: the answer alone is masked, all text after it stays visible; further masks and the tail end the prompt.

    `masks` counts all masks; a float is a share of the text's length. `tail` are filler ids.
    """
    if mask_id is None:
        return _causal(encoded)
    count = mask_count(masks, len(encoded.ids))
    ids = (*encoded.ids[: encoded.row], mask_id, *encoded.ids[encoded.row + 1 :], *[mask_id] * (count - 1), *tail)
    return Prompt(ids, encoded.row, encoded.ids[encoded.row], count)


def opened(encoded: Encoded, mask_id: int | None, masks: int | float = 2, tail: Sequence[int] = ()) -> Prompt:
    """Format B: the text is cut before the answer and `masks` masks follow, the first of them in the answer's place.

    The question must be the last. Where `].` is one token, two masks hide exactly what format A shows.
    """
    if mask_id is None:
        return _causal(encoded)
    count = mask_count(masks, encoded.row)
    ids = (*encoded.ids[: encoded.row], *[mask_id] * count, *tail)
    return Prompt(ids, encoded.row, encoded.ids[encoded.row], count)


def mask_count(masks: int | float, length: int) -> int:
    """An integer is a number of masks, a float a share of `length` tokens; at least 1, the answer's own mask."""
    return max(1, round(masks * length) if isinstance(masks, float) else masks)


def filler_id(tokenizer: Any, filler: str) -> int:
    """The one token of a filler text, so that n fillers are n tokens (as text, dots would melt into few)."""
    ids = tokenizer(filler, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise UserError(
            f"the filler {filler!r} is {len(ids)} tokens in the tokenizer {_name(tokenizer)}, it must be one"
        )
    return int(ids[0])


def check_letters(tokenizer: Any) -> None:
    """Refuse, by its name, a tokenizer that cannot say where a token stands or in which a letter is not one token."""
    if not tokenizer.is_fast:
        raise UserError(
            f"the tokenizer {_name(tokenizer)} gives no offsets; a fast tokenizer (tokenizer.json) is needed"
        )
    for place in range(len(LETTERS)):
        encode_question(tokenizer, [], Question(("one", "two", "three"), place, relevant=True))


def _causal(encoded: Encoded) -> Prompt:
    return Prompt(encoded.ids[: encoded.row], encoded.row, encoded.ids[encoded.row], 0)


def _plain_text(questions: Sequence[Question], asked: int) -> tuple[str, int]:
    """(text, where the letter of question number `asked` stands in it)."""
    text = "".join(render(question) for question in questions).rstrip("\n")
    before = "".join(render(question) for question in questions[:asked])
    return text, len(before) + render(questions[asked]).index("[") + 1


def _chat_text(tokenizer: Any, questions: Sequence[Question], asked: int) -> tuple[str, int]:
    """The same as a conversation. It is cut after the last answer: LLaDA's template would open one more turn there."""
    if not tokenizer.chat_template:
        raise UserError(f"the tokenizer {_name(tokenizer)} has no chat template; ask without --chat")
    turns = [(question.asked, question.answered) for question in questions]
    messages = [
        {"role": role, "content": said}
        for turn in turns
        for role, said in zip(("user", "assistant"), turn, strict=True)
    ]
    text = tokenizer.apply_chat_template(messages, tokenize=False)
    end, answers_at = 0, []
    for message in messages:
        start = text.find(message["content"], end)
        if start < 0:
            raise UserError(
                f"the chat template of the tokenizer {_name(tokenizer)} rewrites messages; ask without --chat"
            )
        end = start + len(message["content"])
        if message["role"] == "assistant":
            answers_at.append(start)
    return text[:end], answers_at[asked] + questions[asked].answered.index("[") + 1


def _encode_at(tokenizer: Any, text: str, start: int, end: int, add_special_tokens: bool) -> Encoded:
    """The tokens of a text in which the characters start..end must be one token."""
    ids, spans = _tokens(tokenizer, text, add_special_tokens)
    if (start, end) not in spans:
        raise UserError(
            f"in the tokenizer {_name(tokenizer)} the answer letter after `[` is not one token, so it cannot be masked"
        )
    return Encoded(ids, spans.index((start, end)))


def _tokens(tokenizer: Any, text: str, add_special_tokens: bool) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    encoding = tokenizer(text, add_special_tokens=add_special_tokens, return_offsets_mapping=True)
    return tuple(encoding["input_ids"]), [tuple(span) for span in encoding["offset_mapping"]]


def _name(tokenizer: Any) -> str:
    return tokenizer.name_or_path or type(tokenizer).__name__
