"""Row p: attention of a block's 32 rows over a cache, with the keys split over the card, against torch's SDPA."""

from collections.abc import Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import Bench, Line, check_close
from benchmarks.small_batch_linear import seconds_each
from maskwise.models.attention.layouts import layout_of
from maskwise.models.attention.ragged import KeyValues, attend
from maskwise.models.batch import Batch

LAYERS = 32  # calls inside one CUDA graph


def plain_attention(q: Tensor, k: Tensor, v: Tensor, sequences: int, scale: float) -> Tensor:
    """Sequences of equal lengths, [S * n, H, D] each, -> [S * n, H, D]."""
    grids = [x.unflatten(0, (sequences, -1)).transpose(1, 2) for x in (q, k, v)]
    return F.scaled_dot_product_attention(*grids, scale=scale, enable_gqa=True).transpose(1, 2).flatten(0, 1)


@torch.no_grad()
def split_attention(bench: Bench) -> Iterator[Line]:
    rows, keys, heads, groups, width = (32, 1256, 32, 32, 128) if bench.full else (4, 40, 4, 2, 16)
    dtype, draws = torch.bfloat16 if bench.full else torch.float32, torch.Generator(bench.device).manual_seed(0)
    for sequences in (1, 4):
        counts = (rows, heads), (keys, groups), (keys, groups)
        q, k, v = (
            torch.randn(sequences * n, h, width, generator=draws, device=bench.device).to(dtype) for n, h in counts
        )
        spans = Batch.spans([[0] * rows] * sequences, [keys - rows] * sequences, bench.device)
        ends = torch.arange(0, sequences * keys + 1, keys, dtype=torch.int32, device=bench.device)
        cache = KeyValues(ends, keys, sequences * keys, [(k, v)])
        layout = layout_of(spans, cache, block=None, causal=False, half=bench.full, weights_asked=False)
        assert layout.split == bench.full, "the kernel was not used"
        ours = partial(attend, q, k, v, layout, width**-0.5)
        plain = partial(plain_attention, q, k, v, sequences, width**-0.5)
        check_close("attention", ours(), plain(), 2e-2 if bench.full else 1e-4)
        case = f"{sequences} x {rows} rows over {keys} keys, {heads} heads, a layer"
        yield Line("p", case, "s", seconds_each(bench, [ours] * LAYERS), seconds_each(bench, [plain] * LAYERS))
