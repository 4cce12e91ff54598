"""Whether attention of few rows can be split over its keys: asked before a pass, tried once on each device."""

import torch
import torch.nn.functional as F
from torch import Tensor

from maskwise.kernels import TRITON, close, works_here
from maskwise.models.attention import KeyValues

TOLERANCE = 2e-2  # between the kernel and torch's own, relative, in half precision

_found: dict[tuple[torch.device, torch.dtype, int], bool] = {}


def keys_can_be_split(cache: KeyValues) -> bool:
    """On CUDA in half precision, where there are kernels for ragged batches. Not with gradients: it has none."""
    keys = cache.layers[0][0]
    width = keys.shape[2]
    if not TRITON or torch.is_grad_enabled() or width < 16 or width & (width - 1):  # tiles are powers of two
        return False
    key = keys.device, keys.dtype, width
    if key not in _found:
        if torch.cuda.is_current_stream_capturing():
            return False
        _found[key] = works_here(lambda: _agrees(*key), "attention of few rows is not split over its keys")
    return _found[key]


@torch.no_grad()
def _agrees(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """With torch's own, for fewer heads of keys than of queries, one part and several, full tiles and others."""
    from maskwise.models.few_rows_attention import few_rows_attention

    draws = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=draws).to(device, dtype)

    def agrees(rows: int, keys: int, heads: int, groups: int) -> bool:
        q, k, v = drawn(rows, heads, width), drawn(keys, groups, width), drawn(keys, groups, width)
        ends = [torch.tensor([0, count], dtype=torch.int32, device=device) for count in (rows, keys)]
        found = few_rows_attention(q, k, v, *ends, rows, keys, width**-0.5)
        asked, seen, said = (x.repeat_interleave(heads // x.shape[1], dim=1).transpose(0, 1).float() for x in (q, k, v))
        return close(found, F.scaled_dot_product_attention(asked, seen, said).transpose(0, 1), TOLERANCE)

    return agrees(1, 20, 2, 2) and agrees(33, 700, 6, 2)
