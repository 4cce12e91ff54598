"""The plain reference: the same weights run the way the published code runs them, dense, padded, all logits.

Norm, rotary positions and attention are spelled out here and share nothing with maskwise but the modules that hold the
weights, so that every comparison is also a check.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from maskwise.models import LLaDAModelLM
from maskwise.models.model import Model


class Layer(NamedTuple):
    """The modules of one block, in the order they are used."""

    norm: Any
    q: Any
    k: Any
    v: Any
    out: Any
    mlp_norm: Any
    gate: Any
    up: Any
    down: Any


def layers_of(net: Any) -> list[Layer]:
    if isinstance(net, LLaDAModelLM):
        return [
            Layer(b.attn_norm, b.q_proj, b.k_proj, b.v_proj, b.attn_out, b.ff_norm, b.ff_proj, b.up_proj, b.ff_out)
            for b in net.model.transformer["blocks"]
        ]
    return [
        Layer(
            b.input_layernorm,
            b.self_attn.q_proj,
            b.self_attn.k_proj,
            b.self_attn.v_proj,
            b.self_attn.o_proj,
            b.post_attention_layernorm,
            b.mlp.gate_proj,
            b.mlp.up_proj,
            b.mlp.down_proj,
        )
        for b in net.model.layers
    ]


def norm(x: Tensor, module: Any) -> Tensor:
    wide = x.float()
    return module.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + module.eps)).to(x.dtype)


def turn(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """x [B, H, L, D]."""
    half = x.shape[-1] // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return (x * cosine + turned * sine).to(x.dtype)


def logits(
    model: Model,
    ids: Tensor,
    seen: Tensor | None = None,
    embeds: Tensor | None = None,
    recompute: bool = False,
    bias: Tensor | None = None,
) -> Tensor:
    """Logits of every position, [B, L] -> [B, L, V]; seen [B, L] is False at padding. Dream's row i speaks of i + 1.

    bias [B, 1, L, L] is added to the attention scores.
    """
    net = model.core
    x = net.get_input_embeddings()(ids) if embeds is None else embeds
    batch, length = ids.shape
    theta = net.config.rope_theta if isinstance(net, LLaDAModelLM) else net.config.rope_parameters["rope_theta"]
    heads = net.config.num_attention_heads
    head_dim = net.config.hidden_size // heads
    frequencies = 1.0 / theta ** (torch.arange(0, head_dim, 2, device=ids.device).float() / head_dim)
    angles = (torch.arange(length, device=ids.device).float()[:, None] * frequencies).repeat(1, 2)
    cosine, sine = angles.cos(), angles.sin()
    if not isinstance(net, LLaDAModelLM):  # Dream rounds its tables
        cosine, sine = cosine.to(x.dtype), sine.to(x.dtype)
    if seen is not None:  # a dense float32 bias, as the published code makes it for padding
        bias = torch.zeros(batch, 1, length, length, device=ids.device)
        bias = bias.masked_fill(~seen[:, None, None, :], torch.finfo(torch.float32).min)

    def block(x: Tensor, part: Layer) -> Tensor:
        normed = norm(x, part.norm)
        q, k, v = (f(normed).view(batch, length, -1, head_dim).transpose(1, 2) for f in (part.q, part.k, part.v))
        q, k = turn(q, cosine, sine), turn(k, cosine, sine)
        k, v = (t.repeat_interleave(heads // t.shape[1], dim=1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=None if bias is None else bias.to(q.dtype))
        x = x + part.out(mixed.transpose(1, 2).reshape(batch, length, -1))
        normed = norm(x, part.mlp_norm)
        return x + part.down(F.silu(part.gate(normed)) * part.up(normed))

    for part in layers_of(net):
        x = checkpoint(block, x, part, use_reentrant=False) if recompute else block(x, part)
    last = net.model.transformer["ln_f"] if isinstance(net, LLaDAModelLM) else net.model.norm
    return F.linear(norm(x, last), net.get_output_embeddings().weight)


def pad(sequences: list[list[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Right-padded ids [B, L], and where they are real."""
    longest = max(len(ids) for ids in sequences)
    ids = torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids in sequences], device=device)
    seen = torch.tensor([[place < len(ids) for place in range(longest)] for ids in sequences], device=device)
    return ids, seen
