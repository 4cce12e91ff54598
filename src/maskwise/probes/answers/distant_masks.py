"""Predictions of masks behind prose: neighbours compared with each other and with the frequencies of tokens, and the
total correlation of two places, estimated from the model's own conditional predictions."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, answer_rows, answers_of, answers_to, pack_once
from maskwise.probes.text import text_ids
from maskwise.support.randomness import torch_generator
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


def correlate(model: Model, prompts: Sequence[Prompt], seed: int, samples: int) -> list[Answer]:
    """Evidence {"tc"} in nats; the samples depend on the prompt and the seed alone."""
    answers = []
    for prompt in prompts:
        first = prompt.ids.index(model.mask_id)
        chance = torch_generator("pair", seed, prompt.row, prompt.ids)
        forth, back, logits = pair_correlation(model, prompt.ids, first, prompt.row, samples, chance)
        answer = answers_of(logits, torch.tensor([prompt.answer_id]))[0]
        answers.append(replace(answer, evidence={"tc": round((forth + back) / 2, DIGITS)}))
    return answers


def pair_correlation(
    model: Model, ids: Sequence[int], i: int, j: int, samples: int, generator: torch.Generator
) -> tuple[float, float, Tensor]:
    """(C estimated from samples of x_i, the same from samples of x_j, logits of place j [1, V])."""
    both = model.predict([ids], [[i, j]])[0]
    p_i, p_j = both.log_softmax(dim=-1)

    def divergence(given: int, asked: int, p_given: Tensor, p_asked: Tensor) -> float:
        """Mean over draws x of `given` of KL(p(asked | x) || p(asked)); equal draws are asked once. p: log, [V]."""
        draws = torch.multinomial(p_given.exp(), samples, replacement=True, generator=generator)
        drawn, counts = draws.unique(return_counts=True)
        canvases = [[*ids[:given], int(token), *ids[given + 1 :]] for token in drawn]
        after = torch.cat(model.predict(canvases, [[asked]] * len(canvases))).log_softmax(dim=-1)  # [draws, V]
        p = after.exp()
        each = torch.where(p > 0, p * (after - p_asked), 0.0).sum(dim=-1)
        return float((each * counts).sum() / samples)

    return divergence(i, j, p_i, p_j), divergence(j, i, p_j, p_i), both[1:]
