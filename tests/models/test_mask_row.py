"""The mask's embedding row as part of a plain PEFT adapter: opened here and by PEFT itself, trained, exported."""

import json

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

import maskwise as mw
from helpers.tiny import dream_net, llada_net
from maskwise.models.batch import Batch
from maskwise.support.errors import UserError
from maskwise.training.training_settings import TrainSettings
from maskwise.training.weights import load_trained_weights, make_trainable, save_trained_weights, trained_weights

MASK = 63
KINDS = {
    "dream, tied": (dream_net, {"tie_word_embeddings": True}),
    "dream": (dream_net, {}),
    "llada, tied": (llada_net, {"weight_tying": True}),
    "llada": (llada_net, {}),
}
SETTINGS = TrainSettings(lora_rank=2, lora_alpha=4)


@pytest.fixture(params=KINDS)
def adapted(request, tmp_path):
    """A checkpoint, its model with an adapter that is not at its start, and the adapter's folder."""
    make, more = KINDS[request.param]
    make(**more).save_pretrained(tmp_path / "base")
    model = mw.open(tmp_path / "base", device="cpu")
    make_trainable(model, SETTINGS, mask_row=True)
    draws = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.net.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=draws), alpha=0.3)
    save_trained_weights(model, tmp_path / "adapter", trained_weights(model), None)
    return tmp_path, model.eval()


def logits(model):
    return model.predict([[1, 2, MASK, 4, MASK, MASK]], [[2, 4, 5]])[0]


def test_opening_gives_the_trained_model_and_the_row_matters(adapted):
    folder, model = adapted
    opened = mw.open(folder / "base", device="cpu", adapter=folder / "adapter")
    assert torch.equal(logits(opened), logits(model))
    stored = load_file(folder / "adapter" / "adapter_model.safetensors")
    (row,) = [name for name in stored if "trainable_tokens" in name]
    assert stored[row].shape == (1, 32) and len(stored) % 2 == 1
    with torch.no_grad():
        next(p for n, p in opened.net.named_parameters() if "trainable_tokens" in n).zero_()
    assert not torch.allclose(logits(opened)[:, :MASK], logits(model)[:, :MASK])


def test_peft_itself_reads_the_adapter_and_says_the_same(adapted):
    folder, model = adapted
    plain = AutoModelForCausalLM.from_pretrained(folder / "base")
    theirs = PeftModel.from_pretrained(plain, folder / "adapter").eval()
    ids = [1, 2, MASK, 4, MASK, MASK]
    with torch.no_grad():
        found = theirs(input_ids=torch.tensor([ids])).logits[0]
        ours = model.head(model.hidden(Batch.pack([ids])))
    torch.testing.assert_close(ours[:, :MASK], found[:, :MASK], rtol=1e-4, atol=1e-4)


def test_an_export_holds_the_row_and_predicts_the_same(adapted):
    folder, model = adapted
    merged = mw.open(mw.export(folder / "base", folder / "merged", adapter=folder / "adapter"), device="cpu")
    torch.testing.assert_close(logits(merged), logits(model), rtol=1e-4, atol=1e-4)
    stored = load_file(folder / "adapter" / "adapter_model.safetensors")
    row = next(value for name, value in stored.items() if "trainable_tokens" in name)
    assert torch.equal(merged.core.get_input_embeddings().weight[MASK], row[0])


def test_an_adapter_on_an_adapted_model_opens_and_exports_with_its_own_row(adapted):
    folder, model = adapted
    make_trainable(model, SETTINGS, mask_row=True)  # what it carries is merged into it
    with torch.no_grad():
        for name, parameter in model.net.named_parameters():
            if parameter.requires_grad and ("lora_B" in name or "trainable_tokens" in name):
                parameter.add_(0.1)
    save_trained_weights(model, folder / "second", trained_weights(model), None)
    both = f"{folder / 'base'}+{folder / 'adapter'}"
    opened = mw.open(both, device="cpu", adapter=folder / "second")
    torch.testing.assert_close(logits(opened), logits(model.eval()), rtol=1e-4, atol=1e-4)
    merged = mw.open(mw.export(both, folder / "merged", adapter=folder / "second"), device="cpu")
    torch.testing.assert_close(logits(merged), logits(model), rtol=1e-4, atol=1e-4)


def test_only_the_row_of_the_mask_gets_a_gradient_and_a_checkpoint_restores_it(adapted):
    folder, model = adapted
    batch = Batch.pack([[1, 2, MASK, 4, MASK, MASK]])
    model(batch, model.flat_rows(batch, [[2, 4]])).logsumexp(1).sum().backward()
    gradients = {name: p.grad for name, p in model.net.named_parameters() if p.grad is not None}
    assert any("trainable_tokens" in name and bool(value.any()) for name, value in gradients.items())
    assert all("lora_" in name or "trainable_tokens" in name for name in gradients)
    before = trained_weights(model)
    with torch.no_grad():
        for parameter in model.net.parameters():
            if parameter.requires_grad:
                parameter.zero_()
    load_trained_weights(model, folder / "adapter")
    assert all(torch.equal(value, before[name]) for name, value in trained_weights(model).items())


def test_another_row_of_a_tied_head_is_refused(tmp_path):
    net = dream_net(tie_word_embeddings=True)
    net.save_pretrained(tmp_path / "base")
    config = LoraConfig(r=2, target_modules=["q_proj"], trainable_token_indices={"model.embed_tokens": [5]})
    get_peft_model(net, config).save_pretrained(tmp_path / "adapter", save_embedding_layers=False)
    with pytest.raises(UserError, match="changes the output head"):
        mw.open(tmp_path / "base", device="cpu", adapter=tmp_path / "adapter")
    stored = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert stored["trainable_token_indices"] == {"model.embed_tokens": [5]}
