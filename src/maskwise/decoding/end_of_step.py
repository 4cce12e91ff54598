"""What follows the forward pass of a decoding step: likeliest tokens, the best rows, what is written, what stays open.

Shapes: S sequences, W rows of each, V tokens. On CUDA kernels of our own take the place of a dozen operations each
(step_kernels.py), where they give the same: that is tried once on each device.
"""

from functools import cache
from types import ModuleType

import torch
from torch import Tensor

from maskwise.kernels.gate import TRITON, works_here

WIDEST = 512  # rows: the kernels hold those of a sequence at once, and compare each with all
TOLERANCE = 1e-4  # between two ways to add up a row's probabilities


def likeliest(logits: Tensor) -> tuple[Tensor, Tensor | None]:
    """The likeliest token of each row, and its log-probability where that comes for free, which is then not finite
    where the row is not. [S, W, V] float32 -> [S, W] each."""
    kernels = _kernels(logits)
    return (logits.argmax(dim=-1), None) if kernels is None else kernels.likeliest(logits)


def ranks(score: Tensor, open: Tensor) -> Tensor:
    """The place of each row when its sequence is sorted by score, best first, ties to the left, closed rows last.

    An open row at minus infinity still stands before every closed one. [S, W] each.
    """
    lowest = torch.finfo(score.dtype).min
    score = score.nan_to_num(torch.inf, torch.inf, lowest).masked_fill(~open, float("-inf"))
    order = score.argsort(dim=-1, descending=True, stable=True)
    places = torch.arange(score.shape[-1], device=score.device).expand_as(order)
    return torch.empty_like(order).scatter_(-1, order, places)


def best_rows(score: Tensor, open: Tensor, count: Tensor) -> Tensor:
    """score and open [S, W], count [S] -> [S, W], True at the `count` open rows of the highest score, ties to the left.

    NaN counts as infinity, and minus infinity as the lowest finite number.
    """
    kernels = _kernels(score) if score.dtype == torch.float32 and open.shape[1] <= WIDEST else None
    if kernels is not None:
        return kernels.best_rows(score, open, count)
    return (ranks(score, open) < count[:, None]) & open


def turn(
    ids: Tensor, order: Tensor, places: Tensor, tokens: Tensor, flip: Tensor, open: Tensor, step: Tensor, mask_id: int
) -> Tensor:
    """Writes tokens where open rows flip, and masks where others do; returns what is open after it.

    ids and order [T+1] are changed at `places`, but for the last one, which padding has. All others [S, W], but for
    step [S, 1]; tokens may be one for all.
    """
    kernels = _kernels(ids)
    if kernels is not None:
        return kernels.turn(ids, order, places, tokens, flip, open, step, mask_id)
    flip = flip & (places < len(ids) - 1)
    for sheet, committed, masked in ((ids, tokens, mask_id), (order, step, -1)):
        sheet[places] = torch.where(flip, torch.where(open, committed, masked), sheet[places])
    return open ^ flip


def narrowed(places: Tensor, positions: Tensor, open: Tensor, width: int) -> tuple[Tensor, Tensor, Tensor]:
    """The open rows moved to the front, in their order, and all cut to `width` columns. [S, W] each."""
    kernels = _kernels(open) if open.shape[1] <= WIDEST else None
    if kernels is not None:
        return kernels.narrowed(places, positions, open, width)
    front = (~open).byte().argsort(dim=-1, stable=True)[:, :width]
    return places.gather(1, front), positions.gather(1, front), open.gather(1, front)


def _kernels(like: Tensor) -> ModuleType | None:
    """The kernels, where they work on the tensor's device."""
    if not (like.is_cuda and TRITON and _kernels_work(like.device)):
        return None
    from maskwise.kernels import decoding_step as step_kernels

    return step_kernels


@cache
def _kernels_work(device: torch.device) -> bool:
    return works_here(lambda: agree(device), "the end of a step is left to PyTorch")


@torch.no_grad()
def agree(device: torch.device) -> bool:
    """Whether the kernels give what is written out here, on a few rows with ties, padding and a vocabulary in parts."""
    return _likeliest_agree(device) and _rows_agree(device)


def _likeliest_agree(device: torch.device) -> bool:
    from maskwise.kernels.decoding_step import TOKENS, likeliest

    logits = torch.randn(2, 3, TOKENS + 100, generator=torch.Generator().manual_seed(0))
    logits[1, 1, 5], logits[1, 2, -7] = 20.0, 30.0
    tokens, sure = likeliest(logits.to(device))
    expected = logits.double().log_softmax(dim=-1).max(dim=-1)
    near = (sure.cpu() / expected.values - 1).abs() < TOLERANCE
    return torch.equal(tokens.cpu(), expected.indices) and bool(near.all())


def _rows_agree(device: torch.device) -> bool:
    """Rows are chosen and written; then a committed row is masked again, one flips that is padding, and all move up."""
    from maskwise.kernels.decoding_step import best_rows, narrowed, turn

    def of(rows: list[list[int]]) -> Tensor:
        return torch.tensor(rows, device=device)

    score = torch.tensor([[0.5, 2.0, 2.0, 9.0], [-torch.inf, 1.0, 3.0, 3.0]], device=device)
    open, places = of([[1, 1, 1, 0], [1, 0, 1, 1]]).bool(), of([[4, 0, 2, 6], [1, 6, 3, 5]])
    tokens, steps = of([[10, 11, 12, 13], [14, 15, 16, 17]]), of([[3], [4]])
    ids, order = of([[9] * 7])[0], of([[-1] * 7])[0]
    flip = best_rows(score, open, of([[2, 1]])[0])
    open = turn(ids, order, places, tokens, flip, open, steps, 8)
    fine = ids.tolist() == [11, 9, 12, 16, 9, 9, 9] and order.tolist() == [3, -1, 3, 4, -1, -1, -1]
    open = turn(ids, order, places, tokens, of([[0, 1, 0, 1], [0, 0, 0, 0]]).bool(), open, steps, 8)
    fine = fine and ids.tolist() == [8, 9, 12, 16, 9, 9, 9] and order.tolist() == [-1, -1, 3, 4, -1, -1, -1]
    moved = [one.tolist() for one in narrowed(places, tokens, open, 3)]
    wide = torch.arange(WIDEST, device=device)[None]  # the largest size that is compiled
    chosen = best_rows(wide.float(), wide >= 0, of([[3]])[0])
    fine = fine and narrowed(wide, wide, chosen, 3)[0].tolist() == [[WIDEST - 3, WIDEST - 2, WIDEST - 1]]
    kept = [[True, True, False], [True, True, False]]
    return fine and moved == [[[4, 0, 2], [1, 5, 6]], [[10, 11, 12], [14, 17, 15]], kept]
