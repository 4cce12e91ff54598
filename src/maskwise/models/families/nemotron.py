"""Nemotron-Labs-Diffusion (Fu et al., NVIDIA, 2026): Ministral 3 that reads clean text causally and fills in blocks.

Parameter names and arithmetic are those of the published checkpoints: Llama's under `encoder`, with YaRN, queries that
grow slowly beyond the original context length, and `diffusion_head`. In training and in the published loop, attention
over clean tokens is causal, and the tokens of the block being filled in see the whole block. So here attention is
causal within a block without masks, bidirectional within a block with a mask, and never reaches a later block. The
logits of position i in a block that holds masks predict position i.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput

from maskwise.models.attention.ragged import Layout, Store, attend
from maskwise.models.families.dream import DreamAttention, DreamBlock, DreamBody, DreamConfig, DreamModel
from maskwise.models.families.layers import Rotary, dense_pass, project_out, register
from maskwise.support.errors import UserError

PARADIGMS = ("bidirectional", "block_diff")  # the second names how it is trained


class NemotronLabsDiffusionConfig(DreamConfig):
    model_type = "nemotron_labs_diffusion"
    family = "Nemotron-Labs-Diffusion"
    default_theta = 1e6
    block_field = "block_size"
    only = {"attention_bias": False, "mlp_bias": False, "sliding_window": None} | DreamConfig.only
    own_rope_parameters = frozenset({"llama_4_scaling_beta"})
    ignore_keys_at_rope_validation = {"llama_4_scaling_beta"}  # noqa: RUF012

    vocab_size: int = 131072
    hidden_size: int = 4096
    intermediate_size: int = 14336
    num_hidden_layers: int = 34
    num_attention_heads: int = 32
    num_key_value_heads: Any = 8
    head_dim: Any = 128
    max_position_embeddings: int = 262144
    rms_norm_eps: float = 1e-5
    qkv_bias: bool = False
    mask_token_id: int | None = 100
    block_size: int = 32
    dlm_paradigm: str = "bidirectional"

    def refuse_unsupported(self) -> None:
        if self.dlm_paradigm not in PARADIGMS:
            raise UserError(
                f"dlm_paradigm={self.dlm_paradigm!r} is not supported: open a checkpoint that was trained for diffusion"
            )
        super().refuse_unsupported()


class GrowingRotary(Rotary):
    """Rotary embedding with a query scale per token, [T, 1, 1]."""

    def __init__(self, config: NemotronLabsDiffusionConfig, positions: Tensor, *tables: Any) -> None:
        super().__init__(positions, *tables)
        rope = config.rope_parameters
        length = rope.get("original_max_position_embeddings") or config.max_position_embeddings
        beta = rope.get("llama_4_scaling_beta") or 0.0  # the factor is 1 within the original context length
        growth = 1 + beta * torch.log1p(torch.floor(positions.float() / length))
        self.growth = growth[:, None, None].to(self.cosine.dtype)


class NemotronAttention(DreamAttention):
    def forward(self, x: Tensor, rotary: Rotary, layout: Layout, store: Store | None) -> Tensor:
        assert isinstance(rotary, GrowingRotary)
        q, k, v = self.heads(x, layout.rows)
        q, k = rotary.turn(q, layout.rows) * layout.picked(rotary.growth), rotary.turn(k)
        attended = attend(q, k, v, layout, self.head_dim**-0.5, store).flatten(1)
        return project_out(attended, self.o_proj, self.split_out)


class NemotronBlock(DreamBlock):
    attention = NemotronAttention


class NemotronBody(DreamBody):
    config: NemotronLabsDiffusionConfig

    def run(self, x: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        rotary = GrowingRotary(self.config, positions, *self.frequencies.on(x.device), x.dtype)
        return self.through_layers(x, rotary, layout)

    def forward(
        self, input_ids: Tensor | None = None, attention_mask: Tensor | None = None, inputs_embeds: Tensor | None = None
    ) -> BaseModelOutput:
        """The dense call over [B, L]; the ids say which blocks hold masks, also if embeddings are given."""
        if input_ids is None:
            raise UserError("Nemotron-Labs-Diffusion is read by where its masks stand: give input_ids as well")
        x = self.embed(input_ids) if inputs_embeds is None else inputs_embeds
        masked = input_ids.eq(self.config.mask_token_id)  # type: ignore[arg-type]
        reach = dense_reach(masked, self.config.block_size)[:, None]
        return BaseModelOutput(dense_pass(self.run, x, attention_mask, reach=reach))  # type: ignore[arg-type]


def dense_reach(masked: Tensor, block: int) -> Tensor:
    """masked [B, L] -> [B, L, L], True for keys before the query, and for its whole block if that holds a mask."""
    length = masked.shape[1]
    place = torch.arange(length, device=masked.device)
    lines = F.pad(masked, (0, -length % block)).unflatten(1, (-1, block)).any(dim=2)  # [B, blocks]
    whole = lines.repeat_interleave(block, dim=1)[:, :length]
    end = torch.where(whole, (place // block + 1) * block, place + 1)
    return place < end[..., None]


class NemotronLabsDiffusionModel(DreamModel):
    config_class = NemotronLabsDiffusionConfig
    base_model_prefix = "encoder"
    _no_split_modules = ["NemotronBlock"]  # noqa: RUF012
    _tied_weights_keys = {"diffusion_head.weight": "encoder.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: NemotronLabsDiffusionConfig) -> None:
        config.refuse_unsupported()
        PreTrainedModel.__init__(self, config)
        self.encoder = NemotronBody(config, NemotronBlock)
        self.diffusion_head: nn.Module = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @property
    def model(self) -> NemotronBody:
        return self.encoder

    @property
    def lm_head(self) -> nn.Module:
        return self.diffusion_head

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.diffusion_head = value


register(NemotronLabsDiffusionConfig, NemotronLabsDiffusionModel)
