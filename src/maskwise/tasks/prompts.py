"""From questions to token ids: a whole text is tokenised with the true letter in place, then the letter is masked.

Nothing is ever tokenised in pieces and joined: some tokenizers (Qwen's) make `].` and the blank line after it one
token. Only what is no text, masks and fillers, is appended as ids.
"""

import functools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal

from maskwise.models.tokenizers.chat import render_chat
from maskwise.support.errors import UserError
from maskwise.tasks.episodes import LETTERS, Exercise, Question, answer_place, render

Place = Literal["right", "middle", "left"]


@dataclass(frozen=True)
class Encoded:
    """A prompt's tokens with the answer still visible: `ids[row]` is the token to be predicted.

    `allowed`: the tokens that would be an answer in its place, the right one among them; empty where there is no list.
    """

    ids: tuple[int, ...]
    row: int
    allowed: tuple[int, ...] = ()


@dataclass(frozen=True)
class Prompt:
    """The input of the model (`ids`), the predicted position `row`, and the right token `answer_id`.

    For a diffusion model `ids[row]` is a mask; an autoregressive prompt ends before it (`row == len(ids)`). `allowed`
    are the tokens that would be an answer, right or wrong; empty where there is no such list.
    """

    ids: tuple[int, ...]
    row: int
    answer_id: int
    masks: int
    parts: tuple[int, ...] = ()  # the question of the prompt that each token belongs to, if needed
    allowed: tuple[int, ...] = ()
    start: int = 0  # the position of the first token


def encode_question(
    tokenizer: Any, examples: Sequence[Question], test: Question, place: Place = "right", chat: bool = False
) -> Encoded:
    """The examples in their order with the test question before (left), amid (middle) or after (right) them.

    The text ends with the last answer's closing `].`. In a chat each question is a user's turn and each answer the
    assistant's turn after it.
    """
    return encode_parts(tokenizer, examples, test, place, chat)[0]


def encode_parts(
    tokenizer: Any, examples: Sequence[Question], test: Question, place: Place, chat: bool
) -> tuple[Encoded, tuple[int, ...]]:
    """`encode_question`, and for each token the number of the question (in the prompt's order) in which it ends.

    What stands before the first question, such as a begin token, is number -1.
    """
    text, starts, letter_at = lay_out(tokenizer, examples, test, place, chat)
    ids, spans = _question_tokens(tokenizer, text, add_special_tokens=not chat)
    row = _letter_row(tokenizer, spans, letter_at)
    parts = tuple(bisect_right(starts, end - 1) - 1 for _, end in spans)
    # The letters' tokens; the right one's is the one found in the text.
    allowed = tuple(ids[row] if n == test.answer else one for n, one in enumerate(letter_ids(tokenizer)))
    return Encoded(ids, row, allowed), parts


def encode_label(
    tokenizer: Any,
    examples: Sequence[Exercise],
    test: Exercise,
    place: Place = "right",
    chat: bool = False,
    system: str = "",
) -> tuple[tuple[int, ...], range]:
    """Any exercises: the tokens of the text, and the rows of the test's answer with what closes its bracket.

    `system` stands before all of them, in a chat as the system's turn.
    """
    text, _, label_at = lay_out(tokenizer, examples, test, place, chat, system)
    ids, spans = tokens_and_spans(tokenizer, text, add_special_tokens=not chat)
    first = next((row for row, (start, end) in enumerate(spans) if start == label_at < end), None)
    if first is None:
        raise UserError(
            f"in the tokenizer {name_of(tokenizer)} no token begins at the answer after `[`, so it cannot be masked"
        )
    closed_at = label_at + len(test.answered) - test.answered.index("[") - 1
    last = next(row for row in range(first, len(spans)) if spans[row][1] >= closed_at)
    return ids, range(first, last + 1)


