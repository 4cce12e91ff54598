"""The bidirectional families against a second, dense implementation written here from the published description."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForCausalLM

import maskwise as mw
from helpers.references import gated_mlp, linear, rms_norm, silu
from helpers.tiny import dream_net, illada_net, llada_moe_net, llada_net
from maskwise.models import (
    DreamConfig,
    DreamModel,
    ILLaDAConfig,
    ILLaDAForCausalLM,
    LLaDAConfig,
    LLaDAModelLM,
    LLaDAMoEConfig,
    LLaDAMoEModelLM,
)
from maskwise.support.errors import UserError


def turn(x, theta):
    """Rotary positions of one head, written with complex numbers: pairs (i, i + D/2). x [L, D]."""
    length, width = x.shape
    half = width // 2
    angle = torch.tensor([[p / theta ** (2 * i / width) for i in range(half)] for p in range(length)], dtype=x.dtype)
    z = torch.complex(x[:, :half], x[:, half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat((z.real, z.imag), dim=-1)


def dense_attention(q, k, v, heads, kv_heads, theta):
    """One sequence, one head at a time, every position seeing every other. [L, heads * D] -> [L, heads * D]."""
    width = q.shape[-1] // heads
    out = []
    for head in range(heads):
        group = head // (heads // kv_heads)
        qh = turn(q[:, head * width : (head + 1) * width], theta)
        kh = turn(k[:, group * width : (group + 1) * width], theta)
        weights = (qh @ kh.T / math.sqrt(width)).softmax(-1)
        out.append(weights @ v[:, group * width : (group + 1) * width])
    return torch.cat(out, dim=-1)


def dense_llada(net, ids):
    s, c = net.state_dict(), net.config
    x = s["model.transformer.wte.weight"][ids]
    for n in range(c.n_layers):
        b = f"model.transformer.blocks.{n}"
        h = rms_norm(x, s[f"{b}.attn_norm.weight"], c.rms_norm_eps)
        q, k, v = (linear(s, f"{b}.{name}", h) for name in ("q_proj", "k_proj", "v_proj"))
        x = x + linear(s, f"{b}.attn_out", dense_attention(q, k, v, c.n_heads, c.n_kv_heads, c.rope_theta))
        h = rms_norm(x, s[f"{b}.ff_norm.weight"], c.rms_norm_eps)
        x = x + linear(s, f"{b}.ff_out", silu(linear(s, f"{b}.ff_proj", h)) * linear(s, f"{b}.up_proj", h))
    x = rms_norm(x, s["model.transformer.ln_f.weight"], c.rms_norm_eps)
    return linear(s, "model.transformer.wte" if c.weight_tying else "model.transformer.ff_out", x)


def dense_dream(net, ids):
    s, c = net.state_dict(), net.config
    x = s["model.embed_tokens.weight"][ids]
    for n in range(c.num_hidden_layers):
        b = f"model.layers.{n}"
        h = rms_norm(x, s[f"{b}.input_layernorm.weight"], c.rms_norm_eps)
        q, k, v = (linear(s, f"{b}.self_attn.{name}_proj", h) for name in "qkv")
        theta = c.rope_parameters["rope_theta"]
        a = dense_attention(q, k, v, c.num_attention_heads, c.num_key_value_heads, theta)
        x = x + linear(s, f"{b}.self_attn.o_proj", a)
        h = rms_norm(x, s[f"{b}.post_attention_layernorm.weight"], c.rms_norm_eps)
        x = x + gated_mlp(s, f"{b}.mlp", h)
    return linear(s, "lm_head", rms_norm(x, s["model.norm.weight"], c.rms_norm_eps))


def each_head(x, weight, eps):
    """x [L, heads * D] with every head normed by itself."""
    return torch.cat([rms_norm(head, weight, eps) for head in x.split(len(weight), dim=-1)], dim=-1)


def dense_experts(state, name, x, at_once):
    """One token at a time through the likeliest experts; their probabilities are not made to add up to one."""
    out = []
    for token in x:
        chance = linear(state, f"{name}.gate", token).softmax(-1)
        output = torch.zeros_like(token)
        for expert in chance.argsort(descending=True)[:at_once].tolist():
            output += chance[expert] * gated_mlp(state, f"{name}.experts.{expert}", token)
        out.append(output)
    return torch.stack(out)


def dense_llada_moe(net, ids):
    s, c = net.state_dict(), net.config
    x = s["model.embed_tokens.weight"][ids]
    for n in range(c.num_hidden_layers):
        b = f"model.layers.{n}"
        h = rms_norm(x, s[f"{b}.input_layernorm.weight"], c.rms_norm_eps)
        q, k, v = (linear(s, f"{b}.self_attn.{name}_proj", h) for name in "qkv")
        q, k = (
            each_head(part, s[f"{b}.self_attn.{name}_norm.weight"], c.rms_norm_eps)
            for name, part in zip("qk", (q, k), strict=True)
        )
        a = dense_attention(q, k, v, c.num_attention_heads, c.num_key_value_heads, c.rope_parameters["rope_theta"])
        x = x + linear(s, f"{b}.self_attn.o_proj", a)
        h = rms_norm(x, s[f"{b}.post_attention_layernorm.weight"], c.rms_norm_eps)
        x = x + dense_experts(s, f"{b}.mlp", h, c.num_experts_per_tok)
    return linear(s, "lm_head", rms_norm(x, s["model.norm.weight"], c.rms_norm_eps))


LLADA_SHAPES = [
    {},
    {"weight_tying": True, "n_kv_heads": 4},
    {"include_bias": True, "n_kv_heads": 1, "rope_theta": 100.0},
    {"include_qkv_bias": True, "embedding_size": 80},
]
DREAM_SHAPES = [{}, {"tie_word_embeddings": True}, {"qkv_bias": False, "head_dim": 16, "rope_theta": 500.0}]


@pytest.mark.parametrize("shape", LLADA_SHAPES, ids=str)
@torch.no_grad()
def test_llada_equals_the_dense_reference(shape):
    net = llada_net(seed=3, **shape)
    ids = torch.randint(0, 64, (2, 11), generator=torch.Generator().manual_seed(1))
    for row, logits in zip(ids, net(ids).logits, strict=True):
        torch.testing.assert_close(logits, dense_llada(net, row), atol=1e-4, rtol=0)


@pytest.mark.parametrize("shape", DREAM_SHAPES, ids=str)
@torch.no_grad()
def test_dream_equals_the_dense_reference(shape):
    net = dream_net(seed=3, **shape)
    for name, parameter in net.named_parameters():  # biases start at zero: give them something to say
        if name.endswith("bias"):
            parameter.normal_(generator=torch.Generator().manual_seed(2))
    ids = torch.randint(0, 64, (2, 11), generator=torch.Generator().manual_seed(1))
    for row, logits in zip(ids, net(ids).logits, strict=True):
        torch.testing.assert_close(logits, dense_dream(net, row), atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    "shape", [{}, {"tie_word_embeddings": False, "num_key_value_heads": 4, "rope_theta": 100.0}], ids=str
)
@torch.no_grad()
def test_illada_equals_the_dense_reference(shape):
    """Dream's, without biases."""
    net = illada_net(seed=3, **shape)
    assert not any(name.endswith("bias") for name in net.state_dict())
    ids = torch.randint(0, 64, (2, 11), generator=torch.Generator().manual_seed(1))
    for row, logits in zip(ids, net(ids).logits, strict=True):
        torch.testing.assert_close(logits, dense_dream(net, row), atol=1e-4, rtol=0)


