"""The one call of the model per micro-batch: its ragged batch, the loss rows, and the loss as a function.

The loss is computed inside the model's `forward`, so that DDP, FSDP2 and gradient checkpointing see it. All losses are
in nats, a mean over the examples of the call.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from maskwise.diffusion.fused import linear_ce
from maskwise.diffusion.noised import Noised
from maskwise.models.batch import Batch
from maskwise.models.model import Model


@dataclass(frozen=True)
class Call:
    """The arguments of one training call: model(call.batch, call.index, call.loss)."""

    batch: Batch
    index: Tensor
    loss: Callable[[Tensor, Tensor], Any]


def nelbo_call(model: Model, examples: Sequence[Noised], count: int | None = None) -> Call:
    """The mean over examples of their weighted cross-entropies; for `nelbo`, `blockwise` and `block_diffusion` alike.

    count: the divisor of their sum; their number if not given.
    """
    batch = Batch.pack([example.ids for example in examples], model.device)
    index = model.locate_all(batch, [example.rows for example in examples])
    targets = torch.cat([example.targets for example in examples]).to(model.device)
    weights = torch.cat([example.weights for example in examples]).to(model.device) / (count or len(examples))

    def loss(hidden: Tensor, head_weight: Tensor) -> Tensor:
        return linear_ce(hidden, head_weight, targets, weights, model.mask_id)

    return Call(batch, index, loss)
