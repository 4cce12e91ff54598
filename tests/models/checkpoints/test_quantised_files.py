"""Quantised checkpoints: opened with the package that wrote them, one line without it, and nothing wrong in silence."""

import subprocess
import sys

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save_file
from torch import nn
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TorchAoConfig

import maskwise as mw
from helpers.checkpoints import save
from helpers.quantised_files import GROUP, quantise, restored, rounded, tensors_of
from helpers.tiny import dream_net, edit_config, llada_net, tiny_llada
from maskwise.models import peft_access
from maskwise.models.checkpoints import quantised_files
from maskwise.models.checkpoints.adapters import merged
from maskwise.models.checkpoints.configuration import read_settings
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.checkpoints.locations import ZOO
from maskwise.models.checkpoints.networks import first_zero_points, weight_shapes
from maskwise.models.checkpoints.quantised_files import complete_quantisation, refuse_other_zero_points
from maskwise.models.finite import nonfinite_weights
from maskwise.models.peft_access import linear_targets
from maskwise.support.errors import UserError
from maskwise.training.training_settings import TuneSettings
from maskwise.training.weights import make_trainable


class PackedMap(nn.Module):
    """As gptqmodel holds a linear map: no parameter, everything in buffers."""

    def __init__(self, weight):
        super().__init__()
        for name, value in tensors_of("gptq", *rounded(weight)).items():
            self.register_buffer(name, value)


def with_a_packed_map(model):
    block = model.core.model.transformer["blocks"][0]
    block.q_proj = PackedMap(block.q_proj.weight.detach())
    model.core.config.quantization_config = {"quant_method": "gptq"}
    return model, block.q_proj


@pytest.mark.parametrize(
    "method, said",
    [
        ("bitsandbytes", "install bitsandbytes"),
        ("gptq", "install gptqmodel and optimum"),
        ("awq", "install gptqmodel"),
        ("torchao", "install torchao"),
        ("mine", "only bitsandbytes"),
        (None, "is quantised"),
        ([], "is quantised"),
    ],
)
def test_a_quantised_checkpoint_names_the_package_it_needs(tmp_path, monkeypatch, method, said):
    monkeypatch.setattr(quantised_files, "find_spec", lambda name: (name, method) == ("gptqmodel", "gptq"))
    edit_config(save(tmp_path), quantization_config={"quant_method": method, "bits": 4})
    with pytest.raises(UserError, match=said):
        mw.open(tmp_path)


