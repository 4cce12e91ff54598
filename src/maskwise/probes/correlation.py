"""How much do two masked places know of each other? What a step loses that fills both at once.

The total correlation of a pair is C = KL(p(x_i, x_j) || p(x_i) p(x_j)). A model states p(x_i) and, once x_i stands,
p(x_j | x_i), so by the chain rule

    C(i, j) = E over x_i ~ p_i of KL( p(x_j | x_i) || p_j )

here the mean over 32 samples of x_i, and once more with i and j exchanged: a model that is consistent gives the same
both ways, a real one need not, and the mean of the two is reported. 0 nats: the two can be filled in one step.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from maskwise.models.base import Model
from maskwise.probes.marginals import Gap
from maskwise.probes.records import Condition, Key, still_to_ask
from maskwise.probes.runner import DIGITS, Answer, answers_of, own_generator
from maskwise.probes.variants import Item
from maskwise.tasks.prompts import Prompt

PROBE, TASK = "total-correlation", "text"


def pair_items(
    mask_id: int,
    tokenizer: Any,
    pieces: Sequence[tuple[int, ...]],
    gap: Gap,
    distances: Sequence[int],
    points: Sequence[int],
    done: Collection[Key],
) -> Iterator[Item]:
    """Pairs of the first mask and the mask `distance` places after it; the row asked is the second's."""
    conditions: list[Condition] = [{"distance": distance} for distance in distances]
    for key, point, condition in still_to_ask(PROBE, TASK, points, conditions, done):
        piece, row = pieces[point], gap.before + int(condition["distance"])
        ids = (*piece[: gap.before], *[mask_id] * gap.masks)
        yield Item(key, condition, Prompt(ids, row, piece[row], gap.masks), tokenizer.decode([piece[row]]))


def correlate(model: Model, prompts: Sequence[Prompt], seed: int, samples: int) -> list[Answer]:
    """Evidence {"tc", "forth", "back"} in nats; the samples depend on the prompt and the seed alone."""
    answers = []
    for prompt in prompts:
        first = prompt.ids.index(_mask(model))
        chance = own_generator(seed, prompt.row, *prompt.ids)
        forth, back, logits = pair_correlation(model, prompt.ids, first, prompt.row, samples, chance)
        told = {"tc": (forth + back) / 2, "forth": forth, "back": back}
        answer = answers_of(logits, torch.tensor([prompt.answer_id]))[0]
        answers.append(replace(answer, evidence={name: round(value, DIGITS) for name, value in told.items()}))
    return answers


def pair_correlation(
    model: Model, ids: Sequence[int], i: int, j: int, samples: int, generator: torch.Generator
) -> tuple[float, float, Tensor]:
    """(C estimated from samples of x_i, the same from samples of x_j, logits of place j [1, V])."""
    both = model.predict([ids], [[i, j]])[0]
    p_i, p_j = both.log_softmax(dim=-1)
    forth = _expected_divergence(model, ids, i, j, p_i, p_j, samples, generator)
    back = _expected_divergence(model, ids, j, i, p_j, p_i, samples, generator)
    return forth, back, both[1:]


def _expected_divergence(
    model: Model,
    ids: Sequence[int],
    given: int,
    asked: int,
    p_given: Tensor,
    p_asked: Tensor,
    samples: int,
    generator: torch.Generator,
) -> float:
    """Mean over draws x of `given` of KL(p(asked | x) || p(asked)); equal draws are asked once. p: log, [V]."""
    drawn, counts = torch.multinomial(p_given.exp(), samples, replacement=True, generator=generator).unique(
        return_counts=True
    )
    canvases = [[*ids[:given], int(token), *ids[given + 1 :]] for token in drawn]
    after = torch.cat(model.predict(canvases, [[asked]] * len(canvases))).log_softmax(dim=-1)  # [draws, V]
    p = after.exp()
    divergence = torch.where(p > 0, p * (after - p_asked), 0.0).sum(dim=-1)
    return float((divergence * counts).sum() / samples)


def _mask(model: Model) -> int:
    assert model.mask_id is not None
    return model.mask_id
