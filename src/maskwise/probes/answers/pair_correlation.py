"""Total correlation of two masked places, estimated from a model's own conditional predictions."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, answers_of
from maskwise.support.randomness import torch_generator
from maskwise.tasks.prompts import Prompt


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
