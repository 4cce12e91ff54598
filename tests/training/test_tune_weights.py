"""What is trained: the model's own linear maps and never the head; and the way to disk and back."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import maskwise as mw
from helpers.tiny import EVERY_FAMILY, tiny_dream, tiny_llada
from maskwise.models.checkpoints.export import export
from maskwise.models.model import Model
from maskwise.support.errors import UserError
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


@pytest.mark.parametrize("make", EVERY_FAMILY)
def test_attention_alone_is_adapted(make):
    model = make()
    make_trainable(model, TuneSettings(targets="attention", lora_rank=2))
    adapted = {name.split(".lora_")[0].rpartition(".")[2] for name in trained_weights(model)}
    assert adapted in (
        {"q_proj", "k_proj", "v_proj", "attn_out"},
        {"q_proj", "k_proj", "v_proj", "o_proj"},
        {"query_key_value", "dense"},
    )


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


def with_random_adapter(name: str | Path, folder: Path, seed: int) -> Model:
    """The model with a new adapter of random weights on it, which is also written to a folder."""
    model = mw.open(name, device="cpu")
    make_trainable(model, TuneSettings(lora_rank=2))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.net.parameters():
            if parameter.requires_grad:
                parameter.normal_(0, 0.05, generator=generator)
    save_trained_weights(model, folder, trained_weights(model), None)
    return model


def test_an_adapted_model_is_adapted_again(checkpoint, tmp_path, monkeypatch):
    """The second adapter stands on base and first together, by whichever name it is opened, merged or exported."""
    with_random_adapter(checkpoint, tmp_path / "first", 0)
    model = with_random_adapter(tmp_path / "first", tmp_path / "second", 1)
    question = ([[5, 6, 7, model.mask_id]], [[3]])
    wanted = model.predict(*question)[0]
    weight = mw.open(checkpoint, device="cpu").core.get_parameter("model.transformer.blocks.0.q_proj.weight")
    for folder in ("first", "second"):
        low = load_file(tmp_path / folder / "adapter_model.safetensors")
        at = "base_model.model.model.transformer.blocks.0.q_proj.lora_"
        weight = weight + 64 * low[f"{at}B.weight"] @ low[f"{at}A.weight"]  # lora_alpha / rank
    own = model.core.get_parameter("model.transformer.blocks.0.q_proj.base_layer.weight")
    last = 64 * low[f"{at}B.weight"] @ low[f"{at}A.weight"]
    torch.testing.assert_close(own + last, weight)
    monkeypatch.chdir(tmp_path)
    export("second", "exported")
    for name in ("second", "first+second", f"{checkpoint}+first+second", "exported"):
        torch.testing.assert_close(mw.open(name, device="cpu").predict(*question)[0], wanted)
    assert not torch.allclose(mw.open("first", device="cpu").predict(*question)[0], wanted)


def test_adapters_that_name_each_other_are_refused(tmp_path):
    for own, other in (("one", "two"), ("two", "one")):
        (tmp_path / own).mkdir()
        config = {"base_model_name_or_path": str(tmp_path / other)}
        (tmp_path / own / "adapter_config.json").write_text(json.dumps(config))
    with pytest.raises(UserError, match="adapters deep"):
        mw.open(tmp_path / "one")


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
    shown = mw.open("tiny-llada", adapter=adapter, device="cpu")
    assert shown.name == f"tiny-llada+{adapter}"
    for name in (shown.name, adapter):
        assert torch.equal(mw.open(name, device="cpu").predict(ids, row)[0], shown.predict(ids, row)[0])
    assert not torch.equal(mw.open("tiny-llada", device="cpu").predict(ids, row)[0], shown.predict(ids, row)[0])


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "not valid JSON"),
        ("[]", "does not hold a configuration"),
        ("{}", "does not name its base"),
        ('{"base_model_name_or_path": 7}', "does not name its base"),
        ('{"base_model_name_or_path": "SELF"}', "adapters deep"),
    ],
)
def test_an_adapter_that_leads_to_no_model_is_refused_in_one_line(tmp_path, config, said):
    (tmp_path / "adapter_config.json").write_text(config.replace("SELF", tmp_path.as_posix()))
    with pytest.raises(UserError, match=said):
        mw.open(tmp_path)


@pytest.mark.parametrize("make", EVERY_FAMILY)
def test_all_weights_of_every_family_are_written_so_that_they_open_again(make, tmp_path):
    """Also what is no weight: LLaDA2 chooses experts by biases that no gradient reaches."""
    model = make()
    make_trainable(model, TuneSettings(full=True))
    save_trained_weights(model, tmp_path, trained_weights(model), None)
    asked = ([[5, 6, 7, 8, 9, 10]], [[2, 4]])
    assert torch.equal(mw.open(tmp_path, device="cpu").predict(*asked)[0], model.predict(*asked)[0])
