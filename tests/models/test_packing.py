"""One product for query, key and value: the same hidden states, and a model that is otherwise as it was."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

import maskwise as mw
from helpers.tiny import tiny_dream, tiny_llada
from maskwise.models.batch import Batch
from maskwise.models.packing import columnwise_products, packed_products

MAKERS = [tiny_llada, lambda: tiny_llada(include_qkv_bias=True), tiny_dream, lambda: tiny_dream(qkv_bias=False)]
RAGGED = [[5, 9, 63, 3], [7, 63], [1, 2, 3, 63, 63, 8]]


def owners(model):
    return [module for module in model.core.modules() if hasattr(module, "packed")]


def spread_biases(model):
    """Random ones: those of a fresh model are zero, and one that got lost would not be missed."""
    for name, weight in model.core.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(weight)


@pytest.mark.parametrize("make", MAKERS)
@torch.no_grad()
def test_hidden_states_are_the_same(make):
    model = make()
    spread_biases(model)
    batch = Batch.pack(RAGGED)
    before = model.hidden(batch)
    with packed_products(model.core):
        assert all(owner.packed is not None for owner in owners(model)) and owners(model)
        inside = model.hidden(batch)
        cached = model.hidden(batch, model.new_cache([4, 2, 6]))
    torch.testing.assert_close(inside, before, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(cached, before, rtol=1e-5, atol=1e-5)
    assert torch.equal(model.hidden(batch), before)


def test_weights_keep_names_and_values_and_move_once():
    model = tiny_dream()
    before = {name: weight.clone() for name, weight in model.core.state_dict().items()}
    with packed_products(model.core):
        first = [owner.packed[0].data_ptr() for owner in owners(model)]
    with packed_products(model.core):
        assert [owner.packed[0].data_ptr() for owner in owners(model)] == first
    after = model.core.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], before[name]) for name in before)
    attention = owners(model)[0]
    assert attention.packed is None
    assert attention.q_proj.weight.untyped_storage().data_ptr() == attention.v_proj.weight.untyped_storage().data_ptr()


@torch.no_grad()
def test_a_weight_put_in_another_ones_place_is_seen():
    model, batch = tiny_llada(), Batch.pack(RAGGED)
    with packed_products(model.core):
        before = model.hidden(batch)
    owners(model)[0].k_proj.weight.data = torch.randn_like(owners(model)[0].k_proj.weight)
    plain = model.hidden(batch)
    assert not torch.allclose(plain, before)
    with packed_products(model.core):
        torch.testing.assert_close(model.hidden(batch), plain, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_an_adapter_is_not_passed_over():
    model, batch = tiny_dream(), Batch.pack(RAGGED)
    model.net = get_peft_model(model.core, LoraConfig(r=2, target_modules=["v_proj"], init_lora_weights=False))
    plain = model.hidden(batch)
    with packed_products(model.core):
        assert all(owner.packed is None for owner in owners(model))
        assert torch.equal(model.hidden(batch), plain)


class Quantised(torch.Tensor):
    """Stands for the tensors of torchao and of FSDP2: weights that are parameters, but not plain memory."""


@torch.no_grad()
def test_weights_that_are_not_plain_memory_are_left_alone():
    model, batch = tiny_llada(), Batch.pack(RAGGED)
    plain = model.hidden(batch)
    for owner in owners(model):
        owner.k_proj.weight = torch.nn.Parameter(owner.k_proj.weight.data.as_subclass(Quantised))
    with packed_products(model.core):
        assert all(owner.packed is None for owner in owners(model))
        assert torch.equal(model.hidden(batch), plain)


@torch.no_grad()
def test_a_map_with_a_hook_keeps_its_own_product():
    model, batch, seen = tiny_dream(), Batch.pack(RAGGED), []
    owners(model)[0].v_proj.register_forward_hook(lambda module, given, out: seen.append(out))
    with packed_products(model.core):
        model.hidden(batch)
    assert len(seen) == 1


def test_packing_in_inference_mode_leaves_weights_that_can_be_trained():
    model, batch = tiny_llada(), Batch.pack(RAGGED)
    with torch.inference_mode(), packed_products(model.core):
        model.hidden(batch)
    model.hidden(batch).sum().backward()
    assert owners(model)[0].q_proj.weight.grad is not None


def test_a_packed_model_still_trains_and_goes_to_disk(tmp_path):
    model, batch = tiny_dream(), Batch.pack(RAGGED)
    with packed_products(model.core):
        pass
    model.hidden(batch).square().sum().backward()
    assert all(owner.k_proj.weight.grad.abs().sum() > 0 for owner in owners(model))
    model.core.save_pretrained(tmp_path)
    opened = mw.open(tmp_path, dtype="float32", device="cpu")
    assert torch.equal(opened.hidden(batch), model.hidden(batch))


@pytest.mark.parametrize("make", MAKERS)
def test_weights_by_column_give_the_same_hidden_states_and_are_put_back(make):
    model, batch = make(), Batch.pack(RAGGED)
    spread_biases(model)
    head = model.core.get_output_embeddings()
    maps = [one for one in model.core.modules() if type(one) is torch.nn.Linear and one is not head]
    before = {name: weight.clone() for name, weight in model.core.state_dict().items()}
    with torch.inference_mode():
        plain = model.hidden(batch)
        with pytest.raises(KeyboardInterrupt), columnwise_products(model.core):
            assert maps and all(one.weight.t().is_contiguous() and not one.weight.is_contiguous() for one in maps)
            torch.testing.assert_close(model.hidden(batch), plain, rtol=1e-5, atol=1e-5)
            raise KeyboardInterrupt
    after = model.core.state_dict()
    assert all(torch.equal(after[name], before[name]) and after[name].is_contiguous() for name in before)
    model.hidden(batch).sum().backward()  # the weights can still be trained
    assert all(one.weight.grad is not None for one in maps)


def test_generation_with_weights_by_column_is_token_for_token_the_same(monkeypatch):
    def settings(openblas):
        monkeypatch.setattr(torch.backends.mkl, "is_available", lambda: not openblas)
        return mw.generate("tiny-llada", "Once upon a time", max_new_tokens=24)[0].sequence

    assert settings(openblas=True) == settings(openblas=False)