def encode_answers(
    tokenizer: Any, examples: Sequence[Exercise], test: Exercise, place: Place = "right", chat: bool = False
) -> tuple[tuple[int, ...], list[range]]:
    """The tokens of the whole text, and for each exercise in the prompt's order the rows of its answer in brackets.

    A space after the opening bracket is a part of the answer, also where it is a token of its own.
    """
    text, starts, _ = lay_out(tokenizer, examples, test, place, chat)
    ids, spans = _question_tokens(tokenizer, text, add_special_tokens=not chat)
    before = _test_at(place, examples)
    found: list[range] = []
    for exercise, start in zip([*examples[:before], test, *examples[before:]], starts, strict=True):
        answered_at = text.index(exercise.answered, start)
        opening, end = answered_at + exercise.answered.index("["), answered_at + exercise.answered.rindex("]")
        after_last = range(found[-1].stop if found else 0, len(spans))
        first = next(row for row in after_last if spans[row][1] > opening + 1)
        last = next(row for row in range(first, len(spans)) if spans[row][1] >= end)
        if spans[first][0] <= opening or spans[last][1] > end:
            raise UserError(
                f"in the tokenizer {name_of(tokenizer)} {exercise.answered!r} has no token boundaries at its brackets, "
                "so the answer cannot be masked"
            )
        found.append(range(first, last + 1))
    return ids, found


def encode_last_word(tokenizer: Any, passage: str, word_at: int) -> Encoded:
    """A passage and the character at which its last word begins; the row is the first token that is part of it."""
    ids, spans = tokens_and_spans(tokenizer, passage, add_special_tokens=True)
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
    return Prompt(ids, encoded.row, encoded.ids[encoded.row], count, allowed=encoded.allowed)


def opened(encoded: Encoded, mask_id: int | None, masks: int | float = 2, tail: Sequence[int] = ()) -> Prompt:
    """Format B: the text is cut before the answer and `masks` masks follow, the first of them in the answer's place.

    The question must be the last. Where `].` is one token, two masks hide exactly what format A shows.
    """
    if mask_id is None:
        return _causal(encoded)
    count = mask_count(masks, encoded.row)
    ids = (*encoded.ids[: encoded.row], *[mask_id] * count, *tail)
    return Prompt(ids, encoded.row, encoded.ids[encoded.row], count, allowed=encoded.allowed)


def gapped(
    ids: tuple[int, ...], gap: range, mask_id: int | None, masks: int, more: int, allowed: tuple[int, ...] = ()
) -> Prompt:
    """`masks` masks in place of an answer's rows, wherever it stands, and `more` at the end. After a question that is
    the last this is format B."""
    encoded = Encoded(ids, gap.start, allowed)
    if mask_id is None:
        return _causal(encoded)
    shown = (*ids[: gap.start], *[mask_id] * masks, *ids[gap.stop :], *[mask_id] * more)
    return Prompt(shown, gap.start, ids[gap.start], masks + more, allowed=allowed)


def mask_count(masks: int | float, length: int) -> int:
    """An integer is a number of masks, a float a share of `length` tokens; at least 1, the answer's own mask."""
    return max(1, round(masks * length) if isinstance(masks, float) else masks)


