"""Whether the kernels for passes of few rows work here: asked before a pass, tried once on each device.

A decoding step with a cache has few rows. Its attention can be split over the keys (few_rows_attention.py), and its
products over the inner dimension (few_rows.py). Both are for CUDA in half precision.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwise.kernels.gate import TRITON, close, works_here

FEW_ROWS = 64  # with more there is enough to do without splitting anything
HALF = (torch.bfloat16, torch.float16)
TOLERANCE = 2e-2  # between a kernel and torch's own, relative, in half precision

Key = tuple[str, torch.device, torch.dtype, int]
_found: dict[Key, bool] = {}


def splits_keys(keys: Tensor) -> bool:
    """For caches whose layers hold keys [tokens, heads, width] of this kind."""
    width = keys.shape[2]
    # No gradients are written for it, and tiles are powers of two.
    fits = keys.is_cuda and keys.dtype in HALF and width >= 16 and not width & (width - 1)
    return fits and not torch.is_grad_enabled() and _works("attention", keys, width, _attention_agrees)


def splits_sums(weight: Tensor) -> bool:
    """For products with weights of this kind."""
    fits = weight.is_cuda and weight.dtype in HALF and not torch.is_grad_enabled()
    return fits and _works("products", weight, 0, _products_agree)


def _works(what: str, like: Tensor, width: int, agree: Callable[[Tensor, int], bool]) -> bool:
    key = what, like.device, like.dtype, width
    if key not in _found:
        if not TRITON or torch.cuda.is_current_stream_capturing():
            return False
        _found[key] = works_here(lambda: agree(like, width), f"{what} of few rows: left to PyTorch")
    return _found[key]


def _drawn(like: Tensor, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(shape[0])).to(like)


@torch.no_grad()
def _attention_agrees(like: Tensor, width: int) -> bool:
    """With torch's own, for fewer heads of keys than of queries, one part and several, full tiles and others."""
    from maskwise.kernels.split_attention import few_rows_attention

    def agrees(rows: int, keys: int, heads: int, groups: int) -> bool:
        q, k, v = _drawn(like, rows, heads, width), _drawn(like, keys, groups, width), _drawn(like, keys, groups, width)
        ends = [torch.tensor([0, count], dtype=torch.int32, device=like.device) for count in (rows, keys)]
        found = few_rows_attention(q, k, v, *ends, rows, keys, width**-0.5)
        asked, seen, said = (x.repeat_interleave(heads // x.shape[1], dim=1).transpose(0, 1).float() for x in (q, k, v))
        return close(found, F.scaled_dot_product_attention(asked, seen, said).transpose(0, 1), TOLERANCE)

    return agrees(1, 20, 2, 2) and agrees(33, 700, 6, 2)


@torch.no_grad()
def _products_agree(like: Tensor, _: int) -> bool:
    """With torch's own, of tiles of 16, 32 and 64 rows."""
    from maskwise.kernels.small_batch_linear import half_few_rows

    weight = _drawn(like, 200, 520)
    several = [_drawn(like, count, 520) for count in (1, 32, FEW_ROWS)]
    return all(close(half_few_rows(rows, weight), rows.float() @ weight.float().t(), TOLERANCE) for rows in several)
