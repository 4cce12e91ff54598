"""The end of a decoding step, after the forward pass: choose tokens and rows, write the tokens, keep the open rows.

Shapes: S sequences, W rows of each, V tokens. On CUDA each function is one or two kernels (kernels/decoding_step.py) in
place of a dozen operations.
"""

from types import ModuleType

import torch
from torch import Tensor

from maskwise.kernels import gate

WIDEST = 512  # rows: the kernels hold those of a sequence at once, and compare each with all


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor | None]:
    """The most probable token of each row, and on CUDA its log-probability. [S, W, V] float32 -> [S, W] each.

    The log-probability is not finite where the row's logits are not. It is None where it would cost a pass of its own.
    """
    kernel = _kernel(logits)
    return (logits.argmax(dim=-1), None) if kernel is None else kernel.likeliest(logits)


def ranks(score: Tensor, open: Tensor) -> Tensor:
    """The rank of each row of a sequence by score, best first, ties to the left, closed rows last. [S, W] each.
    An open row at minus infinity still ranks before every closed one."""
    lowest = torch.finfo(score.dtype).min
    score = score.nan_to_num(torch.inf, torch.inf, lowest).masked_fill(~open, float("-inf"))
    order = score.argsort(dim=-1, descending=True, stable=True)
    places = torch.arange(score.shape[-1], device=score.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)


def best_rows(score: Tensor, open: Tensor, count: Tensor) -> Tensor:
    """score and open [S, W], count [S] -> [S, W], True at the `count` open rows of the highest score, ties to the left.
    NaN counts as infinity, and minus infinity as the lowest finite number."""
    kernel = _kernel(score) if score.dtype == torch.float32 and open.shape[1] <= WIDEST else None
    if kernel is not None:
        return kernel.best_rows(score, open, count)
    return (ranks(score, open) < count[:, None]) & open


def commit(
    ids: Tensor, order: Tensor, places: Tensor, tokens: Tensor, flip: Tensor, open: Tensor, step: Tensor, mask_id: int
) -> Tensor:
    """Writes tokens to the open rows that flip and re-masks the closed ones that do; returns the rows open after it.

    ids and order [T+1] are changed at `places`, except at the last position, which is padding. All others are
    [S, W], except step [S, 1]; tokens may be one for all.
    """
    kernel = _kernel(ids)
    if kernel is not None:
        return kernel.commit(ids, order, places, tokens, flip, open, step, mask_id)
    flip = flip & (places < len(ids) - 1)
    for sheet, committed, masked in ((ids, tokens, mask_id), (order, step, -1)):
        sheet[places] = torch.where(flip, torch.where(open, committed, masked), sheet[places])
    return open ^ flip


def narrowed(places: Tensor, positions: Tensor, open: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """Moves the open rows to the front, in order, and cuts all rows to `width` columns. [S, W] each."""
    kernel = _kernel(open) if open.shape[1] <= WIDEST else None
    if kernel is not None:
        return kernel.narrowed(places, positions, open, width)
    front = (~open).byte().argsort(dim=-1, stable=True)[:, :width]
    return places.gather(1, front), positions.gather(1, front), open.gather(1, front)


def _kernel(like: Tensor) -> ModuleType | None:
    return gate.kernel("decoding_step", like.device, WIDEST) if like.is_cuda else None
