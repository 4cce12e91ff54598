"""The promises of the model interface, for every family."""

from dataclasses import replace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import BertConfig, BertForMaskedLM, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutput, CausalLMOutputWithPast, MaskedLMOutput

import maskwise as mw
from helpers.tiny import (
    EVERY_FAMILY,
    dream_net,
    llada_net,
    tiny_ar,
    tiny_dream,
    tiny_fast_dllm,
    tiny_illada,
    tiny_llada,
    tiny_llada2,
    tiny_llada_moe,
    tiny_sdar,
)
from maskwise.models.batch import Batch
from maskwise.models.checkpoints.opening import as_model
from maskwise.models.forward import float_product
from maskwise.models.model import RECOMPILATIONS
from maskwise.support.errors import UserError, UserNotice


def tiny_wrapped():
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=256,
        initializer_range=0.3,
    )
    net = BertForMaskedLM(config).eval()
    return mw.wrap(net, mask_id=63, head=net.cls)


KINDS = [*EVERY_FAMILY, tiny_wrapped]


def sequences(seed=0, count=7, longest=40):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, longest, (count,), generator=generator).tolist()
    return [torch.randint(0, 64, (length,), generator=generator).tolist() for length in lengths]


def rows_of(model, length):
    return list(range(1 if model.causal else 0, length + (1 if model.shift else 0)))


def assert_close(a, b):
    """Minus infinity at the same places, and elsewhere the same up to rounding."""
    finite = torch.isfinite(b)
    assert torch.equal(torch.isfinite(a), finite), "other entries are infinite"
    torch.testing.assert_close(a[finite], b[finite], rtol=0, atol=1e-5 * max(1.0, float(b[finite].abs().max())))


@pytest.mark.parametrize("make", KINDS)
def test_a_result_does_not_depend_on_batch_order_or_padding(make):
    model, batch = make(), sequences()
    rows = [rows_of(model, len(ids)) for ids in batch]
    together = model.predict(batch, rows)
    backwards = model.predict(batch[::-1], rows[::-1])[::-1]
    for ids, asked, a, b in zip(batch, rows, together, backwards, strict=True):
        alone = model.predict([ids], [asked])[0]
        assert_close(a, alone)
        assert_close(b, alone)


@pytest.mark.parametrize("make", KINDS)
def test_rows_one_by_one_equal_rows_together_equal_dense_logits(make):
    model, ids = make(), sequences(count=1, longest=30)[0]
    rows = rows_of(model, len(ids))
    together = model.predict([ids], [rows])[0]
    dense = model.net(input_ids=torch.tensor([ids])).logits[0].detach()
    for place, row in enumerate(rows):
        expected = dense[max(row - int(model.shift), 0)].clone()
        if model.mask_id is not None:
            expected[model.mask_id] = -torch.inf
        assert_close(model.predict([ids], [[row]])[0][0], expected)
        assert_close(together[place], expected)


@pytest.mark.parametrize("make", KINDS)
def test_only_causal_models_are_blind_to_the_future(make):
    model, ids = make(), sequences(count=1, longest=30)[0]
    changed = [*ids[:-1], (ids[-1] + 1) % 60]
    before, after = (model.predict([x], [[len(ids) - 1]])[0] for x in (ids, changed))
    if model.causal:
        assert torch.equal(before, after)
    else:
        assert (before - after)[torch.isfinite(before)].abs().max() > 1e-3


@pytest.mark.parametrize("make", [make for make in KINDS if make is not tiny_ar])
def test_the_mask_never_gets_probability(make):
    model = make()
    for logits in model.predict(sequences(), [[1]] * 7):
        assert (logits.softmax(-1)[:, model.mask_id] == 0).all()
        assert torch.allclose(logits.softmax(-1).sum(-1), torch.ones(1))


