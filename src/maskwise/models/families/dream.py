"""Dream (Ye et al., arXiv 2508.15487): a bidirectional Qwen2; the logits of position i come from hidden state i - 1.

Parameter names and arithmetic are those of the published checkpoints (Dream-v0 Base and Instruct, 7B). `convert` writes
Llama (no query, key and value biases) and Qwen2 checkpoints for the same class. A checkpoint trained without the shift
says "shift": false in its config.json.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, PreTrainedConfig
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from maskwise.models.attention.ragged import Layout, Store, attend
from maskwise.models.families import layers
from maskwise.support.errors import UserError

ROPE_TYPES = ("default", "linear", "llama3", "yarn")  # those whose frequencies do not depend on the input's length


class DreamConfig(PreTrainedConfig):
    model_type = "Dream"
    family = "Dream"  # as messages call it
    default_theta = 1e6
    block_field = ""  # of block diffusion: the field with the tokens of a block
    # Fields of the original configuration that its code reads, and the only value of each that is supported.
    only: ClassVar[dict[str, Any]] = {"hidden_act": "silu", "use_sliding_window": False, "use_mrope": False}

    vocab_size: int = 152064
    hidden_size: int = 3584
    intermediate_size: int = 18944
    num_hidden_layers: int = 28
    num_attention_heads: int = 28
    num_key_value_heads: Any = None  # the fields that may be None in a file are filled once it is read
    head_dim: Any = None
    hidden_act: str = "silu"
    max_position_embeddings: int = 131072
    initializer_range: float = 0.02
    rms_norm_eps: float = 1e-6
    rope_parameters: Any = None
    qkv_bias: bool = True  # ours: Llama has none
    tie_word_embeddings: bool = False
    mask_token_id: int | None = None
    bos_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.num_key_value_heads is None:
            self.num_key_value_heads = self.num_attention_heads
        if self.head_dim is None:
            self.head_dim = self.hidden_size // self.num_attention_heads
        kwargs.pop("attn_implementation", None)  # published files name a package; attention here is our own
        super().__post_init__(**kwargs)

    @property
    def attention_block(self) -> int | None:
        """Block size of block-causal attention; None: bidirectional."""
        return getattr(self, self.block_field) if self.block_field else None

    def to_dict(self) -> dict[str, Any]:
        """Writes `rope_theta` where the original code looks for it: without it that code would use 10000, silently."""
        fields = super().to_dict()
        if self.rope_parameters:
            fields["rope_theta"] = self.rope_parameters["rope_theta"]
        return fields

    def refuse_unsupported(self) -> None:
        layers.refuse_other_arithmetic(self, self.only, self.family)
        rope = self.rope_parameters["rope_type"]
        if rope not in ROPE_TYPES:
            raise UserError(f"rotary positions of type {rope!r} are not supported: use one of {', '.join(ROPE_TYPES)}")
        try:
            with torch.device("cpu"):  # checkpoints are opened with `meta` as the default, where nothing is computed
                self.inverse_frequencies()
        except KeyError as problem:
            raise UserError(f"rope_parameters cannot be read ({problem.args[0]}): download config.json again") from None

    def inverse_frequencies(self) -> tuple[Tensor, float]:
        """Rotary frequencies [head_dim / 2] and the factor on cosine and sine."""
        rope = self.rope_parameters
        if rope["rope_type"] == "default":
            return layers.default_inverse_frequencies(rope["rope_theta"], self.head_dim), 1.0
        twin = LlamaConfig(
            hidden_size=self.hidden_size,
            num_attention_heads=self.num_attention_heads,
            head_dim=self.head_dim,
            max_position_embeddings=self.max_position_embeddings,
            rope_parameters=dict(rope),
        )
        return ROPE_INIT_FUNCTIONS[rope["rope_type"]](twin, torch.device("cpu"))


class DreamAttention(nn.Module, layers.PackedAttention):
    def __init__(self, config: DreamConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        q_width, kv_width = config.num_attention_heads * self.head_dim, config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, q_width, bias=config.qkv_bias)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=config.qkv_bias)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=config.qkv_bias)
        self.o_proj = nn.Linear(q_width, config.hidden_size, bias=False)

    def heads(self, x: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries [T, H, D], or of these rows, keys and values [T, G, D] of x [T, d]."""
        maps = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)) for part in layers.products(x, maps, self.packed, rows))
        return q, k, v

    def forward(self, x: Tensor, rotary: layers.Rotary, layout: Layout, store: Store | None) -> Tensor:
        q, k, v = self.heads(x, layout.rows)
        q, k = rotary.turn(q, layout.rows), rotary.turn(k)
        attended = attend(q, k, v, layout, self.head_dim**-0.5, store).flatten(1)
        return layers.project_out(attended, self.o_proj, self.split_out)


