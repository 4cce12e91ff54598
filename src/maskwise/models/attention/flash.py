"""Torch's own attention kernel for ragged batches, on CUDA in half precision.

A separate module, imported by the first batch that needs it, because it imports torch._dynamo, which takes .7 s.
"""

import inspect
from typing import Any

from torch import Tensor
from torch.nn.attention.varlen import AuxRequest, varlen_attn

# Grouped key-value heads: torch 2.11 accepts them without an argument, later versions require enable_gqa.
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
    """q [T, H, D], k and v [K, G, D], offsets [S+1] -> [T, H, D]. longest: of the queries' and the keys' sequences."""
    reach = (-1 if window is None else window - 1, 0) if causal else (-1, -1)
    out = varlen_attn(q, k, v, q_offsets, k_offsets, *longest, scale=scale, window_size=reach, **GROUPED)
    assert isinstance(out, Tensor)  # a pair only with return_aux
    return out


def causal_flash(q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, longest: int, scale: float) -> tuple[Tensor, Tensor]:
    """Causal flash attention [T, H, D] with its log-sum-exp per row and head [T, H]."""
    aux = AuxRequest(lse=True)
    out, sums = varlen_attn(
        q, k, v, offsets, offsets, longest, longest, return_aux=aux, scale=scale, window_size=(-1, 0), **GROUPED
    )
    return out, sums.t()  # the kernel gives them head by head
