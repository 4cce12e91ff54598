"""Shares of the answer's attention that go to masks, near and far context, by layer."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from maskwise.models.batch import Batch
from maskwise.models.model import Model
from maskwise.probes.answers.gradients import mask_groups
from maskwise.probes.answers.plain import Answer, answers_to, pack
from maskwise.tasks.prompts import Prompt

GROUPS = ("answer", "masks", "near", "far")
DIGITS = 5


@torch.no_grad()
def watch(model: Model, prompts: Sequence[Prompt], near: int) -> list[Answer]:
    """Answers with evidence {group: [share in each layer]}."""
    logits, evidence = logits_and_shares(model, prompts, pack(model, prompts), near)
    return [
        replace(answer, evidence=shares) for answer, shares in zip(answers_to(prompts, logits), evidence, strict=True)
    ]


def logits_and_shares(
    model: Model, prompts: Sequence[Prompt], batch: Batch, near: int
) -> tuple[Tensor, list[dict[str, list[float]]]]:
    """Of one forward pass: the logits of the answer rows, [S, V], and for each prompt the share of attention that each
    group of tokens gets in each layer, means over the heads; the four groups add up to 1.

    "answer" is the answer's own place and, for shifted models, the place before it, which does the looking. batch: the
    prompts, packed or traced (gradients.py).
    """
    index = model.flat_rows(batch, [[prompt.start + prompt.row] for prompt in prompts])
    rows, layers = model.asked_rows_and_attention(batch, index)  # [S, d] and L of [S, heads, longest]
    groups = torch.zeros(len(prompts), batch.longest, dtype=torch.int64)
    for number, prompt in enumerate(prompts):
        groups[number, : len(prompt.ids)] = torch.tensor(mask_groups(model, prompt, near))
    places = groups.to(model.device)
    shares = torch.stack(
        [seen.new_zeros(len(prompts), len(GROUPS)).scatter_add(1, places, seen.mean(1)) for seen in layers]
    )  # [L, S, groups]
    by_prompt = shares.permute(1, 2, 0).cpu().double().round(decimals=DIGITS).tolist()
    return model.head(rows), [dict(zip(GROUPS, table, strict=True)) for table in by_prompt]
