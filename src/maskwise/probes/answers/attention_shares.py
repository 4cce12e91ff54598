"""Shares of the answer's attention that go to masks, near and far context, by layer."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from maskwise.models.model import Model
from maskwise.probes.answers.gradients import mask_groups
from maskwise.probes.answers.plain import Answer, answers_to, pack
from maskwise.tasks.prompts import Prompt

GROUPS = ("answer", "masks", "near", "far")
DIGITS = 5


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
    by_prompt = shares.permute(1, 2, 0).cpu().double().round(decimals=DIGITS).tolist()
    answers = answers_to(prompts, model.head(rows))
    return [
        replace(answer, evidence=dict(zip(GROUPS, table, strict=True)))
        for answer, table in zip(answers, by_prompt, strict=True)
    ]
