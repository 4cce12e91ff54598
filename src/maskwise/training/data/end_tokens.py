"""The tokens that close an assistant's turn and a text, and the refusals that every tokenisation shares."""

from maskwise.models.model import Model
from maskwise.models.tokenizers.chat import render_chat
from maskwise.models.tokenizers.tokenizer import TURN_ENDS
from maskwise.support.errors import UserError


def check_context(model: Model, context: int) -> None:
    """Refuse a model without a tokenizer, and a context longer than the model's."""
    if model.tokenizer is None:
        raise UserError(f"{model.name} has no tokenizer: put its tokenizer files into the checkpoint folder")
    if context > model.window:
        raise UserError(
            f"context {context} is more than the context length of {model.name}, {model.window}: lower --context"
        )


def end_of_turn(model: Model) -> int:
    """The token that closes an assistant's turn in the chat template, a known end-of-turn token, or the end of text."""
    tokenizer = model.tokenizer
    if tokenizer.chat_template:
        said = "maskwise"
        text = render_chat(tokenizer, [{"role": role, "content": said} for role in ("user", "assistant")])
        after = tokenizer(text[text.rfind(said) + len(said) :], add_special_tokens=False)["input_ids"]
        if after and after[0] in tokenizer.all_special_ids:
            return int(after[0])
    vocabulary = tokenizer.get_vocab()
    for name in TURN_ENDS:
        if name in vocabulary:
            return int(vocabulary[name])
    return end_of_text(model)


def end_of_text(model: Model) -> int:
    """The tokenizer's end-of-text token, refused where it has none."""
    found = model.tokenizer.eos_token_id
    if found is None:
        raise UserError(f"the tokenizer of {model.name} has no end-of-text token: set eos_token in its configuration")
    return int(found)
