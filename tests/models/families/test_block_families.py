"""Block diffusion models: the classes against dense references, what a token sees, files, and decoding by blocks."""

import json
import re
import warnings
from itertools import pairwise

import pytest
import torch
from typer.testing import CliRunner

import maskwise as mw
from helpers.references import gated_mlp, rms_norm
from helpers.tiny import (
    fast_dllm_net,
    llada2_net,
    sdar_moe_net,
    sdar_net,
    tiny_fast_dllm,
    tiny_llada,
    tiny_llada2,
    tiny_sdar,
    tiny_sdar_moe,
)
from maskwise.cli import app
from maskwise.decoding.checks import is_approximate
from maskwise.decoding.generate import greedy_answers
from maskwise.decoding.likelihood import log_likelihoods
from maskwise.decoding.options import DecodingOptions
from maskwise.models import (
    LLaDA2Config,
    LLaDA2MoeModelLM,
    SDARConfig,
    SDARForCausalLM,
)
from maskwise.models.batch import Batch
from maskwise.models.checkpoints.configuration import read_config
from maskwise.models.families import SDAR
from maskwise.support.errors import UserError, UserNotice

DENSE = [sdar_net, sdar_moe_net, fast_dllm_net, llada2_net]
MODELS = [tiny_sdar, tiny_sdar_moe, tiny_fast_dllm, tiny_llada2]


# Dense references


def turned(x, theta, width):
    """x [L, D]: the first `width` numbers of each row turned by its position, pairs half of the width apart."""
    half, out = width // 2, x.clone()
    for position in range(len(x)):
        for pair in range(half):
            angle = torch.tensor(position / theta ** (2 * pair / width))
            a, b = x[position, pair], x[position, pair + half]
            out[position, pair] = a * angle.cos() - b * angle.sin()
            out[position, pair + half] = b * angle.cos() + a * angle.sin()
    return out