def filler_id(tokenizer: Any, filler: str) -> int:
    """The one token of a filler text, so that n fillers are n tokens (as text, dots would merge into few)."""
    ids = tokenizer(filler, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        where = f"in the tokenizer {name_of(tokenizer)}"
        raise UserError(f"the filler {filler!r} is {len(ids)} tokens {where}, it must be one")
    return int(ids[0])


def check_offsets(tokenizer: Any) -> None:
    """Refuses, by its name, a tokenizer that cannot say where a token stands."""
    if not tokenizer.is_fast:
        needed = "a fast tokenizer (tokenizer.json) is needed"
        raise UserError(f"the tokenizer {name_of(tokenizer)} gives no offsets; {needed}")


@functools.lru_cache(maxsize=8)
def letter_ids(tokenizer: Any) -> tuple[int, ...]:
    """The token of each answer letter in its place, after `[` and before `]`; refuses several tokens."""
    found = []
    for place in range(len(LETTERS)):
        text, _, letter_at = lay_out(tokenizer, [], Question(("one", "two", "three"), place, True), "right", False)
        ids, spans = _question_tokens(tokenizer, text, add_special_tokens=True)
        found.append(ids[_letter_row(tokenizer, spans, letter_at)])
    return tuple(found)


def _letter_row(tokenizer: Any, spans: Sequence[tuple[int, int]], letter_at: int) -> int:
    if (letter_at, letter_at + 1) not in spans:
        where = f"in the tokenizer {name_of(tokenizer)} the answer letter after `[`"
        raise UserError(f"{where} is not one token: it cannot be masked")
    return spans.index((letter_at, letter_at + 1))


def _causal(encoded: Encoded) -> Prompt:
    return Prompt(encoded.ids[: encoded.row], encoded.row, encoded.ids[encoded.row], 0, allowed=encoded.allowed)


def lay_out(
    tokenizer: Any, examples: Sequence[Exercise], test: Exercise, place: Place, chat: bool, system: str = ""
) -> tuple[str, list[int], int]:
    """(text, where each question begins in it, where the test's answer stands)."""
    before = _test_at(place, examples)
    questions = [*examples[:before], test, *examples[before:]]
    return _chat_text(tokenizer, questions, before, system) if chat else _plain_text(questions, before, system)


def _test_at(place: Place, examples: Sequence[Exercise]) -> int:
    """The number of examples before the test question."""
    return {"left": 0, "middle": len(examples) // 2, "right": len(examples)}[place]


def _plain_text(questions: Sequence[Exercise], asked: int, system: str) -> tuple[str, list[int], int]:
    before = f"{system}\n\n" if system else ""
    rendered = [render(question) for question in questions]
    starts = list(accumulate(map(len, rendered[:-1]), initial=len(before)))
    test = questions[asked]
    return ("".join([before, *rendered]).rstrip("\n"), starts, starts[asked] + len(test.asked) + 1 + answer_place(test))


def _chat_text(tokenizer: Any, questions: Sequence[Exercise], asked: int, system: str) -> tuple[str, list[int], int]:
    """The same as a conversation. It is cut after the last answer: LLaDA's template would open one more turn there."""
    if not tokenizer.chat_template:
        raise UserError(f"the tokenizer of {Path(name_of(tokenizer)).name} has no chat template; ask without --chat")
    messages = [{"role": "system", "content": system}] if system else []
    for one in questions:
        messages += [{"role": "user", "content": one.asked}, {"role": "assistant", "content": one.answered}]
    text, end = render_chat(tokenizer, messages), 0
    starts: dict[str, list[int]] = {"system": [], "user": [], "assistant": []}
    for message in messages:
        start = text.find(message["content"], end)
        if start < 0:
            template = f"the chat template of the tokenizer {name_of(tokenizer)}"
            raise UserError(f"{template} rewrites messages; ask without --chat")
        end = start + len(message["content"])
        starts[message["role"]].append(start)
    return text[:end], starts["user"], starts["assistant"][asked] + answer_place(questions[asked])


def tokens_and_spans(
    tokenizer: Any, text: str, add_special_tokens: bool
) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """The tokens of a text, and from which character to which each of them goes."""
    encoding = tokenizer(text, add_special_tokens=add_special_tokens, return_offsets_mapping=True)
    return tuple(encoding["input_ids"]), [tuple(span) for span in encoding["offset_mapping"]]


def _question_tokens(
    tokenizer: Any, text: str, add_special_tokens: bool
) -> tuple[tuple[int, ...], list[tuple[int, int]]]:
    """`tokens_and_spans` of a question; refuses a tokenizer that has no token for a part of it."""
    ids, spans = tokens_and_spans(tokenizer, text, add_special_tokens)
    missing = unknown_id(tokenizer)
    pieces = (text[start:end] for token, (start, end) in zip(ids, spans, strict=True) if token == missing)
    unknown = next((piece for piece in pieces if piece and piece != tokenizer.unk_token), None)
    if unknown is not None:
        raise UserError(
            f"the tokenizer {name_of(tokenizer)} has no token for {unknown!r}, so it cannot write the questions: name "
            "probes that read a text of yours, as --probes natural-text,marginals --text FILE"
        )
    return ids, spans


def unknown_id(tokenizer: Any) -> int | None:
    """The token that stands for what the tokenizer does not know; None where it knows every text."""
    return getattr(tokenizer, "unk_token_id", None)


def name_of(tokenizer: Any) -> str:
    return tokenizer.name_or_path or type(tokenizer).__name__
