"""Torch's own attention kernel for ragged batches, on CUDA in half precision.

A module of its own, imported by the first batch that needs it: torch._dynamo, .7 s of imports, comes with it.
"""

import inspect
from typing import Any

from torch import Tensor
from torch.nn.attention.varlen import AuxRequest, varlen_attn

# Fewer heads of keys than of queries: torch 2.11 takes them as they come, later ones want to be told.
GROUPED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in inspect.signature(varlen_attn).parameters else {}


def flash(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_offsets: Tensor,
    k_offsets: Tensor,
    longest: tuple[int, int],
    causal: bool,
    scale: float,
    window: int | None,
) -> Tensor:
    """Flash attention of a ragged batch: q [T, H, D], k and v [K, G, D], offsets [S+1] -> [T, H, D].

    longest: of the queries' and the keys' sequences.
    """
    reach = (-1 if window is None else window - 1, 0) if causal else (-1, -1)
    out = varlen_attn(q, k, v, q_offsets, k_offsets, *longest, scale=scale, window_size=reach, **GROUPED)
    assert isinstance(out, Tensor)  # a pair only when asked for
    return out


def causal_flash(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, longest: int, scale: float) -> tuple[Tensor, Tensor]:
    """Causal flash attention [T, H, D] with its log-sum-exp per row and head [T, H]."""
    out, sums = varlen_attn(
        q,
        k,
        v,
        offsets,
        offsets,
        longest,
        longest,
        return_aux=AuxRequest(lse=True),
        scale=scale,
        window_size=(-1, 0),
        **GROUPED,
    )
    return out, sums.t()  # the kernel gives them head by head
