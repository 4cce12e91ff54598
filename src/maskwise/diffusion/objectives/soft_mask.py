"""Soft masks: a mask shown as a mixture of its own embedding and those of the tokens predicted for it.

Hersche et al., Soft-Masked Diffusion Language Models, arXiv 2510.17206. Decoding with soft masks uses the mixture;
the objective trains the model on what such decoding would show after one step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from maskwise.diffusion.noised import Noised
from maskwise.diffusion.objective import MicroBatch, Objective, cross_entropy
from maskwise.diffusion.objectives.masked_nelbo import noise_by_schedule

if TYPE_CHECKING:
    from torch import Tensor

    from maskwise.diffusion.training_call import Call
    from maskwise.models.batch import Mixture

MIXED_TOKENS = 3
ROWS_AT_ONCE = 1024


@dataclass(frozen=True)
class SoftMask:
    """Soft masking (Hersche et al., Soft-Masked Diffusion Language Models, arXiv 2510.17206).

    An open mask is shown to the model as a mixture of the mask's embedding and those of the likeliest tokens. The
    tokens' share is scale * sigmoid(steepness * (-H - offset)), H the entropy (nats) of the prediction one step before.
    """

    scale: float = 0.5
    steepness: float = 2.0
    offset: float = -1.0


def soft_share(entropy: "Tensor", soft: SoftMask) -> "Tensor":
    """The predicted tokens' share of the mixture, for predictions with these entropies."""
    return soft.scale * (soft.steepness * (-entropy - soft.offset)).sigmoid()


def predicted_tokens(logits: "Tensor") -> "tuple[Tensor, Tensor]":
    """The likeliest tokens and their probabilities among themselves, both [.., k]."""
    found = logits.softmax(dim=-1).topk(min(MIXED_TOKENS, logits.shape[-1]), dim=-1)
    return found.indices, found.values / found.values.sum(dim=-1, keepdim=True)


def mixture_tokens(hidden: "Tensor", head_weight: "Tensor", mask_id: int, soft: SoftMask) -> "tuple[Tensor, Tensor]":
    """The tokens of the mixtures of hidden rows [n, d] and each token's share, both [n, k]; logits in chunks."""
    import torch

    from maskwise.models.forward import float_product

    parts = []
    for rows in hidden.split(ROWS_AT_ONCE):
        with torch.autocast(rows.device.type, enabled=False):
            logits = float_product(rows, head_weight)
        logits[:, mask_id] = -torch.inf
        tokens, among = predicted_tokens(logits)
        log_p = logits.log_softmax(dim=-1)
        entropy = -torch.where(log_p > -torch.inf, log_p.exp() * log_p, 0.0).sum(dim=-1)
        parts.append((tokens, soft_share(entropy, soft)[:, None] * among))
    return torch.cat([tokens for tokens, _ in parts]), torch.cat([shares for _, shares in parts])


def soft_masks(
    call_model: Callable[..., Any],
    call: "Call",
    examples: Sequence[Noised],
    chosen: Sequence[bool],
    mask_id: int,
    soft: SoftMask,
) -> "Mixture":
    """Soft masks for the call's rows, as after one step of decoding: a first pass predicts them.

    chosen: the examples whose masks become soft, one flag each. `call_model` is the model or the DDP or FSDP2 wrapper
    around it. The mixture goes into the batch of the second pass.
    """
    import torch

    from maskwise.models.batch import Mixture

    lengths = torch.tensor([0] + [len(example.ids) for example in examples]).cumsum(0)
    flat = [start + example.rows for start, example in zip(lengths.tolist(), examples, strict=False)]
    picked = torch.cat([torch.full_like(rows, flag, dtype=torch.bool) for rows, flag in zip(flat, chosen, strict=True)])
    device = call.index.device
    index, places = call.index[picked.nonzero()[:, 0].to(device)], torch.cat(flat)[picked].to(device)
    with torch.no_grad():
        tokens, shares = call_model(
            call.batch, index, lambda hidden, head_weight: mixture_tokens(hidden, head_weight, mask_id, soft)
        )
        masks = torch.full((len(places), 1), mask_id, device=device)
        left = 1 - shares.sum(dim=1, keepdim=True)
        return Mixture(places, torch.cat([masks, tokens], dim=1), torch.cat([left, shares], dim=1))


def soft_mask_loss(batch: MicroBatch) -> "Call":
    """The weighted cross-entropy, a share of the documents with soft masks."""
    call, mask_id, share = cross_entropy(batch), batch.model.mask_id, batch.settings.soft_share
    assert mask_id is not None
    if share == 0:  # decided by the settings alone: sharded weights are gathered by all processes or by none
        return call
    chosen = (batch.chances < share).tolist()
    mixture = soft_masks(batch.call_model, call, batch.examples, chosen, mask_id, SoftMask())
    return replace(call, batch=replace(call.batch, mixture=mixture))


SOFT_MASK = Objective(
    name="soft-mask",
    title="as nelbo; a share of the documents is seen a second time with soft masks",
    noise=noise_by_schedule,
    loss=soft_mask_loss,
    paper="Hersche et al., Soft-Masked Diffusion Language Models, arXiv 2510.17206",
    takes=("schedule", "soft_share"),
)
