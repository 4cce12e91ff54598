"""From logits to a proposed token per row, and to how sure the model is of it.

Shapes: S sequences, W rows of each (a block's masks, padded to the widest), V tokens.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwise.errors import UserError


def check_sampling(temperature: float, top_k: int | None, top_p: float | None) -> None:
    if temperature < 0:
        raise UserError(f"temperature {temperature} is negative: 0 is greedy, 1 samples the model's own distribution")
    if top_k is not None and top_k < 1:
        raise UserError(f"top_k {top_k} keeps no token: give 1 or more")
    if top_p is not None and not 0 < top_p <= 1:
        raise UserError(f"top_p {top_p} is outside 0..1")


def sharpen(logits: Tensor, temperature: float, top_k: int | None, top_p: float | None) -> Tensor:
    """The logits tokens are drawn from: divided by the temperature, then cut to top-p and top-k (Dream's order)."""
    if temperature > 0:
        logits = logits / temperature
    if top_p is not None and top_p < 1:
        logits = _keep_top_p(logits, top_p)
    if top_k is not None and top_k < logits.shape[-1]:
        smallest_kept = logits.topk(top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < smallest_kept, float("-inf"))
    return logits


def propose(sharpened: Tensor, temperature: float, generator: torch.Generator) -> Tensor:
    """One token a row: the first best one, or at a temperature a draw by the Gumbel trick. [S, W, V] -> [S, W].

    The noise is float64, as in LLaDA's reference: in float32 its tail is cut and samples become too safe.
    """
    if temperature == 0:
        return sharpened.argmax(dim=-1)
    draws = uniform(sharpened.shape, generator, sharpened.device, torch.float64)
    return (sharpened.double() - (-draws.log()).log()).argmax(dim=-1)


def uniform(
    shape: tuple[int, ...], generator: torch.Generator, device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Draws from [0, 1), made where the generator lives."""
    return torch.rand(shape, generator=generator, device=generator.device, dtype=dtype).to(device, non_blocking=True)


def guide(logits: Tensor, unconditional: Tensor, scale: float, mask_id: int) -> Tensor:
    """Classifier-free guidance: away from what the model says without the prompt."""
    guided = unconditional + (scale + 1) * (logits - unconditional)
    guided[..., mask_id] = float("-inf")  # minus infinity less itself is not a number
    return guided


def log_confidence(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probability of a row's token: its logit less logsumexp, in float32. [.., V], [..] -> [..].

    The largest logit's own share of the sum is kept apart (log1p), so that two rows of probability 1 - 1e-9 and
    1 - 1e-10 still differ; a plain float32 logsumexp would call both certain and leave their order to chance.
    """
    top, where = logits.max(dim=-1, keepdim=True)
    others = (logits - top).exp_().scatter_(-1, where, 0.0).sum(dim=-1)
    chosen = logits.gather(-1, tokens[..., None])[..., 0]
    return (chosen - top[..., 0]) - others.log1p()


def entropy(logits: Tensor) -> Tensor:
    """Entropy of each row in nats. [.., V] -> [..]."""
    return torch.special.entr(logits.softmax(dim=-1)).sum(dim=-1)


def _keep_top_p(logits: Tensor, top_p: float) -> Tensor:
    """Keeps the fewest tokens whose probabilities add up to more than top_p."""
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    before = F.pad(ordered.softmax(dim=-1).cumsum(dim=-1)[..., :-1], (1, 0))
    return ordered.masked_fill(before > top_p, float("-inf")).gather(-1, order.argsort(dim=-1))
