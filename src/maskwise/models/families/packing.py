"""Packed weights for decoding, where every step multiplies the same weights by few rows.

On a GPU a step over a short block reads every weight once and does little with it. Three small products for query, key
and value then cost more than twice what one does, and the first two of an MLP a sixth more: their weights are packed
into one tensor. The projections that follow them have a kernel that splits the inner dimension (layers.py,
`project_out`). On a CPU none of this pays, but there OpenBLAS, the library of ARM builds of torch, is faster with
column-major weights.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from maskwise.kernels import gate
from maskwise.models.families.layers import Packed, PackedAttention, PackedGate
from maskwise.models.families.quantise import Float8Linear, Float8Weights


@contextmanager
def packed_products(net: nn.Module) -> Iterator[None]:
    """Inside, attention (LLaDA's, Dream's) takes one product for query, key and value, an MLP one for gate and up.

    The parameters stay views of one tensor afterwards, so nothing is copied the next time. They are checked each time:
    an adapter or another weight may have replaced a map. Experts are stacked already.
    """
    owners = [one for name, one in net.named_modules() if "experts" not in name.split(".")]
    attentions: list[Any] = [one for one in owners if isinstance(one, PackedAttention)]
    gates = [one for one in owners if isinstance(one, PackedGate)]
    for one in attentions:
        one.packed = _pack([one.q_proj, one.k_proj, one.v_proj])
        one.split_out = _may_be_split(one.packed)
    for one in gates:
        one.packed_gate = _pack(one.gate_and_up())
        one.split_down = _may_be_split(one.packed_gate)
    try:
        yield
    finally:
        for one in attentions:
            one.packed, one.split_out = None, False
        for one in gates:
            one.packed_gate, one.split_down = None, False


@contextmanager
def columnwise_products(net: PreTrainedModel) -> Iterator[None]:
    """Inside, float32 weights of linear maps are column-major; afterwards row-major again, as in files.

    Except the output head, because a canvas has few rows at its end and a single row is slower in this layout, and
    stacked experts. Measured on a Neoverse N1 with 256 x 512 weights: 1.5 times as fast for 32 rows, 1.12 times for
    129, the same for 1400, with the same bits.
    """
    head = net.get_output_embeddings()
    maps = [
        one
        for name, one in net.named_modules()
        if type(one) is nn.Linear and one is not head and "experts" not in name.split(".")
        if type(one.weight) is nn.Parameter and one.weight.dtype == torch.float32
    ]
    try:
        _lay(maps, lambda weight: weight.t().contiguous().t())
        yield
    finally:
        _lay(maps, Tensor.contiguous)


@torch.inference_mode(False)  # weights made in inference mode could never be trained again
def _lay(maps: Sequence[nn.Linear], layout: Callable[[Tensor], Tensor]) -> None:
    for one in maps:
        one.weight.data = layout(one.weight.detach())


def _pack(maps: Sequence[nn.Module]) -> Packed | None:
    """Packs linear maps; None if one is adapted, sharded, hooked or quantised otherwise."""
    if any(one._forward_hooks or one._forward_pre_hooks for one in maps):
        return None
    quantised = [one for one in maps if type(one) is Float8Linear and one.bias is None]
    if len(quantised) == len(maps):
        return Float8Weights(
            end_to_end([one.weight for one in quantised]), end_to_end([one.scale for one in quantised])
        )
    plain = [one for one in maps if type(one) is nn.Linear and type(one.weight) is nn.Parameter]
    if len(plain) < len(maps):
        return None
    biases = [one.bias for one in plain if one.bias is not None]
    return end_to_end([one.weight for one in plain]), end_to_end(biases) if biases else None


def _may_be_split(packed: Packed | None) -> bool:
    """True if the projection after the packed maps, of the same kind, may take the kernel for small batches."""
    if packed is None or isinstance(packed, Float8Weights):
        return False
    weight = packed[0]
    fits = weight.is_cuda and weight.dtype in gate.HALF and not torch.is_grad_enabled()
    return fits and gate.kernel("small_batch_linear", weight.device, weight.dtype) is not None


def end_to_end(parts: Sequence[Tensor]) -> Tensor:
    """Concatenates parameters [n_i, ...] into one tensor [sum of n_i, ...], of which they become views."""
    whole = _joined(parts)
    if whole is None:
        with torch.inference_mode(False):  # weights made in inference mode could never be trained again
            kind, plain = parts[0].dtype, torch.uint8 if parts[0].element_size() == 1 else parts[0].dtype
            whole = torch.cat([part.detach().view(plain) for part in parts]).view(kind)  # float8 as bytes
            for part, place in zip(parts, whole.split([len(part) for part in parts]), strict=True):
                part.data = place
    return whole


def _joined(parts: Sequence[Tensor]) -> Tensor | None:
    """The tensor that the parts form if contiguous in memory, else None."""
    memory, end = parts[0].untyped_storage().data_ptr(), parts[0].storage_offset()
    for part in parts:
        if part.untyped_storage().data_ptr() != memory or part.storage_offset() != end or not part.is_contiguous():
            return None
        end += part.numel()
    size = (sum(len(part) for part in parts), *parts[0].shape[1:])
    return parts[0].detach().as_strided(size, parts[0].stride())
