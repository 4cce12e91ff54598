"""Layers shared by the families: norm, rotary embedding, dense call of a stack of blocks, registration."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput

from maskwise.kernels.gate import SMALL_BATCH
from maskwise.models.attention.ragged import Layout, block_reach
from maskwise.models.families.quantise import Float8Weights, float8_product
from maskwise.support.errors import UserError


class Embedding(nn.Embedding):
    """nn.Embedding without initialisation on meta tensors, where torch would import torch._dynamo for it."""

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


class RMSNorm(nn.Module):
    """Root-mean-square norm, computed in float32 and rounded to the input's type before the weight is applied."""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * F.rms_norm(x, x.shape[-1:], eps=self.eps).to(x.dtype)  # autocast would widen it


Packed = tuple[Tensor, Tensor | None] | Float8Weights  # weights of several linear maps end to end, and their biases


class PackedAttention:
    """Marks a module whose maps q_proj, k_proj and v_proj can be packed (packing.py)."""

    packed: Packed | None = None
    split_out = False  # the output projection may take the kernel for small batches


class PackedGate(ABC):
    """Marks a module with an MLP whose gate and up projections can be packed."""

    packed_gate: Packed | None = None
    split_down = False  # as above

    @abstractmethod
    def gate_and_up(self) -> tuple[Any, Any]:
        """The gate and up projections."""

    def gated(self, x: Tensor) -> Tensor:
        """x [T, d] -> [T, inner]."""
        gate, up = products(x, self.gate_and_up(), self.packed_gate)
        return F.silu(gate) * up


class GatedMLP(nn.Module, PackedGate):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def gate_and_up(self) -> tuple[Any, Any]:
        return self.gate_proj, self.up_proj

    def forward(self, x: Tensor) -> Tensor:
        return project_out(self.gated(x), self.down_proj, self.split_down)


class MayWait(ABC):
    """Marks a module whose forward pass may synchronise with the device."""

    @property
    @abstractmethod
    def waits(self) -> bool:
        """True if the next pass will synchronise."""


def products(x: Tensor, maps: Sequence[Any], packed: Packed | None, rows: Tensor | None = None) -> Sequence[Tensor]:
    """Projects x [T, d] by each linear map, in one product if packed (packing.py); rows: of the first map."""
    if rows is not None:
        return [maps[0](x[rows]), *(one(x) for one in maps[1:])]
    if packed is None:
        return [one(x) for one in maps]
    whole = float8_product(x, *packed) if isinstance(packed, Float8Weights) else F.linear(x, *packed)
    return whole.split([one.out_features for one in maps], dim=-1)


def project_out(x: Tensor, one: Any, split: bool) -> Tensor:
    """Projects x [T, inner] to the model width; small batches use our split kernel.

    Few rows times few outputs do not fill the card, so where decoding allows it (`split`) the inner dimension is split
    over programs. In a compiled layer the partial sums are added by the kernel that reads them.
    """
    plain = type(one) is nn.Linear and type(one.weight) is nn.Parameter and one.bias is None
    hooked = plain and (one._forward_hooks or one._forward_pre_hooks)
    if split and plain and not hooked and 0 < len(x) <= SMALL_BATCH and x.dtype == one.weight.dtype:
        from maskwise.kernels.small_batch_linear import small_batch_linear

        return small_batch_linear(x, one.weight)
    return one(x)


