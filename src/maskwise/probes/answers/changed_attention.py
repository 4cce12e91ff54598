"""Answers with attention to the extra tokens changed: cut from some rows, or biased.

Cutting the extra tokens from some rows leaves two groups of rows: those cut, which see the other keys, and the rest,
which see all. So no [T, T] mask is made, and varlen flash attention takes both groups as two sequences.
"""

import math
from collections.abc import Iterator, Sequence
from typing import cast

import torch
from torch import Tensor

from maskwise.models.attention.ragged import RowGroup
from maskwise.models.model import Model
from maskwise.probes.answers.plain import Answer, answers_to, pack
from maskwise.probes.extra_tokens import ANSWER, BIASED, BOTH, OTHERS, ChangedPrompt
from maskwise.tasks.prompts import Prompt


@torch.inference_mode()
def ask_changed(model: Model, prompts: Sequence[Prompt]) -> list[Answer]:
    """One forward pass over prompts that are all `ChangedPrompt`s."""
    return answers_to(prompts, answer_logits(model, cast(Sequence[ChangedPrompt], prompts)))


def answer_logits(model: Model, prompts: Sequence[ChangedPrompt]) -> Tensor:
    """Logits of the answers, each prompt with its own change of attention. -> [n, V]"""
    batch, groups = pack(model, prompts), []
    for start, prompt in zip(batch.offsets.tolist(), prompts, strict=False):
        for rows, keys, bias in row_groups(prompt, model.first_row(prompt.row)):
            places = (start + rows).to(model.device), (start + keys).to(model.device)
            groups.append(RowGroup(*places, None if bias is None else bias.to(model.device)))
    index = model.flat_rows(batch, [[prompt.row] for prompt in prompts])
    return model.head(model.hidden_of_groups(batch, groups)[index])


def row_groups(prompt: ChangedPrompt, answer_row: int) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
    """(rows, keys they see, bias of the keys), all rows of the prompt once."""
    everything = torch.arange(len(prompt.ids))
    is_extra = torch.zeros(len(prompt.ids), dtype=torch.bool)
    is_extra[list(prompt.extra)] = True
    is_answer = everything == answer_row
    cut = {ANSWER: is_answer, OTHERS: ~is_extra & ~is_answer, BOTH: ~is_extra}.get(prompt.attention)
    if cut is None:
        bias = is_extra * -math.log(max(1, len(prompt.extra)))
        yield everything, everything, bias if prompt.attention == BIASED else None
    else:
        yield everything[cut], everything[~is_extra], None
        yield everything[~cut], everything, None
