"""From prompts to token ids: plain text, chats, or ids as they are."""

from collections.abc import Sequence

from maskwise.errors import UserError
from maskwise.files import is_writable
from maskwise.models.base import Model
from maskwise.models.chat import render_chat

Prompt = str | Sequence[int]


def encode_prompts(model: Model, prompts: Sequence[Prompt] | str, chat: bool | None) -> list[list[int]]:
    """Token ids of the prompts. Ids are taken as they are; what `chat` says concerns text alone.

    chat: True makes each text the user's turn of a chat and opens the assistant's turn, None does so where the
    tokenizer has a chat template, False leaves text as it is.
    """
    if isinstance(prompts, str):
        prompts = [prompts]
    encoded = []
    for number, prompt in enumerate(prompts, start=1):
        if isinstance(prompt, int):
            raise UserError("prompts is a list of prompts: put the token ids of one prompt in a list of their own")
        if not isinstance(prompt, str):
            encoded.append([int(token) for token in prompt])
        elif not is_writable(prompt):
            raise UserError(f"prompt {number} is not UTF-8 text, or holds half a surrogate pair: write it as UTF-8")
        elif model.tokenizer is None:
            raise UserError(f"{model.name or model.kind} has no tokenizer: give prompt {number} as token ids")
        elif has_chat_template(model) if chat is None else chat:
            encoded.append(chat_ids(model, prompt))
        else:
            encoded.append(text_ids(model, prompt))
    return encoded


def has_chat_template(model: Model) -> bool:
    return model.tokenizer is not None and bool(model.tokenizer.chat_template)


def text_ids(model: Model, text: str) -> list[int]:
    """Token ids of a text; one that begins with the start token, as chat templates write it, gets no second one."""
    start = model.tokenizer.bos_token
    return list(model.tokenizer(text, add_special_tokens=not (start and text.startswith(start)))["input_ids"])


def chat_ids(model: Model, text: str) -> list[int]:
    """Token ids of a chat whose user says the text, with the assistant's turn opened."""
    if not has_chat_template(model):
        raise UserError(f"the tokenizer of {model.name or model.kind} has no chat template: use --no-chat, chat=False")
    turns = [{"role": "user", "content": text}]
    written = render_chat(model.tokenizer, turns, add_generation_prompt=True)
    # The template has written the special tokens out already.
    return list(model.tokenizer(written, add_special_tokens=False)["input_ids"])
