"""Which tokens move the answer? The gradient of the greedy answer's logit with respect to the input embeddings.

Two measures of a token, each divided by the largest in its prompt: the L2 norm of its gradient g (the paper's), and
gradient x input, the L2 norm of g * e with e its embedding, coordinate by coordinate. Where a network reads e through
RMSNorm, its output does not depend on the length of e, so |g| scales as 1 / |e| and g * e does not change: compare
models, and tokens whose embeddings differ in length, by gradient x input. The sum of g * e, its usual form, is zero
there by Euler's theorem, hence the norm.

The answer's own mask is left out, and for shifted models the token before it too: the answer is read from there. Only
the embeddings get gradients, and the head is applied to one row per prompt.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from maskwise.models.batch import Batch
from maskwise.models.model import Model
from maskwise.probes.answers.plain import Answer, answer_rows, answers_to, pack
from maskwise.probes.evidence import TIMES_INPUT
from maskwise.tasks.prompts import Prompt


def attribute(model: Model, prompts: Sequence[Prompt], near: int) -> list[Answer]:
    """Answers with evidence: {"examples": [..], "question"} for prompts with parts, else {"masks", "near", "all"}: the
    gradient norms; with "_times_input" after each name, gradient x input."""
    answers, found = embedding_gradients(model, prompts)
    grouped = [part_groups(model, prompt) if prompt.parts else mask_groups(model, prompt, near) for prompt in prompts]
    evidence: list[dict[str, float | list[float]]] = [{} for _ in prompts]
    for values, suffix in zip(found, ("", TIMES_INPUT), strict=True):
        sums, sizes = group_sums(values, grouped)
        for own, prompt, *groups in zip(evidence, prompts, sums.tolist(), sizes.tolist(), strict=True):
            means = example_evidence(prompt, *groups) if prompt.parts else mask_evidence(*groups)
            own |= {name + suffix: mean for name, mean in means.items()}
    return [replace(answer, evidence=own) for answer, own in zip(answers, evidence, strict=True)]


def embedding_gradients(model: Model, prompts: Sequence[Prompt]) -> tuple[list[Answer], Tensor]:
    """The answers, and `attributions` of every token."""
    with traced(model, prompts) as batch:
        index = model.locate(batch, torch.arange(len(prompts), device=model.device), answer_rows(model, prompts))
        logits = model.head(model.asked_rows(batch, index))
    return answers_to(prompts, logits.detach()), attributions(model, prompts, batch, logits)


@contextmanager
def traced(model: Model, prompts: Sequence[Prompt]) -> Iterator[Batch]:
    """The prompts as a batch of embeddings. Of logits computed from it inside, the gradients can be asked later."""
    batch = pack(model, prompts)
    assert batch.ids is not None
    with frozen(model), torch.enable_grad():
        yield replace(batch, embeds=model.embed(batch.ids).detach().requires_grad_())


def attributions(model: Model, prompts: Sequence[Prompt], batch: Batch, logits: Tensor) -> Tensor:
    """Of every token the gradient norm and gradient x input of its prompt's largest logit, each over the largest in the
    prompt, in the prompts' order; [2, T] float32.

    batch: the `traced` one that the answers' logits [S, V] were computed from. They can be asked once.
    """
    assert batch.embeds is not None
    # Sequences do not see each other, so the gradient of the sum holds each prompt's own.
    (gradient,) = torch.autograd.grad(logits.max(-1).values.sum(), batch.embeds)
    gradient = gradient.float()
    found = torch.stack([gradient.norm(dim=-1), (gradient * batch.embeds.detach().float()).norm(dim=-1)])
    found[:, own_places(model, prompts)] = 0
    largest = found.new_zeros(2, len(prompts)).scatter_reduce(1, batch.owner.expand(2, -1), found, "amax")
    return found / largest.clamp(min=torch.finfo(found.dtype).tiny)[:, batch.owner]


def gradient_norms(model: Model, prompts: Sequence[Prompt], batch: Batch, logits: Tensor) -> Tensor:
    """The first of the `attributions`, [T]."""
    return attributions(model, prompts, batch, logits)[0]


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