def test_dreams_first_row_reads_its_own_state_and_the_row_after_the_last_exists():
    model = tiny_dream()
    first, second, beyond = model.predict([[5, 6, 7]], [[0, 1, 3]])[0]
    assert torch.equal(first, second)
    dense = model.net(input_ids=torch.tensor([[5, 6, 7]])).logits[0, 2].detach()
    dense[63] = -torch.inf
    assert_close(beyond, dense)


@pytest.mark.parametrize("make", KINDS)
def test_embeddings_do_what_their_ids_do_and_take_gradients(make):
    model, batch = make(), Batch.pack(sequences(count=3))
    embeds = model.embed(batch.ids).detach().requires_grad_()
    by_embeds = replace(batch, embeds=embeds)
    assert_close(model.hidden(by_embeds).detach(), model.hidden(batch).detach())
    index = model.flat_rows(batch, [[1], [1], [1]])
    model(by_embeds, index)[:, 5].sum().backward()
    lengths = batch.offsets.diff().tolist()
    assert torch.isfinite(embeds.grad).all()
    assert embeds.grad.norm() > 0
    if not model.causal:
        assert all(part.norm() > 0 for part in embeds.grad.split(lengths))


def test_forward_hands_rows_and_head_to_the_loss():
    model, batch = tiny_llada(), Batch.pack(sequences(count=3))
    index = model.flat_rows(batch, [[1], [0], [1]])
    rows, weight = model(batch, index, lambda rows, weight: (rows, weight))
    assert weight is model.head_weight
    assert_close(model(batch, index), model.head(rows).detach())


def test_a_fused_loss_is_refused_where_the_head_is_more_than_a_product():
    batch = Batch.pack(sequences(count=2))
    with pytest.raises(UserError, match="more than a product"):
        tiny_wrapped()(batch, torch.tensor([0]), lambda rows, weight: rows.sum())


@pytest.mark.parametrize("make", [tiny_llada, tiny_illada, tiny_dream, tiny_llada_moe])
def test_a_cache_refreshed_everywhere_equals_none_and_a_stale_one_only_there(make):
    model = make()
    canvases = [ids for ids in sequences(longest=30) if len(ids) > 8]
    batch = Batch.pack(canvases)
    plain = model.hidden(batch).detach()
    cache = model.new_cache([len(ids) for ids in canvases])
    assert_close(model.hidden(batch, cache).detach(), plain)
    # Nothing changed since: recomputing a span against the cache gives the same states.
    span = Batch.spans([ids[3:7] for ids in canvases], [3] * len(canvases))
    again = model.hidden(span, cache).detach()
    sequence = torch.arange(len(canvases)).repeat_interleave(3)
    position = torch.tensor([4, 5, 6] * len(canvases))
    assert_close(again[model.locate(span, sequence, position)], plain[model.locate(batch, sequence, position)])
    assert model.first_row(4) == (3 if model.shift else 4)
    # A changed token is seen by the span, through keys and values it wrote itself.
    changed = [[*ids[:4], (ids[4] + 1) % 60, *ids[5:]] for ids in canvases]
    partly = model.hidden(Batch.spans([ids[3:7] for ids in changed], [3] * len(changed)), cache).detach()
    assert (partly - again).abs().max() > 1e-3


