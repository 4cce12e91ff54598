"""One product for query, key and value, one for gate and up: the same hidden states, and a model as it was."""

import pytest
import torch
from peft import LoraConfig, get_peft_model

import maskwise as mw
from helpers.tiny import tiny_dream, tiny_llada, tiny_llada2
from maskwise.models.batch import Batch
from maskwise.models.families.packing import columnwise_products, packed_products

MAKERS = [tiny_llada, lambda: tiny_llada(include_bias=True), tiny_dream, lambda: tiny_dream(qkv_bias=False)]
RAGGED = [[5, 9, 63, 3], [7, 63], [1, 2, 3, 63, 63, 8]]


def owners(model):
    return [module for module in model.core.modules() if hasattr(module, "packed")]


def gates(model):
    return [module for module in model.core.modules() if hasattr(module, "packed_gate")]


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
        assert all(owner.packed_gate is not None for owner in gates(model)) and gates(model)
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
        gated = [owner.packed_gate[0].data_ptr() for owner in gates(model)]
    with packed_products(model.core):
        assert [owner.packed[0].data_ptr() for owner in owners(model)] == first
        assert [owner.packed_gate[0].data_ptr() for owner in gates(model)] == gated
    after = model.core.state_dict()
    assert list(after) == list(before) and all(torch.equal(after[name], before[name]) for name in before)
    attention = owners(model)[0]
    assert attention.packed is None and all(owner.packed_gate is None for owner in gates(model))
    assert attention.q_proj.weight.untyped_storage().data_ptr() == attention.v_proj.weight.untyped_storage().data_ptr()


@pytest.mark.parametrize("name", ["k_proj", "up_proj"])
@torch.no_grad()
def test_a_weight_put_in_another_ones_place_is_seen(name):
    model, batch = tiny_llada(), Batch.pack(RAGGED)
    with packed_products(model.core):
        before = model.hidden(batch)
    one = getattr(owners(model)[0], name)
    one.weight.data = torch.randn_like(one.weight)
    plain = model.hidden(batch)
    assert not torch.allclose(plain, before)
    with packed_products(model.core):
        torch.testing.assert_close(model.hidden(batch), plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["v_proj", "up_proj"])
@torch.no_grad()
def test_an_adapter_is_not_passed_over(name):
    model, batch = tiny_dream(), Batch.pack(RAGGED)
    model.net = get_peft_model(model.core, LoraConfig(r=2, target_modules=[name], init_lora_weights=False))
    plain = model.hidden(batch)
    with packed_products(model.core):
        assert all((owner.packed is None) == (name == "v_proj") for owner in owners(model))
        assert all((owner.packed_gate is None) == (name == "up_proj") for owner in gates(model))
        torch.testing.assert_close(model.hidden(batch), plain, rtol=1e-5, atol=1e-5)


class Quantised(torch.Tensor):
    """Stands for the tensors of torchao and of FSDP2: weights that are parameters, but not plain memory."""


@torch.no_grad()
def test_weights_that_are_not_plain_memory_are_left_alone():
    model, batch = tiny_llada(), Batch.pack(RAGGED)
    plain = model.hidden(batch)
    for owner in owners(model):
        for one in (owner.k_proj, owner.up_proj):
            one.weight = torch.nn.Parameter(one.weight.data.as_subclass(Quantised))
    with packed_products(model.core):
        assert all(owner.packed is None and owner.packed_gate is None for owner in owners(model))
        assert torch.equal(model.hidden(batch), plain)


@torch.no_grad()
def test_a_map_with_a_hook_keeps_its_own_product():
    model, batch, seen = tiny_dream(), Batch.pack(RAGGED), []
    for one in (owners(model)[0].v_proj, gates(model)[0].up_proj):
        one.register_forward_hook(lambda module, given, out: seen.append(out))
    with packed_products(model.core):
        model.hidden(batch)
    assert len(seen) == 2


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
    assert all(owner.up_proj.weight.grad.abs().sum() > 0 for owner in gates(model))
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


@torch.no_grad()
def test_shared_experts_are_packed_and_the_others_lie_as_they_were():
    model, batch = tiny_llada2(), Batch.pack(RAGGED)
    before = model.hidden(batch)
    with packed_products(model.core):
        packed = [name for name, one in model.core.named_modules() if getattr(one, "packed_gate", None) is not None]
        assert packed and not any("experts" in name.split(".") for name in packed)
        assert any(name.endswith("shared_experts") for name in packed)
        torch.testing.assert_close(model.hidden(batch), before, rtol=1e-5, atol=1e-5)
