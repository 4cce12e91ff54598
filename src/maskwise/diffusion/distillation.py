"""Distillation from an autoregressive teacher: which rows may learn its distribution, and its hidden states there."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from maskwise.diffusion.noised import Noised
from maskwise.models.batch import Batch
from maskwise.models.model import Model


@dataclass(frozen=True)
class Taught:
    """The loss rows of a call that learn a teacher's distribution, and the teacher's hidden states there."""

    rows: Tensor  # [k] of 0..m-1
    others: Tensor  # [m - k]
    hidden: Tensor  # [k, d] the teacher's
    head_weight: Tensor  # [V, d] the teacher's


def taught_rows(example: Noised, mask_id: int) -> Tensor:
    """[m] True at loss rows with nothing visible to their right.

    There the teacher's distribution given the clean prefix is an unbiased target, also if part of the prefix is masked:
    its mean over the hidden tokens is the distribution the model should predict. With a visible token to the right it
    would be biased.
    """
    visible = (example.ids != mask_id).nonzero()[:, 0]
    return example.rows > (int(visible[-1]) if len(visible) else -1)


@torch.no_grad()
def teach(teacher: Model, clean: Sequence[Tensor], examples: Sequence[Noised], mask_id: int) -> Taught:
    """One pass of the teacher over the clean sequences; `mask_id` is the student's. Position 0 has no teacher."""
    flags = [taught_rows(example, mask_id) & (example.rows > 0) for example in examples]
    batch = Batch.pack(clean, teacher.device)
    index = teacher.locate_all(batch, [example.rows[flag] for example, flag in zip(examples, flags, strict=True)])
    flat = torch.cat(flags)
    rows, others = flat.nonzero()[:, 0].to(teacher.device), (~flat).nonzero()[:, 0].to(teacher.device)
    return Taught(rows, others, teacher.hidden(batch)[index], teacher.head_weight)
