"""Predictions of masks far from the text: neighbours compared with each other and with the frequencies of tokens."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, answer_rows, answers_to, pack_once
from maskwise.probes.text import text_ids
from maskwise.tasks.prompts import Prompt

MOST_FREQUENT = 50


def text_frequencies(tokenizer: Any, text: str, vocabulary: int) -> Tensor:
    """The share of each token among those of the text, [V]."""
    ids = torch.tensor(text_ids(tokenizer, text))
    return torch.bincount(ids, minlength=vocabulary).float() / len(ids)


def common_tokens(frequencies: Tensor, end_id: int | None) -> Tensor:
    """The end token and the most frequent ones, [n]."""
    found = set(frequencies.topk(min(MOST_FREQUENT, len(frequencies))).indices.tolist())
    return torch.tensor(sorted(found | ({end_id} if end_id is not None else set())))


@torch.inference_mode()
def compare_rows(model: Model, prompts: Sequence[Prompt], frequencies: Tensor, common: Tensor) -> list[Answer]:
    """Each different canvas is read once, at the rows asked and the rows after them."""
    batch, which = pack_once(model, prompts)
    hidden, rows = model.hidden(batch), answer_rows(model, prompts)
    frequencies, common = frequencies.to(model.device), common.to(model.device)
    has_next = [prompt.row + 1 < len(prompt.ids) and prompt.ids[prompt.row + 1] == model.mask_id for prompt in prompts]
    after = rows + torch.tensor(has_next, device=model.device)
    here, there = (model.head(hidden[model.locate(batch, which, at)]) for at in (rows, after))
    p, q = here.softmax(dim=-1), there.softmax(dim=-1)
    measured = {
        "tv_next": (p - q).abs().sum(dim=-1) / 2,
        "tv_unigram": (p - frequencies).abs().sum(dim=-1) / 2,
        "common": p[:, common].sum(dim=-1),
        "mode_common": torch.isin(p.argmax(dim=-1), common).float(),
    }
    table = torch.stack(list(measured.values()), dim=1).tolist()
    found = []
    for answer, line, follows in zip(answers_to(prompts, here), table, has_next, strict=True):
        evidence = {name: round(value, DIGITS) for name, value in zip(measured, line, strict=True)}
        if not follows:  # the last mask has no neighbour to be like
            del evidence["tv_next"]
        found.append(replace(answer, evidence=evidence))
    return found
