"""What is trained: the model's own linear maps and never the head; and the way to disk and back."""

import json
import re
import shutil

import pytest
import torch

import maskwise as mw
from helpers.tiny import tiny_dream, tiny_llada
from maskwise.errors import UserError
from maskwise.training.settings import TuneSettings
from maskwise.training.weights import load_trained_weights, make_trainable, save_trained_weights, trained_weights

SMALL = TuneSettings(lora_rank=2, lora_alpha=4)


@pytest.mark.parametrize("make", [tiny_llada, tiny_dream])
def test_the_adapter_is_on_every_linear_map_of_the_layers_and_not_on_the_head(make):
    model = make()
    linear = [n for n, m in model.core.named_modules() if isinstance(m, torch.nn.Linear)]
    head = next(n for n, m in model.core.named_modules() if m is model.core.get_output_embeddings())
    make_trainable(model, SMALL)
    adapted = {
        name.split(".lora_A")[0].removeprefix("base_model.model.")
        for name in trained_weights(model)
        if "lora_A" in name
    }
    assert adapted == set(linear) - {head}
    assert not model.head_weight.requires_grad


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r".*\.nothing", "match no part"),
        (r".*ff_out", "match the output head"),
        (r".*attn_norm", "no linear map"),
    ],
)
def test_patterns_that_would_do_harm_or_nothing_are_refused(pattern, said):
    with pytest.raises(UserError, match=said):
        make_trainable(tiny_llada(), TuneSettings(targets=pattern))


def test_a_pattern_of_ones_own_is_used():
    model = tiny_llada()
    make_trainable(model, TuneSettings(targets=r".*\.q_proj", lora_rank=2))
    assert all(re.search(r"\.q_proj\.lora_", name) for name in trained_weights(model))


def test_the_same_seed_starts_the_same_adapter_and_leaves_the_random_state_alone():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    models = [tiny_llada(), tiny_llada()]
    torch.set_rng_state(before)
    for model in models:
        make_trainable(model, SMALL)
    assert torch.equal(torch.get_rng_state(), before)
    first, second = (trained_weights(model) for model in models)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("full", [False, True])
def test_weights_go_to_disk_and_back(checkpoint, tmp_path, full):
    model = mw.open(checkpoint)
    make_trainable(model, TuneSettings(lora_rank=2, full=full))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.net.parameters():
            if parameter.requires_grad:
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator).to(parameter.device)
    source = shutil.copytree(checkpoint, tmp_path / "source")
    (source / "settings.json").write_text("{}")
    save_trained_weights(model, tmp_path / "saved", trained_weights(model), source)
    if full:
        assert not (tmp_path / "saved" / "settings.json").exists()  # what tuned the source is not part of it
        opened = mw.open(tmp_path / "saved")
        assert (tmp_path / "saved" / "config.json").read_bytes() == (checkpoint / "config.json").read_bytes()
    else:
        opened = mw.open(checkpoint, adapter=tmp_path / "saved")
    question = ([[5, 6, 7, model.mask_id]], [[3]])
    torch.testing.assert_close(opened.predict(*question)[0], model.predict(*question)[0])
    fresh = mw.open(checkpoint)
    make_trainable(fresh, TuneSettings(lora_rank=2, full=full))
    load_trained_weights(fresh, tmp_path / "saved")
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), model.parameters(), strict=True))


def test_an_adapted_model_is_not_tuned_again(checkpoint, tmp_path):
    model = mw.open(checkpoint)
    make_trainable(model, SMALL)
    with pytest.raises(UserError, match="already carries an adapter"):
        make_trainable(model, SMALL)


def test_an_adapter_names_its_base_as_the_user_did(tmp_path):
    model = mw.open("tiny-llada")
    make_trainable(model, TuneSettings(lora_rank=2))
    save_trained_weights(model, tmp_path, trained_weights(model), None)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["base_model_name_or_path"] == "tiny-llada"
    assert mw.open(tmp_path).name == str(tmp_path)  # opens by itself, wherever it is carried


def test_an_adapter_on_a_folder_finds_it_from_anywhere(checkpoint, tmp_path, monkeypatch):
    monkeypatch.chdir(checkpoint.parent)
    model = mw.open(checkpoint.name)
    make_trainable(model, SMALL)
    save_trained_weights(model, tmp_path / "adapter", trained_weights(model), None)
    monkeypatch.chdir(tmp_path)
    assert mw.open("adapter").kind == model.kind


def test_a_model_with_an_adapter_opens_by_the_name_it_is_given(tmp_path):
    adapter = tmp_path / "ce+tv"
    model = mw.open("tiny-llada", device="cpu")
    make_trainable(model, SMALL)
    for name, weight in model.net.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight)
    save_trained_weights(model, adapter, trained_weights(model), None)
    ids, row = [[5, 6, 7]], [[1]]
    told = mw.open("tiny-llada", adapter=adapter, device="cpu")
    assert told.name == f"tiny-llada+{adapter}"
    for name in (told.name, adapter):
        assert torch.equal(mw.open(name, device="cpu").predict(ids, row)[0], told.predict(ids, row)[0])
    assert not torch.equal(mw.open("tiny-llada", device="cpu").predict(ids, row)[0], told.predict(ids, row)[0])
    for name, more in (("tiny-llada+ma", adapter), (adapter, adapter), (f"tiny-llada+ma+{adapter}", None)):
        with pytest.raises(UserError, match="has an adapter already"):
            mw.open(name, adapter=more, device="cpu")


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "does not hold a configuration"),
        ("{}", "does not name its base"),
        ('{"base_model_name_or_path": "tiny-llada+ma"}', "does not name its base"),
        ('{"base_model_name_or_path": "SELF"}', "does not name its base"),
    ],
)
def test_an_adapter_that_leads_to_no_model_is_refused_in_one_line(tmp_path, config, said):
    (tmp_path / "adapter_config.json").write_text(config.replace("SELF", tmp_path.as_posix()))
    with pytest.raises(UserError, match=said):
        mw.open(tmp_path)