class Rotary:
    """Cosine and sine of each token's position, 2 x [T, 1, D], in float32 or rounded to `dtype`.

    Neither a tuple nor a dataclass: FSDP2 in mixed precision rounds every tensor it finds in a layer's arguments, in
    torch 2.11 not again when a checkpointed layer is computed anew, and the precision of these is part of the model.
    """

    def __init__(
        self, positions: Tensor, inverse_frequencies: Tensor, scaling: float, dtype: torch.dtype = torch.float32
    ) -> None:
        angles = positions.float()[:, None] * inverse_frequencies.float()
        angles = torch.cat((angles, angles), dim=-1)[:, None, :]
        self.cosine, self.sine = (angles.cos() * scaling).to(dtype), (angles.sin() * scaling).to(dtype)

    def to(self, device: torch.device | int | str) -> "Rotary":
        """The tables on another device; accelerate calls it where layers lie on several devices."""
        if torch.device(device) == self.cosine.device:
            return self
        moved = copy(self)
        moved.cosine, moved.sine = self.cosine.to(device), self.sine.to(device)
        return moved

    def turn(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Rotates [T, heads, D] by position ("rotate half") in the tables' precision; returns x's dtype.

        rows: where x holds these rows of the batch alone. Where the tables are narrower than D, the first part is
        turned and the rest is left as it is.
        """
        width = self.cosine.shape[-1]
        if width < x.shape[-1]:
            return torch.cat((self.turn(x[..., :width], rows), x[..., width:]), dim=-1)
        cosine, sine = (self.cosine, self.sine) if rows is None else (self.cosine[rows], self.sine[rows])
        first, second = x.chunk(2, dim=-1)
        return (x * cosine + torch.cat((-second, first), dim=-1) * sine).to(x.dtype)


def default_inverse_frequencies(theta: float, head_dim: int) -> Tensor:
    return 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)


class Frequencies:
    """Rotary frequencies and their factor, made once on the host and kept on the device.
    Made in every pass they would be copied there in every pass, which stops the stream and cannot be recorded."""

    def __init__(self, make: Callable[[], tuple[Tensor, float]]) -> None:
        self.make = make
        self.made: tuple[Tensor, float] | None = None

    def on(self, device: torch.device) -> tuple[Tensor, float]:
        if self.made is None or self.made[0].device != device:
            frequencies, scaling = self.make()
            self.made = frequencies.to(device), scaling
        return self.made


def dense_pass(
    run: Callable[[Tensor, Tensor, Layout], Tensor],
    x: Tensor,
    attention_mask: Tensor | None,
    block: int | None = None,
) -> Tensor:
    """An ordinary padded call through `run`, which takes flat tokens: x [B, L, d] -> [B, L, d].

    attention_mask [B, L] is nonzero at real tokens. block: tokens see no block of so many tokens after their own.
    """
    rows, length = x.shape[:2]
    offsets = torch.arange(0, (rows + 1) * length, length, dtype=torch.int32, device=x.device)
    key_mask = None if attention_mask is None else attention_mask.bool()[:, None, None, :]
    if block is not None:
        place = torch.arange(length, device=x.device)
        reach = block_reach(place, place, block)[None, None]
        key_mask = reach if key_mask is None else key_mask & reach
    layout = Layout(offsets, offsets, length, length, causal=False, flash=False, key_mask=key_mask)
    positions = torch.arange(length, device=x.device).repeat(rows)
    return run(x.flatten(0, 1), positions, layout).view_as(x)


class NetworkBody(nn.Module):
    """Embedding, blocks and last norm of a network, called with flat tokens (`run`) or as an ordinary dense call."""

    config: Any

    @abstractmethod
    def embed(self, ids: Tensor) -> Tensor:
        """Input embeddings."""

    @abstractmethod
    def run(self, x: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        """x [T, d] embeddings, positions [T] -> final hidden states [T, d], or of the layout's last rows."""

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> BaseModelOutput:
        """The ordinary dense call over [B, L]; attention_mask [B, L] is nonzero at real tokens."""
        x = self.embed(input_ids) if inputs_embeds is None else inputs_embeds  # type: ignore[arg-type]
        block = getattr(self.config, "attention_block", None)
        return BaseModelOutput(dense_pass(self.run, x, attention_mask, block))  # type: ignore[arg-type]


class Network(PreTrainedModel):
    """A body with its output head."""

    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _supports_sdpa = True

    def logits(self, hidden: Tensor) -> Tensor:
        return self.lm_head(hidden)  # type: ignore[operator]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        **_: Any,
    ) -> MaskedLMOutput:
        """Logits of every position as the original class gives them, [B, L] -> [B, L, V]: never shifted."""
        hidden = self.model(input_ids, attention_mask, inputs_embeds).last_hidden_state  # type: ignore[operator]
        return MaskedLMOutput(logits=self.logits(hidden))  # type: ignore[arg-type]


def refuse_other_arithmetic(config: Any, only: Mapping[str, Any], family: str) -> None:
    """Refuses configuration fields that change the arithmetic, unless they have the supported value."""
    for field, supported in only.items():
        value = getattr(config, field, supported)
        # Published files write None for "not used" where the switch is false.
        if value != supported and not (value is None and supported is False):
            raise UserError(
                f"{family} configuration {field}={value!r} is not supported (only {supported!r}): "
                "open a checkpoint of the published shape"
            )


def initialise(module: nn.Module, spread: float) -> None:
    """Initialises weights at random, biases to zero, norms to one."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=spread)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)
    if isinstance(module, RMSNorm):
        nn.init.ones_(module.weight)


def register(config_class: type[PreTrainedConfig], net_class: type[PreTrainedModel]) -> None:
    """Registers with transformers' Auto classes: from_pretrained then returns our class and runs no remote code."""
    AutoConfig.register(config_class.model_type, config_class)
    AutoModel.register(config_class, net_class)
    AutoModelForCausalLM.register(config_class, net_class)
