"""Proposed tokens from logits, and measures of the model's confidence in them.

Shapes: S sequences, W rows of each (a block's masks, padded to the widest), V tokens.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwise.decoding.end_of_step import likeliest


@dataclass(frozen=True)
class OneEach:
    """One generator per sequence, which draws what it would draw if the sequence were decoded alone."""

    generators: list[torch.Generator]  # [S]
    widths: list[int]  # [S] the rows each would have alone
    rows: Tensor | None  # [S, W] which of those draws a row takes; without it the first takes the first, and so on


Chance = torch.Generator | OneEach


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


def propose(sharpened: Tensor, temperature: float, chance: Chance) -> tuple[Tensor, Tensor | None]:
    """One token per row: the likeliest, or with a temperature a sample (Gumbel trick). [S, W, V] -> [S, W].
    Also their log-probabilities, if the kernel computes them (end_of_step.py)."""
    return (gumbel(sharpened, chance).argmax(dim=-1), None) if temperature > 0 else likeliest(sharpened)


def gumbel(sharpened: Tensor, chance: Chance) -> Tensor:
    """Noisy logits, the largest of which is a draw from their softmax. [S, W, V] -> [S, W, V] float64.
    Float64 as in LLaDA's reference: in float32 the noise's tail is cut and samples become too safe."""
    draws = uniform(tuple(sharpened.shape), chance, sharpened.device, torch.float64)
    return sharpened.double() - (-draws.log()).log()


def uniform(shape: tuple[int, ...], chance: Chance, device: torch.device, dtype: torch.dtype = torch.float32) -> Tensor:
    """Draws from [0, 1), made where the generator lives. -> [S, W, ...]."""
    if isinstance(chance, torch.Generator):
        return torch.rand(shape, generator=chance, device=chance.device, dtype=dtype).to(device, non_blocking=True)
    draws = torch.zeros(shape, dtype=dtype, device=chance.generators[0].device)
    for line, generator, width in zip(draws, chance.generators, chance.widths, strict=True):
        line[:width] = torch.rand((width, *shape[2:]), generator=generator, device=generator.device, dtype=dtype)
    draws = draws.to(device, non_blocking=True)
    return (
        draws if chance.rows is None else draws.take_along_dim(chance.rows.view(*shape[:2], *[1] * len(shape[2:])), 1)
    )


def guide(logits: Tensor, unconditional: Tensor, scale: float, mask_id: int) -> Tensor:
    """Classifier-free guidance as in LLaDA's code: away from the prediction without the prompt."""
    guided = unconditional + (scale + 1) * (logits - unconditional)
    guided[..., mask_id] = float("-inf")  # minus infinity minus itself is not a number
    return guided


# Three measures of how sure a row is, in float32. Each keeps the likeliest token apart from the others, whose weights
# relative to it can be tiny: of p = 1 - 1e-9 in one row and 1 - 1e-10 in another both would round to 1, entropies and
# margins drown in rounding, and the order of the surest rows be left to chance.


def log_confidence(logits: Tensor, tokens: Tensor) -> Tensor:
    """Log-probability of a row's token: the logit less the logsumexp. [.., V], [..] -> [..]."""
    top, others = _others(logits)
    chosen = logits.gather(-1, tokens[..., None])
    return (chosen - top)[..., 0] - others.sum(dim=-1).log1p()


def log_margin(logits: Tensor) -> Tensor:
    """Logarithm of the likeliest token's probability less the second's. [.., V] -> [..]."""
    _, others = _others(logits)
    second = others.max(dim=-1).values
    return torch.log1p(-second) - others.sum(dim=-1).log1p()


def entropy(logits: Tensor) -> Tensor:
    """Entropy of each row in nats. [.., V] -> [..]."""
    top, others = _others(logits)
    total = others.sum(dim=-1)
    distance = (top - logits).clamp(max=1e4)  # a weight of 0 times an infinite distance is 0
    return total.log1p() + (others * distance).sum(dim=-1) / (1 + total)


def _others(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The largest logit [.., 1], and exp(logit - largest) of every token [.., V], but 0 for its first holder."""
    top, where = logits.max(dim=-1, keepdim=True)
    return top, (logits - top).exp_().scatter_(-1, where, 0.0)


def _keep_top_p(logits: Tensor, top_p: float) -> Tensor:
    """Keeps the fewest tokens whose probabilities add up to more than top_p."""
    ordered, order = logits.sort(dim=-1, descending=True, stable=True)
    before = F.pad(ordered.softmax(dim=-1).cumsum(dim=-1)[..., :-1], (1, 0))
    return ordered.masked_fill(before > top_p, float("-inf")).gather(-1, order.argsort(dim=-1))