@pytest.mark.parametrize("stored", [True, False])
def test_illada_opens_from_files_of_its_published_form(stored, tmp_path):
    """The mask is named nowhere; the tied head is stored with the embedding or left out."""
    net = illada_net(seed=3)
    net.save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    assert "lm_head.weight" not in weights
    if stored:
        weights["lm_head.weight"] = weights["model.embed_tokens.weight"].clone()
        save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    shape = {name: getattr(net.config, name) for name in (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "max_position_embeddings")}  # fmt: skip
    published = {"architectures": ["ILLaDAForCausalLM"], "model_type": "illada", "attention_bias": False,
                 "attention_dropout": 0.0, "auto_map": {"AutoConfig": "configuration_illada.ILLaDAConfig",
                 "AutoModelForCausalLM": "modeling_illada.ILLaDAForCausalLM"}, "hidden_act": "silu",
                 "layer_norm_eps": None, "mlp_bias": False, "resid_pdrop": 0.0, "rms_norm_eps": 1e-5,
                 "rope_scaling": None, "rope_theta": 5e5, "tie_word_embeddings": True, "torch_dtype": "bfloat16",
                 "use_cache": False} | shape  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(published))
    model = mw.open(tmp_path, dtype="float32", device="cpu")
    assert (model.kind, model.mask_id, model.shift, model.block) == ("illada", 5, False, None)
    ids = [7, 8, 5, 9, 5]
    dense = dense_dream(net, torch.tensor(ids)).detach()
    dense[:, 5] = -torch.inf
    torch.testing.assert_close(model.predict([ids], [list(range(5))])[0], dense, atol=1e-4, rtol=0)
    (tmp_path / "config.json").write_text(json.dumps(published | {"layer_norm_eps": 1e-5}))
    with pytest.raises(UserError, match="layer_norm_eps"):
        mw.open(tmp_path)


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"num_experts_per_tok": 6, "num_key_value_heads": 4},
        {"num_experts_per_tok": 1, "rope_theta": 100.0, "tie_word_embeddings": True},
    ],
    ids=str,
)
@torch.no_grad()
def test_llada_moe_equals_the_dense_reference(shape):
    net = llada_moe_net(seed=3, **shape)
    for name, parameter in net.named_parameters():  # norms start at one
        if name.endswith("_norm.weight"):
            parameter.uniform_(0.5, 2, generator=torch.Generator().manual_seed(2))
    ids = torch.randint(0, 64, (2, 11), generator=torch.Generator().manual_seed(1))
    for row, logits in zip(ids, net(ids).logits, strict=True):
        torch.testing.assert_close(logits, dense_llada_moe(net, row), atol=1e-4, rtol=0)