def dense_heads(q, k, v, theta, width, block):
    """q [L, H, D], k and v [L, G, D] -> [L, H * D]; a token sees its own block and those before."""
    length, heads, head_dim = q.shape
    out = torch.zeros_like(q)
    for head in range(heads):
        group = head * k.shape[1] // heads
        queries, keys = turned(q[:, head], theta, width), turned(k[:, group], theta, width)
        for row in range(length):
            seen = min((row // block + 1) * block, length)
            weights = (queries[row] @ keys[:seen].T / head_dim**0.5).softmax(-1)
            out[row, head] = weights @ v[:seen, group]
    return out.flatten(1)


def normalised_experts(s, name, x, config):
    """Qwen3's: the shares of the chosen experts are made to add up to one."""
    out = []
    for token in x:
        chance = (s[f"{name}.gate.weight"] @ token).softmax(-1)
        chosen = chance.argsort(descending=True)[: config.num_experts_per_tok].tolist()
        out.append(sum(chance[e] / chance[chosen].sum() * gated_mlp(s, f"{name}.experts.{e}", token) for e in chosen))
    return torch.stack(out)


def grouped_experts(s, name, x, config):
    """LLaDA2's: groups by the sum of their two best biased scores, experts by biased scores; shares have no bias."""
    size, out = config.num_experts // config.n_group, []
    for token in x:
        score = (s[f"{name}.gate.weight"] @ token).sigmoid()
        biased = score + s[f"{name}.gate.expert_bias"]
        worth = [sum(sorted(group.tolist())[-2:]) for group in biased.split(size)]
        groups = sorted(range(config.n_group), key=worth.__getitem__)[-config.topk_group :]
        allowed = [e for e in range(config.num_experts) if e // size in groups]
        chosen = sorted(allowed, key=biased.tolist().__getitem__)[-config.num_experts_per_tok :]
        output = sum(score[e] / score[chosen].sum() * gated_mlp(s, f"{name}.experts.{e}", token) for e in chosen)
        out.append(output * config.routed_scaling_factor + gated_mlp(s, f"{name}.shared_experts", token))
    return torch.stack(out)


def dense_qwen(net, ids):
    """SDAR (queries and keys normed, no biases) and Fast-dLLM v2 (biases)."""
    s, c = net.state_dict(), net.config
    x = s["model.embed_tokens.weight"][ids]
    for n in range(c.num_hidden_layers):
        b = f"model.layers.{n}"
        h = rms_norm(x, s[f"{b}.input_layernorm.weight"], c.rms_norm_eps)
        q, k, v = (
            (h @ s[f"{b}.self_attn.{one}_proj.weight"].T + s.get(f"{b}.self_attn.{one}_proj.bias", 0)).unflatten(
                -1, (-1, c.head_dim)
            )
            for one in "qkv"
        )
        if f"{b}.self_attn.q_norm.weight" in s:
            q, k = (
                rms_norm(p, s[f"{b}.self_attn.{one}_norm.weight"], c.rms_norm_eps) for one, p in (("q", q), ("k", k))
            )
        output = dense_heads(q, k, v, c.rope_parameters["rope_theta"], c.head_dim, c.attention_block)
        x = x + output @ s[f"{b}.self_attn.o_proj.weight"].T
        h = rms_norm(x, s[f"{b}.post_attention_layernorm.weight"], c.rms_norm_eps)
        experts = f"{b}.mlp.gate.weight" in s
        x = x + (normalised_experts(s, f"{b}.mlp", h, c) if experts else gated_mlp(s, f"{b}.mlp", h))
    return rms_norm(x, s["model.norm.weight"], c.rms_norm_eps) @ s["lm_head.weight"].T


def dense_llada2(net, ids):
    s, c = net.state_dict(), net.config
    x = s["model.word_embeddings.weight"][ids]
    for n in range(c.num_hidden_layers):
        b = f"model.layers.{n}"
        h = rms_norm(x, s[f"{b}.input_layernorm.weight"], c.rms_norm_eps)
        fused = (h @ s[f"{b}.attention.query_key_value.weight"].T).unflatten(-1, (-1, c.head_dim))
        q = rms_norm(fused[:, : c.num_attention_heads], s[f"{b}.attention.query_layernorm.weight"], c.rms_norm_eps)
        k, v = fused[:, c.num_attention_heads :].chunk(2, dim=1)
        k = rms_norm(k, s[f"{b}.attention.key_layernorm.weight"], c.rms_norm_eps)
        output = dense_heads(q, k, v, c.rope_parameters["rope_theta"], c.head_dim // 2, c.block_size)
        x = x + output @ s[f"{b}.attention.dense.weight"].T
        h = rms_norm(x, s[f"{b}.post_attention_layernorm.weight"], c.rms_norm_eps)
        x = x + (gated_mlp(s, f"{b}.mlp", h) if n < c.first_k_dense_replace else grouped_experts(s, f"{b}.mlp", h, c))
    return rms_norm(x, s["model.norm.weight"], c.rms_norm_eps) @ s["lm_head.weight"].T


@pytest.mark.parametrize("make", DENSE)
@torch.no_grad()
def test_the_class_equals_the_dense_reference(make):
    net = make(seed=3)
    for name, parameter in net.named_parameters():  # norms start at one, biases at zero
        if "norm" in name or name.endswith("bias"):
            parameter.uniform_(0.5, 2, generator=torch.Generator().manual_seed(2))
    ids = torch.randint(0, 64, (19,), generator=torch.Generator().manual_seed(1))
    dense = dense_llada2 if make is llada2_net else dense_qwen
    torch.testing.assert_close(net(ids[None]).logits[0], dense(net, ids), atol=2e-4, rtol=1e-4)


# What a token sees


@pytest.mark.parametrize("make", MODELS)
def test_a_token_sees_its_block_and_not_the_next(make):
    model = make()
    block, shift = model.block, int(model.shift)
    ids = torch.randint(0, 60, (3 * block,), generator=torch.Generator().manual_seed(0)).tolist()
    row = 2 * block - 1 + shift  # read from the last hidden state of the second block
    before = model.predict([ids], [[row]])[0]
    for place, seen in ((0, True), (2 * block - 2, True), (2 * block, False), (3 * block - 1, False)):
        changed = [*ids[:place], (ids[place] + 1) % 60, *ids[place + 1 :]]
        after = model.predict([changed], [[row]])[0]
        assert torch.equal(before, after) != seen
    assert not torch.equal(before, model.predict([ids[: 2 * block - 1]], [[row - 1]])[0])


@pytest.mark.parametrize("make", MODELS)
def test_kept_keys_of_earlier_blocks_are_exact(make):
    """Unlike in a bidirectional model: a span from a block's start on is what the whole pass gives."""
    model = make()
    block = model.block
    ids = torch.randint(0, 60, (3 * block,), generator=torch.Generator().manual_seed(0)).tolist()
    changed = [*ids[:block], *[(token + 1) % 60 for token in ids[block:]]]
    cache = model.new_cache([len(ids)])
    model.hidden(Batch.pack([ids]), cache)
    span = model.hidden(Batch.spans([changed[block:]], [block]), cache)
    torch.testing.assert_close(span, model.hidden(Batch.pack([changed]))[block:], atol=1e-5, rtol=1e-4)
    assert model.first_computed(block + 2) == block and model.first_computed(block) == block - int(model.shift)


def test_attention_is_read_within_reach():
    model, ids = tiny_sdar(), list(range(1, 11))
    for weights in model.attention(Batch.pack([ids, ids[:5]]), [[5], [4]]):
        assert (weights[0, :, 8:] == 0).all() and (weights[0, :, :8] > 0).all()
        assert (weights[1, :, 5:] == 0).all() and (weights[1, :, :5] > 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, 4))


# Files


@pytest.mark.parametrize("make", DENSE)
def test_it_opens_from_its_files_and_is_the_same_again(make, tmp_path):
    net = make()
    net.save_pretrained(tmp_path)
    settings = json.loads((tmp_path / "config.json").read_text())
    assert settings["architectures"] == [type(net).__name__]
    model = mw.open(tmp_path, device="cpu")
    assert type(model.core) is type(net) and model.block == net.config.attention_block
    ids = torch.randint(0, 60, (1, 21))
    with torch.no_grad():
        assert torch.equal(model.core(ids).logits, net(ids).logits)


def test_published_configurations_are_read_with_their_blocks(tmp_path):
    published = {"architectures": ["LLaDA2MoeModelLM"], "model_type": "llada2_moe", "partial_rotary_factor": 0.5,
                 "rope_theta": 600000, "rope_scaling": None, "num_hidden_layers": 20, "score_function": "sigmoid",
                 "use_qk_norm": True, "sliding_window": 4096, "use_sliding_window": False}  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(published))
    config = LLaDA2Config.from_pretrained(tmp_path)
    assert config.attention_block == 32 and config.rope_parameters["rope_theta"] == 600000
    assert len(config.inverse_frequencies()[0]) == 32
    assert SDARConfig().attention_block == 4 and SDARConfig(block_size=16).attention_block == 16


@pytest.mark.slow  # builds networks of the published shapes
def test_full_names_and_shapes_are_the_published_ones():
    with torch.device("meta"):
        mini = {name: tuple(tensor.shape) for name, tensor in LLaDA2MoeModelLM(LLaDA2Config()).state_dict().items()}
        sdar = {name: tuple(tensor.shape) for name, tensor in SDARForCausalLM(SDARConfig()).state_dict().items()}
    d, inner = 2048, 512
    expected = {"model.word_embeddings.weight": (157184, d), "lm_head.weight": (157184, d), "model.norm.weight": (d,)}
    for n in range(20):
        layer = {
            "attention.query_key_value.weight": (3072, d),
            "attention.dense.weight": (d, d),
            "attention.query_layernorm.weight": (128,),
            "attention.key_layernorm.weight": (128,),
            "input_layernorm.weight": (d,),
            "post_attention_layernorm.weight": (d,),
        }
        mlps = (
            {"mlp": 5120}
            if n == 0
            else {"mlp.shared_experts": inner, **{f"mlp.experts.{e}": inner for e in range(256)}}
        )
        for name, width in mlps.items():
            layer |= {f"{name}.{one}_proj.weight": (width, d) for one in ("gate", "up")}
            layer[f"{name}.down_proj.weight"] = (d, width)
        if n:
            layer |= {"mlp.gate.weight": (256, d), "mlp.gate.expert_bias": (256,)}
        expected |= {f"model.layers.{n}.{name}": shape for name, shape in layer.items()}
    assert mini == expected
    assert sdar["model.layers.35.self_attn.k_norm.weight"] == (128,) and len(sdar) == 3 + 36 * 11


@pytest.mark.parametrize("make, field, value", [
    (llada2_net, "score_function", "softmax"), (llada2_net, "use_qk_norm", False), (sdar_net, "attention_bias", True),
    (sdar_moe_net, "norm_topk_prob", False), (llada2_net, "num_experts_per_tok", 5), (sdar_moe_net, "num_experts", 1),
    (fast_dllm_net, "use_sliding_window", True),
])  # fmt: skip
def test_other_arithmetic_is_refused_in_one_line(make, field, value):
    with pytest.raises(UserError, match="experts a token" if field.startswith("num") else field):
        make(**{field: value})


@pytest.mark.parametrize(
    "make, family",
    [
        (fast_dllm_net, "Fast-dLLM v2"),
        (llada2_net, "LLaDA2"),
        (sdar_net, "SDAR"),
    ],
)
def test_a_refusal_names_the_family_that_was_opened(make, family):
    with pytest.raises(UserError, match=f"^{family} configuration hidden_act='gelu' is not supported"):
        make(hidden_act="gelu")


@pytest.mark.parametrize("factor", [0.1, 0.4, 1.5])  # of 8 numbers a head: none, three, twelve
def test_a_part_of_a_head_that_cannot_be_turned_is_refused(factor):
    with pytest.raises(UserError, match="numbers a head, which must be even"):
        llada2_net(partial_rotary_factor=factor)


def test_a_mask_outside_the_vocabulary_is_found_from_the_configuration_alone(tmp_path):
    sdar_net(mask_token_id=64).config.save_pretrained(tmp_path)
    with pytest.raises(UserError, match=r"no mask token \(64 is outside 0..63\)"):
        read_config(tmp_path, SDAR)


# Decoding


def decoded_block_by_block(model, prompt, new):
    """As the original code decodes: the canvas up to the end of the active block, the surest mask first."""
    canvas = [*prompt, *[model.mask_id] * new]
    while model.mask_id in canvas:
        first = canvas.index(model.mask_id)
        end = min((first // model.block + 1) * model.block, len(canvas))
        masked = [place for place in range(first, end) if canvas[place] == model.mask_id]
        chance = model.predict([canvas[:end]], [masked])[0].softmax(-1)
        place = int(chance.max(-1).values.argmax())
        canvas[masked[place]] = int(chance[place].argmax())
    return canvas[len(prompt) :]


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
@pytest.mark.parametrize("make", MODELS)
def test_generation_is_the_original_code_s_with_and_without_a_cache(make, cache):
    """Prompts of unequal length, none of which ends where a block does; a cache changes no token."""
    model = make()
    draws = torch.Generator().manual_seed(4)
    prompts = [torch.randint(0, 60, (n,), generator=draws).tolist() for n in (5, 11, 3 * model.block - 1)]
    found = mw.generate(model, prompts, max_new_tokens=13, cache=cache)
    for prompt, generation in zip(prompts, found, strict=True):
        assert generation.ids == decoded_block_by_block(model, prompt, 13)


def test_a_cached_pass_computes_no_block_before_the_last_one_anew():
    model, prompt, sizes = tiny_sdar(), [7] * 22, []
    hidden = model.hidden
    model.hidden = lambda batch, cache=None: (sizes.append(batch.tokens), hidden(batch, cache))[1]
    mw.generate(model, [prompt], max_new_tokens=10, cache="prefix")
    # 22 tokens end two into a block: it, and then two of four each; a block's first pass takes the one before it too
    assert sizes == [24, 4, 8, 4, 4, 4, 8, 4, 4, 4]


def test_decoding_options_that_a_block_model_cannot_take_get_one_line():
    model = tiny_llada2()
    for options, message in (
        ({"canvas": "fixed"}, "no masks after its block"),
        ({"block": 6}, "does not divide"),
        ({"block": 0}, "holds no token"),
        ({"canvas": "window", "block": 8, "window": 4}, "no masks after its block"),
    ):
        with pytest.raises(UserError, match=message):
            mw.generate(model, [[1, 2, 3]], max_new_tokens=12, **options)
    assert len(mw.generate(model, [[1, 2, 3]], max_new_tokens=12, block=4, steps=3)[0].ids) == 12


def test_sequences_that_end_early_leave_the_others_their_last_block():
    """The longer prompt has a block more, and is done before it."""
    model = tiny_sdar()
    found = mw.generate(model, [[7] * 4, [7] * 5], max_new_tokens=8, early_stop=True, end_ids=tuple(range(60)))
    assert [len(one.ids) for one in found] == [8, 8]


@pytest.mark.parametrize("cache", ["none", "prefix", "dual"])
def test_the_growing_canvas_shows_nothing_of_the_models_block_after_the_active_one(cache):
    model, prompt = tiny_llada2(), [7, 8, 9]
    canvas = [*prompt, *[model.mask_id] * 12]
    for first in range(2, len(canvas), 2):  # blocks of 2 on the model's grid of 8
        end = min(first + 2, len(canvas))
        while masked := [place for place in range(first, end) if canvas[place] == model.mask_id]:
            chance = model.predict([canvas[:end]], [masked])[0].softmax(-1)
            surest = int(chance.max(-1).values.argmax())
            canvas[masked[surest]] = int(chance[surest].argmax())
    (grown,) = mw.generate(model, [prompt], 12, canvas="growing", block=2, cache=cache)
    (shown,) = mw.generate(model, [prompt], 12, block=2)
    assert grown.sequence == canvas != shown.sequence


@pytest.mark.parametrize("steps", [3, 6])
def test_a_sequence_takes_the_same_steps_next_to_one_with_more_blocks(steps):
    model, prompts = tiny_llada2(), [[7] * 8, [7] * 9]  # two blocks of 8, and three
    together = mw.generate(model, prompts, max_new_tokens=16, steps=steps)
    alone = [mw.generate(model, [prompt], max_new_tokens=16, steps=steps)[0] for prompt in prompts]
    assert [(one.ids, one.forwards) for one in together] == [(one.ids, one.forwards) for one in alone]


@pytest.mark.parametrize("make", [tiny_sdar, tiny_llada2])  # blocks of 4 and of 8
def test_as_many_steps_as_asked_for_are_taken_wherever_in_a_block_the_prompt_ends(make):
    model, prompts = make(), [[7] * length for length in range(3, 11)]
    for steps in (6, 7, 11, 16):
        assert [one.forwards for one in mw.generate(model, prompts, 16, steps=steps)] == [steps] * len(prompts)
    assert mw.generate(model, [[7] * 2], 16, steps=1)[0].forwards == len(range(0, 18, model.block))  # one a block
    with pytest.raises(UserError, match="17 steps for 16 masks"):
        mw.generate(model, prompts, 16, steps=17)


@pytest.mark.parametrize(
    "given, output",
    [
        (["--block", "3"], r"block 3 does not divide the model's blocks of 4 tokens \(block_size of its config.json\)"),
        (["--canvas", "fixed"], "sees no masks after its block of 4 tokens: leave canvas fixed out"),
    ],
)
def test_the_command_refuses_what_the_configuration_tells_before_it_looks_for_weights(given, output, tmp_path):
    sdar_net().config.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"architectures": ["SDARForCausalLM"]}))
    done = CliRunner().invoke(app, ["generate", str(tmp_path), "hello", "-n", "12", *given])
    assert done.exit_code == 2 and re.search(output, done.stderr)
    assert "model.safetensors" in CliRunner().invoke(app, ["generate", str(tmp_path), "hello", "-n", "12"]).stderr


def test_a_cache_is_called_approximate_where_it_can_change_a_token():
    model = tiny_llada2()  # blocks of 8
    for cache, block in (("prefix", None), ("prefix", 4), ("dual", None), ("dual", 8)):
        assert not is_approximate(model, DecodingOptions(16, cache=cache, block=block))
    assert is_approximate(model, DecodingOptions(16, cache="dual", block=4))
    assert not is_approximate(model, DecodingOptions(16, cache="dual", block=4, canvas="growing"))
    with pytest.raises(UserError, match="this cache is exact for a block diffusion model: leave divergence out"):
        mw.generate(model, [[5]], 16, cache="prefix", divergence=True)
    assert is_approximate(tiny_llada(), DecodingOptions(16, cache="prefix", block=4))


def test_greedy_answers_are_read_before_the_masks_after_them():
    model = tiny_sdar()
    canvas = [7, 8, 9, 10, *[model.mask_id] * 4]
    while masked := [place for place in (4, 5) if canvas[place] == model.mask_id]:
        chance = model.predict([canvas], [masked])[0].softmax(-1)
        surest = int(chance.max(-1).values.argmax())
        canvas[masked[surest]] = int(chance[surest].argmax())
    assert greedy_answers(model, [[7, 8, 9, 10]], 2, 8) == [canvas[4:6]]


# Likelihood, and what is not for them


@pytest.mark.parametrize("make", MODELS)
def test_a_likelihood_is_the_sum_over_the_blocks(make):
    """Of the chain rule, by hand: every token from its own block and those before, the rest of its block masked."""
    model = make()
    draws = torch.Generator().manual_seed(5)
    prompt, answer = (torch.randint(0, 60, (n,), generator=draws).tolist() for n in (6, 15))
    by_hand, output = 0.0, [*prompt, *answer]
    for place in range(len(prompt), len(output)):
        end = min((place // model.block + 1) * model.block, len(output))
        row = model.predict([[*output[:place], *[model.mask_id] * (end - place)]], [[place]])[0][0]
        by_hand += float(row.log_softmax(-1)[output[place]])
    found = log_likelihoods(model, [(prompt, answer), (prompt, answer[:1])], "chain")
    assert found[0].log_likelihood == pytest.approx(by_hand, abs=1e-4) and found[0].tokens == 15
    assert found[1].greedy is not None and found[1].forwards == 1


@pytest.mark.parametrize("make", MODELS)
def test_a_likelihood_says_how_many_of_the_masks_after_the_answer_are_visible(make):
    """By trial: those that change it."""
    model = make()
    pair, most = ([5, 9, 3, 7, 2], [11, 4]), model.block + 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserNotice)
        found = [log_likelihoods(model, [pair], "chain", masks=masks)[0] for masks in range(most + 1)]
    changed = [abs(one.log_likelihood - before.log_likelihood) > 1e-5 for before, one in pairwise(found)]
    visible = changed.count(True)
    assert changed == [True] * visible + [False] * (most - visible) and 0 < visible < most
    assert [one.visible for one in found] == [min(one.masks, visible) for one in found]
    said = f"visible masks after an answer: {visible} of {most}; a token sees none after its block of {model.block}"
    with pytest.warns(UserNotice, match=said):
        log_likelihoods(model, [pair], "chain", masks=most)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserNotice)
        log_likelihoods(model, [pair], "chain", masks=visible)  # all are seen, and nothing is said
    with pytest.warns(UserNotice, match=f"visible masks after an answer: {visible - 1} to {visible} of"):
        log_likelihoods(model, [pair, ([1, *pair[0]], pair[1])], "chain", masks=visible)


def test_the_bound_of_a_block_model_is_exact_in_small_blocks():
    model = tiny_sdar()
    exact, sampled = (
        log_likelihoods(model, [([1, 2, 3], [4, 5, 6, 7, 8, 9])], method, 4000)[0] for method in ("auto", "monte-carlo")
    )
    assert exact.method == "exact" and exact.forwards == 1 + 15 + 1  # one, four and one token in three blocks
    assert sampled.log_likelihood == pytest.approx(exact.log_likelihood, abs=0.3)


def test_what_is_written_for_models_that_see_every_mask_says_so():
    model = tiny_llada2()
    with pytest.raises(UserError, match="LLaDA-MoE and Dream models only"):
        model.hidden_of_groups(Batch.pack([[1, 2, 3]]), [])