@pytest.mark.parametrize("make", [tiny_llada, tiny_illada, tiny_dream, tiny_llada_moe, tiny_ar])
def test_attention_weights_are_a_distribution_over_the_rows_own_sequence(make):
    model, batch = make(), sequences(count=4)
    packed = Batch.pack(batch)
    rows = [[len(ids) - 1, 1] for ids in batch]
    layers = model.attention(packed, rows)
    assert len(layers) == 2
    for weights in layers:
        assert weights.shape == (8, 4, packed.longest)
        torch.testing.assert_close(weights.sum(-1), torch.ones(8, 4))
        for n in range(8):
            ids, row = batch[n // 2], rows[n // 2][n % 2]
            last = row - int(model.shift) if model.causal else len(ids) - 1
            assert (weights[n, :, last + 1 :] == 0).all()
            assert (weights[n, :, : last + 1] > 0).all()


@torch.no_grad()
def test_attention_weights_reproduce_the_layer():
    """Weights times values, through the output map, is what the first block adds to its input."""
    model, ids = tiny_llada(n_kv_heads=4), sequences(count=1)[0]
    block, x = model.net.model.transformer["blocks"][0], model.embed(torch.tensor(ids))
    added = []
    block.attn_out.register_forward_hook(lambda module, inputs, output: added.append(output))
    weights = model.attention(Batch.pack([ids]), [list(range(len(ids)))])[0]
    values = block.v_proj(block.attn_norm(x)).unflatten(-1, (4, 8))
    mixed = torch.einsum("nhl,lhd->nhd", weights, values).flatten(1)
    torch.testing.assert_close(block.attn_out(mixed), added[0], atol=1e-4, rtol=1e-4)


def test_gradient_checkpointing_changes_nothing():
    batch = Batch.pack(sequences(count=3))
    grads = []
    for checkpointing in (False, True):
        model = tiny_llada()
        model.train()
        if checkpointing:
            model.net.gradient_checkpointing_enable()
        model(batch, torch.tensor([0, 1])).logsumexp(-1).sum().backward()
        grads.append(model.net.model.transformer["blocks"][0].q_proj.weight.grad)
    torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.slow
@pytest.mark.parametrize("make", [tiny_dream, tiny_llada, tiny_sdar, tiny_fast_dllm])
def test_compiled_layers_change_nothing(make):
    model, batch = make(), sequences(count=3)
    packed = Batch.pack(batch)
    plain, seen = model.predict(batch, [[1]] * 3), model.attention(packed, [[1]] * 3)
    assert model.family.layers_compile
    model.compile_layers()
    compiled = [module for module in model.core.modules() if module._compiled_call_impl is not None]
    assert len(compiled) == model.core.config.num_hidden_layers
    assert torch._dynamo.config.recompile_limit >= RECOMPILATIONS
    for a, b in zip(model.predict(batch, [[1]] * 3), plain, strict=True):
        assert_close(a, b)
    for a, b in zip(model.attention(packed, [[1]] * 3), seen, strict=True):
        assert_close(a, b)


@pytest.mark.slow  # a quarter of a minute
def test_layers_with_experts_are_not_compiled_anew_for_other_choices_of_experts():
    from torch._dynamo.utils import counters

    model = tiny_llada2()
    batches = [Batch.pack(sequences(count=count, seed=count)) for count in (3, 4, 5, 6)]
    rows = [model.flat_rows(batch, [[1]] * (len(batch.offsets) - 1)) for batch in batches]
    plain = [model(*given).detach() for given in zip(batches, rows, strict=True)]
    for layer in model.core.model.layers:
        layer.compile(dynamic=True, backend="eager")  # as compile_layers does, without a minute of compiling
    for learn in (False, True):  # weights that learn have a product for each expert
        for number, given in enumerate(zip(batches, rows, strict=True)):
            if number == 2:
                counters.clear()
            with torch.set_grad_enabled(learn):
                assert_close(model(*given).detach(), plain[number])
        assert all(layer.mlp.grouped is None for layer in model.core.model.layers[1:]) == learn
        assert counters["frames"]["total"] == 0


@pytest.mark.parametrize("make", KINDS)
def test_adapter_targets_never_touch_the_head_and_take_gradients(make):
    from peft import LoraConfig, get_peft_model

    model = make()
    model.net = get_peft_model(model.core, LoraConfig(r=2, target_modules=model.lora_targets))
    touched = {name for name, module in model.core.named_modules() if hasattr(module, "lora_A")}
    assert touched
    assert all(any(part.isdigit() for part in name.split(".")) for name in touched)
    assert not hasattr(model.core.get_output_embeddings(), "lora_A")
    batch = Batch.pack(sequences(count=2))
    model(batch, model.flat_rows(batch, [[1], [1]])).logsumexp(-1).sum().backward()
    grads = [p.grad for p in model.net.parameters() if p.requires_grad]
    assert grads and all(g is not None for g in grads)


def test_half_precision_logits_are_accumulated_in_float32():
    generator = torch.Generator().manual_seed(0)
    rows, weight = (torch.randn(n, 64, generator=generator).bfloat16() for n in (5, 40))
    logits = float_product(rows, weight)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits.double(), rows.double() @ weight.double().T, atol=1e-4, rtol=1e-5)
    assert not torch.equal(logits, (rows @ weight.T).float())  # which is what a cast afterwards would give