def test_the_layouts_hold_what_they_stand_for():
    """Every number read back by itself, as the formats were published: the tests below rest on it."""
    numbers, zeros, scales = rounded(torch.randn(16, 64, generator=torch.Generator().manual_seed(0)))
    weight = restored(numbers, zeros, scales)
    gptq, awq = (tensors_of(method, numbers, zeros, scales) for method in ("gptq", "awq"))
    place_in_eight = [0, 4, 1, 5, 2, 6, 3, 7]  # of AWQ's outputs

    def bits(entry, place):
        return int(entry) >> 4 * place & 15

    for o in range(16):
        for i in range(64):
            number, zero = bits(gptq["qweight"][i // 8, o], i % 8), bits(gptq["qzeros"][i // GROUP, o // 8], o % 8)
            scale = float(scales[gptq["g_idx"][i], o])
            assert ((zero + 1) % 16, number) == (zeros[i // GROUP, o], numbers[i, o])
            assert weight[o, i] == pytest.approx(scale * (number - (zero + 1) % 16))
            number = bits(awq["qweight"][i, o // 8], place_in_eight[o % 8])
            zero = bits(awq["qzeros"][i // GROUP, o // 8], place_in_eight[o % 8])
            assert weight[o, i] == pytest.approx(scale * (number - zero))


def test_packed_maps_are_looked_at_like_weights():
    """Their numbers and scales are buffers: fingerprints and the search for NaN cover them, adapters go on them."""
    whole = tiny_llada()
    model, one = with_a_packed_map(tiny_llada())
    assert nonfinite_weights(model) == [] and model.parameter_count == whole.parameter_count
    assert r"blocks\.\d+\.(?:attn_out|ff_out|ff_proj|k_proj|q_proj" in linear_targets(model.core)
    prints = [fingerprint(model)]
    one.qweight[3, 5] ^= 1 << 9
    prints.append(fingerprint(model))
    one.scales[0, 1] = torch.inf
    assert nonfinite_weights(model) == ["net.model.transformer.blocks.0.q_proj.scales"]
    assert len({*prints, fingerprint(model), fingerprint(whole)}) == 4


def test_what_needs_whole_weights_says_so_in_one_line(tmp_path):
    edit_config(save(tmp_path / "ar", kind="ar"), quantization_config={"quant_method": "gptq", "bits": 4})
    with pytest.raises(UserError, match="convert the original"):
        mw.convert(tmp_path / "ar", tmp_path / "out")
    model, _ = with_a_packed_map(tiny_llada())
    with pytest.raises(UserError, match="leave out full"):
        make_trainable(model, TuneSettings(full=True, anchored=False))


def test_the_quantised_layers_are_found_in_the_files(tmp_path):
    """optimum looks for model.layers and a few other names, and not for LLaDA's."""
    save(tmp_path / "plain", mlp_hidden_size=64)
    quantise(tmp_path / "plain", "gptq", tmp_path / "few", tmp_path / "many")
    given = read_settings(tmp_path / "few")["quantization_config"]
    complete_quantisation(tmp_path, given, weight_shapes(tmp_path / "few"))
    assert given["block_name_to_quantize"] == "model.transformer.blocks"
    given["block_name_to_quantize"] = "its.own"
    complete_quantisation(tmp_path, given, weight_shapes(tmp_path / "few"))
    assert given["block_name_to_quantize"] == "its.own"


@pytest.mark.parametrize("method", ["gptq", "awq"])
@pytest.mark.parametrize(
    "change",
    [{"bits": 8}, {"bits": 2}, {"bits": "4"}, {"bits": 0}, {"bits": 10**9}, {"group_size": 16}, {"group_size": -1}],
)
def test_numbers_packed_otherwise_than_said_are_refused(tmp_path, monkeypatch, method, change):
    """The package computes with them: half the bits, or scales of other groups."""
    monkeypatch.setattr(quantised_files, "find_spec", lambda name: True)
    save(tmp_path / "plain", mlp_hidden_size=64)
    quantise(tmp_path / "plain", method, tmp_path / "few", tmp_path / "many")
    given = read_settings(tmp_path / "few")["quantization_config"]
    complete_quantisation(tmp_path, given, weight_shapes(tmp_path / "few"))
    edit_config(tmp_path / "few", quantization_config=given | change)
    with pytest.raises(UserError, match=r"is not packed with bits"):
        mw.open(tmp_path / "few")


def test_a_pattern_that_would_take_years_is_refused(tmp_path, monkeypatch):
    """Before the package is asked, so it need not be installed."""
    monkeypatch.setattr(peft_access, "MOST_SECONDS", 0.2)
    monkeypatch.setattr(quantised_files, "find_spec", lambda name: True)
    skipped = {"quant_method": "bitsandbytes", "load_in_4bit": True, "llm_int8_skip_modules": ["(.+)+x"]}
    edit_config(save(tmp_path), quantization_config=skipped)
    with pytest.raises(UserError, match=r"config.json: a pattern takes more than 0.2 s"):
        mw.open(tmp_path)


@pytest.mark.parametrize("net", [llada_net, dream_net])
def test_every_property_of_our_classes_can_be_read(net):
    """optimum reads them all when it replaces maps."""
    made = net()
    assert all(getattr(made, name) is not made for name in dir(made))


@pytest.mark.slow
@pytest.mark.parametrize("package, method", [("torchao", "int8"), ("bitsandbytes", "nf4"), ("bitsandbytes", "int8")])
def test_a_quantised_checkpoint_opens_with_its_package(tmp_path, package, method):
    """Its logits are the original's within what its bits hold; it is decoded, and it is not exported."""
    pytest.importorskip(package, reason="not part of the extra dev: docs/how-to/quantise.md says what was run")
    if package == "torchao":
        from torchao.quantization import Int8WeightOnlyConfig

        bits = TorchAoConfig(Int8WeightOnlyConfig())
    else:
        bits = BitsAndBytesConfig(
            load_in_4bit=method == "nf4",
            load_in_8bit=method == "int8",
            bnb_4bit_quant_type="nf4",
            bnb_4bit_compute_dtype=torch.float32,
        )
    source, folder = ZOO / "tiny-llada", tmp_path / "quantised"
    whole = mw.open("tiny-llada", device="cpu")
    AutoModelForCausalLM.from_pretrained(source, quantization_config=bits, device_map={"": "cpu"}).save_pretrained(
        folder
    )
    whole.tokenizer.save_pretrained(folder)
    opened = mw.open(folder, device="cpu")
    ids = whole.tokenizer("Once upon a time there was a")["input_ids"]
    given = [[*ids, whole.mask_id]], [[len(ids)]]
    ours, theirs = (model.predict(*given)[0].softmax(dim=-1) for model in (opened, whole))
    assert 0 < (ours - theirs).abs().sum() < (0.5 if method == "nf4" else 0.1)
    assert len(mw.generate(opened, "Once", 4)[0].ids) == 4
    with pytest.raises(UserError, match="is quantised"):
        mw.export(folder, tmp_path / "out", ZOO / "tiny-llada+distracted")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tiny-llada", "tiny-dream", "tiny-qwen"])
@pytest.mark.parametrize("method", ["gptq", "awq"])
def test_packed_checkpoints_give_the_logits_of_the_weights_they_stand_for(tmp_path, method, name):
    pytest.importorskip("gptqmodel", reason="not part of the extra dev: docs/how-to/quantise.md says what was run")
    few, many = tmp_path / "few", tmp_path / "many"
    quantise(ZOO / name, method, few, many)
    original = mw.open(name, device="cpu")
    original.tokenizer.save_pretrained(few)
    packed, plain = mw.open(few, device="cpu"), mw.open(many, device="cpu")
    ids = original.tokenizer("Once upon a time there was a")["input_ids"]
    given = [[*ids, original.mask_id or 0]], [[len(ids)]]
    ours, theirs, others = (model.predict(*given)[0][:, 2:] for model in (packed, plain, original))
    largest = theirs.abs().max()
    assert (ours - theirs).abs().max() < 1e-3 * largest < (others - theirs).abs().max()
    assert packed.parameter_count == original.parameter_count
    assert fingerprint(packed) == fingerprint(mw.open(few, device="cpu"))
    line = [sys.executable, "-m", "maskwise", "generate", str(few), "Once", "--max-new-tokens", "4"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.stdout == mw.generate(packed, "Once", 4)[0].text + "\n"  # and nothing that the package prints
    known = read_settings(few)["quantization_config"]
    edit_config(few, quantization_config=known | {"modules_to_not_convert": ["[x"], "block_name_to_quantize": 7})
    with pytest.raises(UserError, match=r"config\.json"):
        mw.open(few, device="cpu")
    make_trainable(packed, TuneSettings())
    with pytest.raises(UserError, match="cannot be merged"):
        make_trainable(packed, TuneSettings())


@pytest.mark.parametrize("said", ["gptq_v3", "GPTQ", 2])
def test_a_layout_of_gptq_that_nobody_knows_is_refused(tmp_path, said):
    """The package takes it for its own second layout, whose zero points are others."""
    given = {"quant_method": "gptq", "bits": 4, "group_size": 16, "checkpoint_format": said}
    other_name = {"quant_method": "gptq", "bits": 4, "group_size": 16, "format": said}
    for one in (given, other_name):
        with pytest.raises(UserError, match="is none of gptq, gptq_v2"):
            complete_quantisation(tmp_path, one, {})
    for known in ({"checkpoint_format": "gptq_v2"}, {}):
        complete_quantisation(tmp_path, {"quant_method": "gptq", "bits": 4, "group_size": 16} | known, {})


def test_the_wrong_layout_of_two_is_refused_where_the_zero_points_tell_them_apart(tmp_path):
    """Symmetric weights have one zero point, 8 of 4 bits, which the first layout stores as 7. Others may have any."""
    numbers, zeros, scales = rounded(torch.randn(16, 64, generator=torch.Generator().manual_seed(0)))
    given = {"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True}
    for right, wrong, shift in (("gptq", "gptq_v2", 0), ("gptq_v2", "gptq", 1)):
        stored = tensors_of("gptq", numbers, torch.full_like(zeros, 8 + shift), scales)  # which takes 1 off
        save_file({"layers.0.qzeros": stored["qzeros"]}, tmp_path / "model.safetensors")
        found = first_zero_points(tmp_path)
        refuse_other_zero_points(tmp_path, given | {"checkpoint_format": right}, found)
        refuse_other_zero_points(tmp_path, given | {"checkpoint_format": wrong, "sym": False}, found)
        with pytest.raises(UserError, match=f"checkpoint_format is {wrong}, but .* are those of {right}: correct it"):
            refuse_other_zero_points(tmp_path, given | {"checkpoint_format": wrong}, found)
    mixed = tensors_of("gptq", numbers, zeros, scales)["qzeros"].unique().tolist()
    for known in ("gptq", "gptq_v2"):
        refuse_other_zero_points(tmp_path, given | {"checkpoint_format": known}, mixed)


def test_an_adapter_is_not_rounded_into_quantised_weights():
    net = llada_net()
    adapted = get_peft_model(net, LoraConfig(r=2, target_modules=linear_targets(net)))
    net.config.quantization_config = {"quant_method": "bitsandbytes"}
    with pytest.raises(UserError, match="cannot be merged into quantised weights without rounding"):
        merged(adapted)
    net.config.quantization_config = None
    assert merged(adapted) is net
