"""Models that are asked for a value and whose answer is known: they read the list of pairs as text."""

import re
from collections.abc import Callable
from itertools import pairwise

import torch

from helpers.known import hand_made, shipped_tokenizer
from maskwise.models.model import Model

PAIR = re.compile(r"Key: (\w+)\nValue:\[(?: (\w+)\]|((?:<\|mask\|>)+)|$)")

# (pairs it can see, all pairs, the key it is asked for) -> the word to answer with
Pairs = list[tuple[str, str]]
Reply = Callable[[Pairs, Pairs, str], str]


def recalling_model(reply: Reply, sees: int | None = None, causal: bool = False) -> Model:
    """Answers with the first token of reply(...). `sees`: only so many tokens on either side of the question."""
    tokenizer = shipped_tokenizer()
    width = len(tokenizer)

    def body(net, batch, layout):
        hidden = torch.zeros(batch.tokens, width)
        for start, end in pairwise(batch.offsets.tolist()):
            ids = batch.ids[start:end].tolist()
            row = len(ids) if causal else ids.index(tokenizer.mask_token_id)
            first = 0 if sees is None else max(0, row - sees)
            last = len(ids) if sees is None else row + sees
            seen, key = read(tokenizer.decode(ids[first:last]))
            word = reply(seen, read(tokenizer.decode(ids))[0], key)
            hidden[start:end, tokenizer(f" {word}")["input_ids"][0]] = 50.0
        return hidden

    mask_id = None if causal else tokenizer.mask_token_id
    return hand_made(body, name="known", window=2048, shift=causal, causal=causal, mask_id=mask_id)


def read(text: str) -> tuple[Pairs, str]:
    """(pairs, the key without a value)"""
    found = [(key, value) for key, value, _ in PAIR.findall(text)]
    return [pair for pair in found if pair[1]], next(key for key, value in found if not value)


def recalls_what_it_sees(seen, pairs, key):
    """The value where the pair can be seen, else one of the list's values, by the letters of the key."""
    return dict(seen).get(key) or pairs[sum(map(ord, key)) % len(pairs)][1]


def pair_before(seen, pairs, key):
    """The value of the pair before the asked one; of the first, that of the pair after it."""
    asked = [k for k, _ in pairs].index(key)
    return pairs[asked - 1 if asked else 1][1]


def no_value(seen, pairs, key):
    return "7"
