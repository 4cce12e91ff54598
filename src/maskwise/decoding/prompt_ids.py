"""From prompts to token ids: plain text, chats, or ids as they are."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any, TypeGuard

from maskwise.decoding.prompt_files import MASK_LIKE
from maskwise.models.generation import Messages, PromptInput
from maskwise.models.model import Model
from maskwise.models.tokenizers.chat import render_chat
from maskwise.support.errors import UserError, UserNotice
from maskwise.support.files import is_writable


def is_chat(prompt: object) -> TypeGuard[Messages]:
    return isinstance(prompt, Sequence) and bool(prompt) and all(isinstance(turn, Mapping) for turn in prompt)


def listed_prompts(prompts: object) -> list[Any]:
    """One prompt, or several, as a list."""
    if isinstance(prompts, str) or is_chat(prompts):
        return [prompts]
    if isinstance(prompts, Mapping | bytes) or not isinstance(prompts, Iterable):
        what = type(prompts).__name__
        raise UserError(
            f"prompts is a value of the type {what}: give a text, messages, or a list of texts or token ids"
        )
    return list(prompts)


def encode_prompts(
    model: Model, prompts: Sequence[PromptInput] | PromptInput, chat: bool | None, today: bool = False
) -> list[list[int]]:
    """Token ids of the prompts. Ids are taken as they are; what `chat` says concerns text alone.

    A list of messages (role, content) is one prompt, with the assistant's turn opened after it.
    chat: True makes each text the user's turn of a chat and opens the assistant's turn, None does so where the
    tokenizer has a chat template, False leaves text as it is. today: a template that writes the date is given today's.
    """
    every: Sequence[object] = [prompts] if isinstance(prompts, str) or is_chat(prompts) else prompts
    encoded = []
    for number, prompt in enumerate(every, start=1):
        if isinstance(prompt, Real) or getattr(prompt, "ndim", None) == 0:
            raise UserError("prompts is a list of prompts: put the token ids of one prompt in a list of their own")
        if is_chat(prompt):
            if not has_chat_template(model):
                named = model.name or model.kind
                raise UserError(f"{named} has no chat template and takes no messages: give prompt {number} as a text")
            if chat is False:
                raise UserError(f"prompt {number} is a list of messages, which need the chat template: leave chat out")
            encoded.append(chat_ids(model, prompt, f"prompt {number}", today))
        elif not isinstance(prompt, Iterable):
            raise UserError(f"prompt {number} is {prompt!r}: give a text, messages or a list of token ids")
        elif not isinstance(prompt, str):
            encoded.append([_whole(token, number) for token in prompt])
        elif not is_writable(prompt):
            raise UserError(f"prompt {number} is not UTF-8 text, or holds half a surrogate pair: write it as UTF-8")
        elif model.tokenizer is None:
            place = model.name or model.kind
            raise UserError(f"{place} has no tokenizer: copy its tokenizer.json there, or give prompt {number} as ids")
        elif has_chat_template(model) if chat is None else chat:
            encoded.append(chat_ids(model, [{"role": "user", "content": prompt}], today=today))
        else:
            encoded.append(text_ids(model, prompt))
    return encoded


def note_other_masks(model: Model, prompts: Sequence[object], fills_only: bool) -> None:
    """One line where a prompt has the mask of another model, which is plain text to this one.

    fills_only: nothing else was asked for, so that it is refused.
    """
    tokenizer, mask_id = model.tokenizer, model.mask_id
    if tokenizer is None:
        return
    own = None if mask_id is None else tokenizer.convert_ids_to_tokens(mask_id) or f"token {mask_id}"
    found = [one[0] for text in prompts if isinstance(text, str) for one in MASK_LIKE.finditer(text)]
    other = next((one for one in found if own is None or one not in own), None)
    if other is None:
        return
    name = model.name or model.kind
    line = f"{other} in a prompt is plain text to {name}, whose mask is {own}: write that to have a place filled in"
    if own is None:
        line = (
            f"{other} in a prompt is plain text to {name}, which is autoregressive and fills in no masks: leave it out"
        )
    if fills_only:
        raise UserError(line)
    warnings.warn(line, UserNotice, stacklevel=5)


def _whole(token: Any, number: int) -> int:
    if not isinstance(token, Real) and getattr(token, "ndim", None) != 0:
        raise UserError(f"prompt {number} holds {token!r}: give token ids, whole numbers, or each text by itself")
    if int(token) != token:
        raise UserError(f"prompt {number} holds {float(token):g}: token ids are whole numbers")
    return int(token)


def has_chat_template(model: Model) -> bool:
    return model.tokenizer is not None and bool(model.tokenizer.chat_template)


def text_ids(model: Model, text: str) -> list[int]:
    """Token ids of a text; one that begins with the start token, as chat templates write it, gets no second one."""
    start = model.tokenizer.bos_token
    return list(model.tokenizer(text, add_special_tokens=not (start and text.startswith(start)))["input_ids"])


def chat_ids(model: Model, messages: Messages, what: str = "the prompt", today: bool = False) -> list[int]:
    """Token ids of a chat, with the assistant's turn opened after it."""
    if not has_chat_template(model):
        raise UserError(f"the tokenizer of {model.name or model.kind} has no chat template: use --no-chat")
    if not all(isinstance(turn.get(key), str) for turn in messages for key in ("role", "content")):
        raise UserError(f"{what}: each message has a role and a content, both text")
    turns = [dict(turn) for turn in messages]
    written = render_chat(model.tokenizer, turns, add_generation_prompt=True, today=today)
    # The template has written the special tokens out already.
    return list(model.tokenizer(written, add_special_tokens=False)["input_ids"])