class NormedAttention(DreamAttention):
    """Attention with per-head RMSNorm of queries and keys, as in Qwen3."""

    def __init__(self, config: DreamConfig) -> None:
        super().__init__(config)
        self.q_norm = layers.RMSNorm(self.head_dim, config.rms_norm_eps)
        self.k_norm = layers.RMSNorm(self.head_dim, config.rms_norm_eps)

    def heads(self, x: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = super().heads(x, rows)
        return self.q_norm(q), self.k_norm(k), v


class DreamBlock(GradientCheckpointingLayer):
    attention = DreamAttention
    takes_rows = True  # its layout may ask for a few rows alone

    def __init__(self, config: Any) -> None:
        super().__init__()
        self.self_attn = self.attention(config)
        self.mlp = self.make_mlp(config)
        self.input_layernorm = layers.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = layers.RMSNorm(config.hidden_size, config.rms_norm_eps)

    def make_mlp(self, config: Any) -> nn.Module:
        return layers.GatedMLP(config.hidden_size, config.intermediate_size)

    def forward(self, x: Tensor, rotary: layers.Rotary, layout: Layout, store: Store | None) -> Tensor:
        """x [T, d] -> [T, d], or the rows of the layout."""
        x = layout.picked(x) + self.self_attn(self.input_layernorm(x), rotary, layout, store)
        return x + self.mlp(self.post_attention_layernorm(x))


class DreamBody(layers.NetworkBody):
    def __init__(self, config: DreamConfig, block: Callable[[Any], nn.Module]) -> None:
        super().__init__()
        self.config = config
        self.frequencies = layers.Frequencies(config.inverse_frequencies)
        self.embed_tokens = layers.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(block(config) for _ in range(config.num_hidden_layers))
        self.norm = layers.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.takes_last_rows = getattr(self.layers[-1], "takes_rows", False)

    def run(self, x: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        # The original code also rounds the tables to the model's dtype before multiplying.
        rotary = layers.Rotary(positions, *self.frequencies.on(x.device), x.dtype)
        for number, layer in enumerate(self.layers):
            self.prepare(layer)
            x = layer(x, rotary, layout.of_layer(number, len(self.layers)), layout.store(number))
        return self.norm(x)

    def prepare(self, layer: Any) -> None:
        """Host-side preparation of a layer, while the GPU computes the one before."""

    def embed(self, ids: Tensor) -> Tensor:
        return self.embed_tokens(ids)


class DreamModel(layers.Network):
    config_class = DreamConfig
    _no_split_modules = ["DreamBlock"]  # noqa: RUF012
    block: Callable[[Any], nn.Module] = DreamBlock
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}  # noqa: RUF012

    def __init__(self, config: DreamConfig) -> None:
        config.refuse_unsupported()
        super().__init__(config)
        self.model = self.make_body(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def make_body(self, config: DreamConfig) -> DreamBody:
        return DreamBody(config, self.block)

    def _init_weights(self, module: nn.Module) -> None:
        layers.initialise(module, self.config.initializer_range)


layers.register(DreamConfig, DreamModel)
