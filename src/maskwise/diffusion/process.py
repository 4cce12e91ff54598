"""The absorbing process: tokens fall into [MASK] one by one and never come back; its reverse lifts them out again."""

import torch
from torch import Tensor


def absorb(ids: Tensor, keep: Tensor | float, mask_id: int, generator: torch.Generator) -> Tensor:
    """ids [n] with each token kept with probability `keep` (a number or [n]), otherwise [MASK]."""
    draws = torch.rand(ids.shape, generator=generator, device=ids.device, dtype=torch.float64)
    return torch.where(draws < keep, ids, mask_id)


def clean_distribution(logits: Tensor, noised: Tensor, mask_id: int) -> Tensor:
    """The reverse model's belief about the clean tokens: [n, V] probabilities from logits [n, V] and noised ids [n].

    [MASK] itself gets no probability, and a visible token is carried over: it is certain.
    """
    banned = torch.arange(logits.shape[-1], device=logits.device) == mask_id
    probabilities = torch.softmax(logits.masked_fill(banned, -torch.inf), dim=-1)
    certain = torch.nn.functional.one_hot(noised, logits.shape[-1]).to(probabilities.dtype)
    return torch.where((noised == mask_id)[:, None], probabilities, certain)


def reverse_step(clean: Tensor, noised: Tensor, unmask: float, mask_id: int, generator: torch.Generator) -> Tensor:
    """One step back in time: each mask of noised ids [n] is resolved with probability `unmask` (see `step_weight`) by a
    draw from its row of clean [n, V]; the draws of one step are independent, which is the factorised reverse kernel."""
    drawn = torch.multinomial(clean, 1, generator=generator)[:, 0]
    resolved = torch.rand(noised.shape, generator=generator, device=noised.device) < unmask
    return torch.where((noised == mask_id) & resolved, drawn, noised)