@pytest.mark.parametrize("make", [llada_net, dream_net])
def test_bfloat16_models_run_and_stay_near_float32(make):
    wide = mw.wrap(make(), mask_id=63)
    narrow = mw.wrap(make().bfloat16(), mask_id=63)
    ids = sequences(count=1)[0]
    a, b = wide.predict([ids], [[1]])[0], narrow.predict([ids], [[1]])[0]
    assert b.dtype == torch.float32
    assert (a - b)[torch.isfinite(a)].abs().max() < 0.1 * a[torch.isfinite(a)].abs().max()


def test_wrap_takes_a_bidirectional_model_and_refuses_a_wrong_head():
    model = tiny_wrapped()
    assert (model.kind, model.mask_id, model.shift, model.causal, model.window) == ("wrapped", 63, False, False, 256)
    with pytest.raises(UserError, match="pass head="):
        mw.wrap(model.net, mask_id=63, head=lambda rows: rows @ model.net.get_output_embeddings().weight.t())
    with pytest.raises(UserError, match="mask_id"):
        mw.wrap(model.net, head=model.net.cls)


class HeadInBody(nn.Module):
    """A body in the manner of LLaDA's own file: embeddings, a layer and the head, and logits as its output."""

    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)
        self.ff_out = nn.Linear(32, config.vocab_size, bias=False)

    def forward(self, input_ids, attention_mask=None, output_hidden_states=False):
        x = self.layer(
            self.wte(input_ids), src_key_padding_mask=None if attention_mask is None else attention_mask == 0
        )
        return CausalLMOutputWithPast(logits=self.ff_out(x), hidden_states=(x / 2, x) if output_hidden_states else None)


class Changed(PreTrainedModel):
    """A network with such a body."""

    config_class, base_model_prefix = PreTrainedConfig, "model"

    def __init__(self, config):
        super().__init__(config)
        self.model = HeadInBody(config)

    def get_input_embeddings(self):
        return self.model.wte

    def get_output_embeddings(self):
        return self.model.ff_out

    def forward(self, input_ids, attention_mask=None):
        return MaskedLMOutput(logits=self.model(input_ids, attention_mask).logits)


def test_wrap_takes_a_body_that_holds_the_head_and_returns_logits():
    torch.manual_seed(0)
    net = Changed(PreTrainedConfig(vocab_size=64)).eval()
    model, texts = mw.wrap(net, mask_id=63), sequences(count=3)
    for ids, found in zip(texts, model.predict(texts, [range(len(ids)) for ids in texts]), strict=True):
        assert_close(found[:, :63], net(torch.tensor([ids])).logits[0, :, :63].detach())


def test_a_wrapped_network_with_an_adapter_is_asked_for_no_more_than_without():
    """PEFT's own base_model holds the head too; this body takes no output_hidden_states."""

    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.wte, self.fc = nn.Embedding(64, 32), nn.Linear(32, 32)

        def forward(self, input_ids, attention_mask=None):
            return BaseModelOutput(self.fc(self.wte(input_ids)))

    class Outside(Changed):
        def __init__(self, config):
            super().__init__(config)
            self.model, self.lm_head = Body(), nn.Linear(32, 64, bias=False)

        def get_output_embeddings(self):
            return self.lm_head

        def forward(self, input_ids, attention_mask=None):
            return MaskedLMOutput(logits=self.lm_head(self.model(input_ids).last_hidden_state))

    torch.manual_seed(0)
    net = Outside(PreTrainedConfig(vocab_size=64)).eval()
    plain = mw.wrap(net, mask_id=63).predict([[1, 2, 3]], [[1]])[0]
    adapted = mw.wrap(get_peft_model(net, LoraConfig(r=2, target_modules=["fc"])), mask_id=63)
    assert_close(adapted.predict([[1, 2, 3]], [[1]])[0], plain)  # untrained: B is 0