@pytest.mark.parametrize("make", [llada_net, illada_net, dream_net, llada_moe_net])
@torch.no_grad()
def test_the_dense_call_ignores_padding(make):
    net = make()
    ids = torch.randint(0, 64, (1, 9), generator=torch.Generator().manual_seed(1))
    padded = torch.cat((ids, torch.zeros(1, 4, dtype=torch.int64)), dim=1)
    mask = torch.tensor([[1] * 9 + [0] * 4])
    torch.testing.assert_close(net(padded, attention_mask=mask).logits[:, :9], net(ids).logits, atol=1e-5, rtol=0)


def shapes_of(network, config):
    """The names and shapes of a network that is too large to be made."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in network(config).state_dict().items()}


def test_full_8b_names_and_shapes_are_the_published_ones():
    shapes = shapes_of(LLaDAModelLM, LLaDAConfig(mlp_hidden_size=12288, embedding_size=126464))
    d, ff, vocab = 4096, 12288, 126464
    expected = {f"model.transformer.{name}.weight": (vocab, d) for name in ("wte", "ff_out")}
    expected["model.transformer.ln_f.weight"] = (d,)
    block = {"attn_norm": (d,), "ff_norm": (d,), "q_proj": (d, d), "k_proj": (d, d), "v_proj": (d, d),
             "attn_out": (d, d), "ff_proj": (ff, d), "up_proj": (ff, d), "ff_out": (d, ff)}  # fmt: skip
    for n in range(32):
        expected |= {f"model.transformer.blocks.{n}.{name}.weight": shape for name, shape in block.items()}
    assert len(expected) == 291
    assert shapes == expected


def test_full_illada_names_and_shapes_are_those_of_its_code():
    shapes = shapes_of(ILLaDAForCausalLM, ILLaDAConfig())
    d, kv, ff, vocab = 4096, 1024, 14336, 155136
    expected = {"model.embed_tokens.weight": (vocab, d), "lm_head.weight": (vocab, d), "model.norm.weight": (d,)}
    layer = {
        "self_attn.q_proj": (d, d),
        "self_attn.k_proj": (kv, d),
        "self_attn.v_proj": (kv, d),
        "self_attn.o_proj": (d, d),
        "mlp.gate_proj": (ff, d),
        "mlp.up_proj": (ff, d),
        "mlp.down_proj": (d, ff),
        "input_layernorm": (d,),
        "post_attention_layernorm": (d,),
    }
    for n in range(32):
        expected |= {f"model.layers.{n}.{name}.weight": shape for name, shape in layer.items()}
    assert len(expected) == 291
    assert shapes == expected


def test_full_7b_names_and_shapes_are_the_published_ones():
    shapes = shapes_of(DreamModel, DreamConfig(num_key_value_heads=4))
    d, kv, ff, vocab = 3584, 512, 18944, 152064
    expected = {"model.embed_tokens.weight": (vocab, d), "lm_head.weight": (vocab, d), "model.norm.weight": (d,)}
    layer = {"self_attn.q_proj.weight": (d, d), "self_attn.q_proj.bias": (d,), "self_attn.k_proj.weight": (kv, d),
             "self_attn.k_proj.bias": (kv,), "self_attn.v_proj.weight": (kv, d), "self_attn.v_proj.bias": (kv,),
             "self_attn.o_proj.weight": (d, d), "mlp.gate_proj.weight": (ff, d), "mlp.up_proj.weight": (ff, d),
             "mlp.down_proj.weight": (d, ff), "input_layernorm.weight": (d,),
             "post_attention_layernorm.weight": (d,)}  # fmt: skip
    for n in range(28):
        expected |= {f"model.layers.{n}.{name}": shape for name, shape in layer.items()}
    assert len(expected) == 339
    assert shapes == expected


def test_full_moe_names_and_shapes_are_the_published_ones():
    shapes = shapes_of(LLaDAMoEModelLM, LLaDAMoEConfig())
    d, ff, vocab, head = 2048, 1024, 157184, 128
    expected = {"model.embed_tokens.weight": (vocab, d), "lm_head.weight": (vocab, d), "model.norm.weight": (d,)}
    layer = {f"self_attn.{name}_proj.weight": (d, d) for name in "qkvo"}
    layer |= {
        "self_attn.q_norm.weight": (head,),
        "self_attn.k_norm.weight": (head,),
        "mlp.gate.weight": (64, d),
        "input_layernorm.weight": (d,),
        "post_attention_layernorm.weight": (d,),
    }
    for expert in range(64):
        layer |= {f"mlp.experts.{expert}.{name}_proj.weight": (ff, d) for name in ("gate", "up")}
        layer[f"mlp.experts.{expert}.down_proj.weight"] = (d, ff)
    for n in range(16):
        expected |= {f"model.layers.{n}.{name}": shape for name, shape in layer.items()}
    assert shapes == expected
    assert sum(map(math.prod, shapes.values())) == 7_356_880_896


@pytest.mark.parametrize("make", [llada_net, illada_net, dream_net, llada_moe_net])
def test_auto_classes_know_them(make, tmp_path):
    net = make()
    net.save_pretrained(tmp_path, max_shard_size="10KB")
    assert (tmp_path / "model.safetensors.index.json").exists()
    for auto in (AutoModel, AutoModelForCausalLM):
        again = auto.from_pretrained(tmp_path)
        assert type(again) is type(net)
        for name, tensor in net.state_dict().items():
            assert torch.equal(tensor, again.state_dict()[name]), name


@pytest.mark.parametrize("field, value", [
    ("alibi", True), ("clip_qkv", 8.0), ("input_emb_norm", True), ("scale_logits", True), ("block_type", "sequential"),
    ("activation_type", "gelu"), ("layer_norm_type", "default"), ("rope", False), ("attention_layer_norm", True),
])  # fmt: skip
def test_llada_refuses_other_arithmetic_by_name(field, value):
    with pytest.raises(UserError, match=field):
        llada_net(**{field: value})


def test_dream_refuses_other_arithmetic_by_name():
    with pytest.raises(UserError, match="use_sliding_window"):
        dream_net(use_sliding_window=True)
    with pytest.raises(UserError, match="dynamic"):
        dream_net(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})


def test_llada_moe_refuses_other_arithmetic_by_name():
    for field, value in (("shared_expert_intermediate_size", 16), ("clip_qkv", 8.0), ("qk_layernorm", False)):
        with pytest.raises(UserError, match=field):
            llada_moe_net(**{field: value})
    with pytest.raises(UserError, match="without experts"):
        llada_moe_net(moe_layer_freq=[0, 1])
    with pytest.raises(UserError, match="9 experts a token of 6"):
        llada_moe_net(num_experts_per_tok=9)


def test_a_saved_dream_configuration_keeps_rope_theta_for_the_original_code(tmp_path):
    dream_net(rope_theta=1234.0).config.save_pretrained(tmp_path)
    again = DreamConfig.from_pretrained(tmp_path)
    assert '"rope_theta": 1234.0' in (tmp_path / "config.json").read_text()
    assert again.rope_parameters["rope_theta"] == 1234.0
