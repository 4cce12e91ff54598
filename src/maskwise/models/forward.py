"""The forward pass: hidden states by our own classes or a causal class of transformers; the head."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from maskwise.models.attention.ragged import Layout, attend
from maskwise.models.batch import Batch
from maskwise.models.peft_access import embed_ids
from maskwise.support.errors import UserError

RAGGED = "maskwise_ragged"


def native_body(net: PreTrainedModel, batch: Batch, layout: Layout) -> Tensor:
    """Our own classes: flat tokens all the way through."""
    x = batch.embeds
    if x is None:
        assert batch.ids is not None
        x = embed_ids(net, batch.ids)
    return net.model.run(x, batch.positions, layout)  # type: ignore[operator, union-attr]


def causal_body(net: PreTrainedModel, batch: Batch, layout: Layout) -> Tensor:
    """transformers' own causal classes, packed into one row, with our attention through their interface."""
    # transformers passes a 4-dimensional mask on unchanged, so no [T, T] mask is built; ours reads the layout instead.
    untouched = torch.ones(1, 1, 1, 1, dtype=torch.bool, device=batch.offsets.device)
    return net.base_model(
        input_ids=None if batch.embeds is not None or batch.ids is None else batch.ids[None],
        inputs_embeds=None if batch.embeds is None else batch.embeds[None],
        position_ids=batch.positions[None],
        attention_mask=untouched,
        use_cache=False,
        ragged=layout,
    ).last_hidden_state[0]


def _ragged_attention(module, query, key, value, attention_mask, scaling=None, ragged=None, **rest):  # type: ignore[no-untyped-def]
    """transformers' attention interface: [1, H, T, D] in, [1, T, H, D] out. Without a layout it is plain SDPA."""
    if ragged is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **rest)
    unsupported = [name for name in ("softcap", "s_aux", "position_bias") if rest.get(name) is not None]
    if unsupported:
        raise UserError(f"attention with {', '.join(unsupported)} is not supported: use another AR model")
    q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    return attend(q, k, v, ragged, scale, window=rest.get("sliding_window"))[None], None


AttentionInterface.register(RAGGED, _ragged_attention)
AttentionMaskInterface.register(RAGGED, sdpa_mask)


@torch.no_grad()
def largest_difference(
    net: PreTrainedModel, ours: Tensor, ids: Sequence[int], start: Sequence[int] = (), end: Sequence[int] = ()
) -> float:
    """The largest difference between our logits [n, V] of a short sequence and the class's own, relative to theirs.
    start, end: the special tokens that the model interface adds around the sequence."""
    framed = torch.tensor([[*start, *ids, *end]], device=ours.device)
    theirs = net(input_ids=framed).logits[0, len(start) : len(start) + len(ids)].float()
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1e-6))


class _FloatProduct(torch.autograd.Function):
    """Product of half-precision rows and weight, summed and returned in float32; rounded logits would have ties."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        return torch.mm(rows, weight.t(), out_dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        rows, weight = ctx.saved_tensors
        gradient = gradients[0].to(rows.dtype)
        return (
            gradient @ weight if ctx.needs_input_grad[0] else None,
            gradient.t() @ rows if ctx.needs_input_grad[1] else None,
        )


def float_product(rows: Tensor, weight: Tensor) -> Tensor:
    """The output head: rows [n, d] times weight [V, d] -> float32 logits [n, V], whatever the type of the weight."""
    if weight.dtype == torch.float32:
        return F.linear(rows.float(), weight)
    if rows.is_cuda:
        return _FloatProduct.apply(rows.to(weight.dtype), weight)
    return F.linear(rows.float(), weight.float())
