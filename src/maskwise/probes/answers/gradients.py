"""Which tokens move the answer? The gradient of the greedy answer's logit with respect to the input embeddings.

A token's attribution is the L2 norm of its gradient, divided by the largest norm in its prompt. The answer's own mask
is left out of both, and for shifted models the token before it too: the answer is read from there. Only the embeddings
get gradients, and the head is applied to one row per prompt.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from maskwise.models.batch import Batch
from maskwise.models.model import Model
from maskwise.probes.answers.plain import Answer, answer_rows, answers_to, pack
from maskwise.tasks.prompts import Prompt

# How it is answered


def attribute(model: Model, prompts: Sequence[Prompt], near: int) -> list[Answer]:
    """Answers with evidence: {"examples": [..], "question"} for prompts with parts, else {"masks", "near", "all"}."""
    answers, norms = embedding_gradients(model, prompts)
    grouped = [part_groups(model, prompt) if prompt.parts else mask_groups(model, prompt, near) for prompt in prompts]
    sums, sizes = group_sums(norms, grouped)
    return [
        replace(answer, evidence=example_evidence(prompt, *told) if prompt.parts else mask_evidence(*told))
        for answer, prompt, *told in zip(answers, prompts, sums.tolist(), sizes.tolist(), strict=True)
    ]


def embedding_gradients(model: Model, prompts: Sequence[Prompt]) -> tuple[list[Answer], Tensor]:
    """The answers, and every token's normalised gradient norm, [T] float32 in the prompts' order."""
    with traced(model, prompts) as batch:
        index = model.locate(batch, torch.arange(len(prompts), device=model.device), answer_rows(model, prompts))
        logits = model.head(model.asked_rows(batch, index))
    return answers_to(prompts, logits.detach()), gradient_norms(model, prompts, batch, logits)


@contextmanager
def traced(model: Model, prompts: Sequence[Prompt]) -> Iterator[Batch]:
    """The prompts as a batch of embeddings. Of logits computed from it inside, the gradients can be asked later."""
    batch = pack(model, prompts)
    assert batch.ids is not None
    with frozen(model), torch.enable_grad():
        yield replace(batch, embeds=model.embed(batch.ids).detach().requires_grad_())


def gradient_norms(model: Model, prompts: Sequence[Prompt], batch: Batch, logits: Tensor) -> Tensor:
    """Of every token the norm of the gradient of its prompt's largest logit, over the largest in the prompt, [T].

    batch: the `traced` one that the answers' logits [S, V] were computed from. They can be asked once.
    """
    assert batch.embeds is not None
    # Sequences do not see each other, so the gradient of the sum holds each prompt's own.
    (gradient,) = torch.autograd.grad(logits.max(-1).values.sum(), batch.embeds)
    norms = gradient.float().norm(dim=-1)
    norms[own_places(model, prompts)] = 0
    largest = norms.new_zeros(len(prompts)).scatter_reduce(0, batch.owner, norms, "amax")
    return norms / largest.clamp(min=torch.finfo(norms.dtype).tiny)[batch.owner]


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


def own_rows(model: Model, prompt: Prompt) -> set[int]:
    """The answer's mask, and where the model reads its prediction."""
    return {row for row in (prompt.row, model.first_row(prompt.row)) if row < len(prompt.ids)}


def own_places(model: Model, prompts: Sequence[Prompt]) -> Tensor:
    """`own_rows` of all prompts, as flat places of their batch."""
    flat, start = [], 0
    for prompt in prompts:
        flat += [start + row for row in sorted(own_rows(model, prompt))]
        start += len(prompt.ids)
    return torch.tensor(flat, dtype=torch.int64, device=model.device)


# Groups of tokens


def part_groups(model: Model, prompt: Prompt) -> list[int]:
    """A token's group is its example, 1 and up; 0 is the answer's own, and what no example holds."""
    own = own_rows(model, prompt)
    return [0 if place in own else part + 1 for place, part in enumerate(prompt.parts)]


def mask_groups(model: Model, prompt: Prompt, near: int) -> list[int]:
    """0: the answer's own; 1: masks; 2: the `near` other tokens closest to the answer; 3: all farther ones."""
    own, mask_id = own_rows(model, prompt), model.mask_id
    others = [place for place, token in enumerate(prompt.ids) if token != mask_id and place not in own]
    closest = set(sorted(others, key=lambda place: abs(place - prompt.row))[:near])

    def group(place: int, token: int) -> int:
        if place in own:
            return 0
        if token == mask_id:
            return 1
        return 2 if place in closest else 3

    return [group(place, token) for place, token in enumerate(prompt.ids)]


def group_sums(values: Tensor, groups: Sequence[Sequence[int]]) -> tuple[Tensor, Tensor]:
    """Sums of values [T] over each prompt's groups, and the groups' sizes; both [S, G] with G the most groups."""
    most = 1 + max(max(listed) for listed in groups)
    flat = [number * most + group for number, listed in enumerate(groups) for group in listed]
    places = torch.tensor(flat, device=values.device)
    table = values.new_zeros(2, len(groups) * most)
    table[0].index_add_(0, places, values)
    table[1].index_add_(0, places, torch.ones_like(values))
    sums, sizes = table.view(2, len(groups), most)
    return sums, sizes


def example_evidence(prompt: Prompt, sums: Sequence[float], sizes: Sequence[float]) -> dict[str, float | list[float]]:
    """The mean of each example in the prompt's order, the question's own apart."""
    asked = 1 + prompt.parts[min(prompt.row, len(prompt.parts) - 1)]
    means = [mean(total, size) for total, size in zip(sums, sizes, strict=True)]
    last = 1 + max(prompt.parts)
    return {"examples": [means[part] for part in range(1, last + 1) if part != asked], "question": means[asked]}


def mask_evidence(sums: Sequence[float], sizes: Sequence[float]) -> dict[str, float]:
    padded, counted = [*sums, 0.0, 0.0, 0.0], [*sizes, 0.0, 0.0, 0.0]
    return {
        "masks": mean(padded[1], counted[1]),
        "near": mean(padded[2], counted[2]),
        "all": mean(padded[2] + padded[3], counted[2] + counted[3]),
    }


def mean(total: float, size: float) -> float:
    return round(total / size, 6) if size else 0.0
