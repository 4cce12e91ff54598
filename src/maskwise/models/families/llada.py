"""LLaDA (Nie et al., arXiv 2502.09992): a bidirectional Llama; the logits at position i predict position i.

Parameter names and arithmetic are those of the published checkpoints (LLaDA-8B Base and Instruct, LLaDA-1.5), so that
weights and adapters travel both ways. Dropout is not applied: the published models use none.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedConfig
from transformers.modeling_layers import GradientCheckpointingLayer

from maskwise.models.attention.ragged import Layout, Store, attend
from maskwise.models.families import layers
from maskwise.models.families.shapes import ConfigFields

# Fields of the original configuration that change the arithmetic, and the one value of each that is written here.
ONLY: ConfigFields = {"alibi": False, "clip_qkv": None, "input_emb_norm": False, "scale_logits": False}
ONLY |= {"block_type": "llama", "block_group_size": 1, "activation_type": "silu", "layer_norm_type": "rms"}
ONLY |= {"layer_norm_with_affine": True, "bias_for_layer_norm": False, "attention_layer_norm": False}
ONLY |= {"rope": True, "rope_full_precision": True}


class LLaDAConfig(PreTrainedConfig):
    model_type = "llada"
    attribute_map = {  # noqa: RUF012
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "num_key_value_heads": "n_kv_heads",
        "intermediate_size": "mlp_hidden_size",
        "max_position_embeddings": "max_sequence_length",
        "tie_word_embeddings": "weight_tying",
    }

    d_model: int = 4096
    n_layers: int = 32
    n_heads: int = 32
    n_kv_heads: Any = None  # the fields that may be None in a file are integers once it is read
    mlp_hidden_size: Any = None
    mlp_ratio: int | float = 4
    vocab_size: int = 126464
    embedding_size: Any = None
    max_sequence_length: int = 4096
    rope_theta: float = 500000.0
    rms_norm_eps: float = 1e-5
    include_bias: bool = False
    include_qkv_bias: bool = False
    multi_query_attention: bool | None = None
    weight_tying: bool = False
    init_std: float = 0.02
    mask_token_id: int | None = None
    eos_token_id: int | list[int] | None = None
    pad_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        if self.n_kv_heads is None:
            self.n_kv_heads = 1 if self.multi_query_attention else self.n_heads
        if self.mlp_hidden_size is None:
            self.mlp_hidden_size = int(self.mlp_ratio * self.d_model)
        if self.embedding_size is None:
            self.embedding_size = self.vocab_size
        super().__post_init__(**kwargs)

    def inverse_frequencies(self) -> tuple[Tensor, float]:
        """Rotary frequencies [head_dim / 2] and the factor on cosine and sine."""
        return layers.default_inverse_frequencies(self.rope_theta, self.d_model // self.n_heads), 1.0

    def refuse_unsupported(self) -> None:
        layers.refuse_other_arithmetic(self, ONLY, "LLaDA")


class LLaDABlock(GradientCheckpointingLayer, layers.PackedAttention, layers.PackedGate):
    def __init__(self, config: LLaDAConfig) -> None:
        super().__init__()
        width = config.d_model
        self.head_dim = width // config.n_heads
        kv_width = self.head_dim * config.n_kv_heads
        bias = config.include_bias
        qkv_bias = bias or config.include_qkv_bias
        self.attn_norm = layers.RMSNorm(width, config.rms_norm_eps)
        self.q_proj = nn.Linear(width, width, bias=qkv_bias)
        self.k_proj = nn.Linear(width, kv_width, bias=qkv_bias)
        self.v_proj = nn.Linear(width, kv_width, bias=qkv_bias)
        self.attn_out = nn.Linear(width, width, bias=bias)
        self.ff_norm = layers.RMSNorm(width, config.rms_norm_eps)
        self.ff_proj = nn.Linear(width, config.mlp_hidden_size, bias=bias)
        self.up_proj = nn.Linear(width, config.mlp_hidden_size, bias=bias)
        self.ff_out = nn.Linear(config.mlp_hidden_size, width, bias=bias)

    def gate_and_up(self) -> tuple[Any, Any]:
        return self.ff_proj, self.up_proj

    def forward(self, x: Tensor, rotary: layers.Rotary, layout: Layout, store: Store | None) -> Tensor:
        """x [T, d] -> [T, d], or the rows of the layout."""
        maps, rows = (self.q_proj, self.k_proj, self.v_proj), layout.rows
        made = layers.products(self.attn_norm(x), maps, self.packed, rows)
        q, k, v = (part.unflatten(-1, (-1, self.head_dim)) for part in made)
        q, k = rotary.turn(q, rows), rotary.turn(k)
        attended = attend(q, k, v, layout, self.head_dim**-0.5, store).flatten(1)
        x = layout.picked(x) + layers.project_out(attended, self.attn_out, self.split_out)
        return x + layers.project_out(self.gated(self.ff_norm(x)), self.ff_out, self.split_down)


class LLaDABody(layers.NetworkBody):
    """Embedding, blocks, last norm; it holds the head too, because the published names put it here."""

    def __init__(self, config: LLaDAConfig) -> None:
        super().__init__()
        self.config = config
        self.frequencies = layers.Frequencies(config.inverse_frequencies)
        self.transformer = nn.ModuleDict(
            {
                "wte": layers.Embedding(config.embedding_size, config.d_model),
                "blocks": nn.ModuleList(LLaDABlock(config) for _ in range(config.n_layers)),
                "ln_f": layers.RMSNorm(config.d_model, config.rms_norm_eps),
            }
        )
        self.takes_last_rows = True
        if not config.weight_tying:
            self.transformer["ff_out"] = nn.Linear(config.d_model, config.embedding_size, bias=config.include_bias)

    def embed(self, ids: Tensor) -> Tensor:
        return self.transformer["wte"](ids)

    def run(self, x: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        rotary = layers.Rotary(positions, *self.frequencies.on(x.device))
        blocks: Any = self.transformer["blocks"]
        for layer, block in enumerate(blocks):
            x = block(x, rotary, layout.of_layer(layer, len(blocks)), layout.store(layer))
        return self.transformer["ln_f"](x)


class LLaDAModelLM(layers.Network):
    config_class = LLaDAConfig
    _no_split_modules = ["LLaDABlock"]  # noqa: RUF012

    def __init__(self, config: LLaDAConfig) -> None:
        config.refuse_unsupported()
        super().__init__(config)
        self.model = LLaDABody(config)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        layers.initialise(module, self.config.init_std)

    def get_input_embeddings(self) -> nn.Module:
        return self.model.transformer["wte"]

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.model.transformer["wte"] = value

    def get_output_embeddings(self) -> nn.Module:
        return self.model.transformer["wte" if self.config.weight_tying else "ff_out"]

    def set_output_embeddings(self, value: nn.Module) -> None:
        self.model.transformer["wte" if self.config.weight_tying else "ff_out"] = value

    def logits(self, hidden: Tensor) -> Tensor:
        head = self.get_output_embeddings()  # tied, it is an embedding, which cannot be called
        return F.linear(hidden, head.weight, getattr(head, "bias", None))  # type: ignore[arg-type]


layers.register(LLaDAConfig, LLaDAModelLM)
