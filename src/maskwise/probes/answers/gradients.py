"""Which tokens move the answer, and which does it attend to?

Gradients: the norm of that of the greedy answer's logit with respect to each embedding, divided by the largest in its
prompt. The answer's own mask is left out, and for shifted models the token before it too: the answer is read from
there. Only the embeddings get gradients, and the head is applied to one row per prompt.

Attention: the shares of the answer's that go to masks, near and far context, by layer.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from maskwise.models.model import Model
from maskwise.probes.answers.plain import DIGITS, Answer, answer_rows, answers_to, pack
from maskwise.tasks.prompts import Prompt

GROUPS = ("answer", "masks", "near", "far")
SHARE_DIGITS = 5


def attribute(model: Model, prompts: Sequence[Prompt], near: int) -> list[Answer]:
    """Answers with the mean norms of {"examples": [..], "question"} for prompts with parts, else of {"masks", "near",
    "all"} as evidence."""
    found = []
    for prompt, answer, norms in zip(prompts, *embedding_gradients(model, prompts), strict=True):
        if prompt.parts:
            means = of_parts(model, prompt, norms)
        else:
            groups = torch.tensor(mask_groups(model, prompt, near))
            chosen = {"masks": groups == 1, "near": groups == 2, "all": groups > 1}
            means = {name: mean(norms[own]) for name, own in chosen.items()}
        found.append(replace(answer, evidence=means))
    return found


def embedding_gradients(model: Model, prompts: Sequence[Prompt]) -> tuple[list[Answer], list[Tensor]]:
    """The answers, and the gradient norms of each prompt's tokens."""
    batch = pack(model, prompts)
    assert batch.ids is not None
    with frozen(model), torch.enable_grad():
        embeds = model.embed(batch.ids).detach().requires_grad_()
        index = model.locate(batch, torch.arange(len(prompts), device=model.device), answer_rows(model, prompts))
        logits = model.head(model.asked_rows(replace(batch, embeds=embeds), index))
        # Sequences do not see each other, so the gradient of the sum holds each prompt's own.
        (gradient,) = torch.autograd.grad(logits.max(-1).values.sum(), embeds)
    norms = gradient.float().norm(dim=-1).cpu().split([len(prompt.ids) for prompt in prompts])
    for prompt, own in zip(prompts, norms, strict=True):
        own[own_rows(model, prompt)] = 0
        own /= own.max().clamp(min=torch.finfo(own.dtype).tiny)
    return answers_to(prompts, logits.detach()), [*norms]


@contextmanager
def frozen(model: Model) -> Iterator[None]:
    """Weights that want no gradient: autograd then keeps no activations for them."""
    trainable = [weight for weight in model.parameters() if weight.requires_grad]
    for weight in trainable:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in trainable:
            weight.requires_grad_(True)


def own_rows(model: Model, prompt: Prompt) -> list[int]:
    """The answer's mask, and where the model reads its prediction."""
    return [row for row in {prompt.row, model.first_row(prompt.row)} if row < len(prompt.ids)]


def of_parts(model: Model, prompt: Prompt, norms: Tensor) -> dict[str, float | list[float]]:
    """The mean of each example in the prompt's order, the question's own apart."""
    parts = torch.tensor(prompt.parts)
    parts[own_rows(model, prompt)] = -1
    means = [mean(norms[parts == part]) for part in range(max(prompt.parts) + 1)]
    asked = prompt.parts[min(prompt.row, len(prompt.parts) - 1)]
    return {"question": means.pop(asked), "examples": means}


def mask_groups(model: Model, prompt: Prompt, near: int) -> list[int]:
    """0: the answer's own; 1: masks; 2: the `near` other tokens closest to the answer; 3: all farther ones."""
    groups = [1 if token == model.mask_id else 3 for token in prompt.ids]
    for row in own_rows(model, prompt):
        groups[row] = 0
    others = [place for place, group in enumerate(groups) if group == 3]
    for place in sorted(others, key=lambda place: abs(place - prompt.row))[:near]:
        groups[place] = 2
    return groups


def mean(norms: Tensor) -> float:
    return round(float(norms.mean()), DIGITS) if len(norms) else 0.0


@torch.no_grad()
def watch(model: Model, prompts: Sequence[Prompt], near: int) -> list[Answer]:
    """Answers with evidence {group: [share in each layer]}, means over the heads; the four groups add up to 1.

    "answer" is the answer's own place and, for shifted models, the place before it, which does the looking.
    """
    batch = pack(model, prompts)
    index = model.flat_rows(batch, [[prompt.start + prompt.row] for prompt in prompts])
    rows, layers = model.asked_rows_and_attention(batch, index)  # [S, d] and L of [S, heads, longest]
    groups = torch.zeros(len(prompts), batch.longest, dtype=torch.int64)
    for number, prompt in enumerate(prompts):
        groups[number, : len(prompt.ids)] = torch.tensor(mask_groups(model, prompt, near))
    places = groups.to(model.device)
    shares = torch.stack(
        [seen.new_zeros(len(prompts), len(GROUPS)).scatter_add(1, places, seen.mean(1)) for seen in layers]
    )  # [L, S, groups]
    by_prompt = shares.permute(1, 2, 0).cpu().double().round(decimals=SHARE_DIGITS).tolist()
    answers = answers_to(prompts, model.head(rows))
    return [
        replace(answer, evidence=dict(zip(GROUPS, table, strict=True)))
        for answer, table in zip(answers, by_prompt, strict=True)
    ]