def test_wrap_names_what_a_network_lacks_or_what_it_raises():
    class Mute(Changed):
        def get_output_embeddings(self):
            return nn.Linear(32, 64, bias=False)

    class Strict(Changed):
        def forward(self, input_ids, attention_mask=None):
            raise RuntimeError("Expected attn_mask dtype to be bool")

    with pytest.raises(UserError, match="Mute computes its logits without its output embeddings"):
        mw.wrap(Mute(PreTrainedConfig(vocab_size=64)), mask_id=63)
    with pytest.raises(UserError, match="Strict does not run on ids and a mask of 1 and 0: Expected attn_mask"):
        mw.wrap(Strict(PreTrainedConfig(vocab_size=64)), mask_id=63)


def test_causal_opening_compares_the_interface_with_the_classs_own_forward():
    from transformers import GPT2Config, GPT2LMHeadModel, MistralConfig, MistralForCausalLM

    torch.manual_seed(0)
    mistral = MistralForCausalLM(
        MistralConfig(
            vocab_size=64,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            intermediate_size=48,
            sliding_window=5,
        )
    ).eval()
    model, batch = as_model(mistral, None, "m"), sequences(count=4)
    for ids, ours in zip(batch, model.predict(batch, [[len(ids)] for ids in batch]), strict=True):
        assert_close(ours[0], mistral(torch.tensor([ids])).logits[0, -1].detach())
    with torch.no_grad():
        gpt2 = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64)).eval()
        model = as_model(gpt2, None, "g")
        assert_close(model.predict([batch[0]], [[1]])[0][0], gpt2(torch.tensor([batch[0]])).logits[0, 0])


def test_a_causal_model_whose_logits_are_something_else_is_refused():
    from transformers import CohereConfig, CohereForCausalLM

    torch.manual_seed(0)
    config = CohereConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=48,
        logit_scale=0.5,
        pad_token_id=0,
    )
    with pytest.raises(UserError, match="CohereForCausalLM does not fit the model interface"):
        as_model(CohereForCausalLM(config).eval(), None, "c")


BAD = [
    ([[]], [[0]], "sequence 0 is empty"),
    ([[1, 64]], [[0]], "token id 64, outside 0..63"),
    ([[-1, 2]], [[0]], "token id -1"),
    ([[1] * 257], [[0]], "257 tokens but the context length"),
    ([[1, 2, 3]], [[3]], "row 3 is outside 0..2"),
    ([[1, 2, 3]], [[-1]], "row -1 is outside"),
    ([[1, 2], [3]], [[0]], "2 sequences but 1 lists"),
]


@pytest.mark.parametrize("given, rows, message", BAD, ids=[message for *_, message in BAD])
def test_bad_questions_get_one_line(given, rows, message):
    with pytest.raises(UserError, match=message) as caught:
        tiny_llada().predict(given, rows)
    assert "\n" not in str(caught.value)


def test_row_zero_of_a_causal_model_is_an_error():
    with pytest.raises(UserError, match="row 0 of a causal model"):
        tiny_ar().predict([[1, 2]], [[0]])


def test_published_dream_warns_beyond_the_length_it_was_trained_on():
    model = tiny_dream(window=131072)
    with pytest.warns(UserNotice, match="trained on 2048"):
        model.predict([[1] * 2049], [[1]])
