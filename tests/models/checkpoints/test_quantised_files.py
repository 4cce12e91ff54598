"""Quantised checkpoints: opened by transformers with the package that wrote them, one line without it."""

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, TorchAoConfig

import maskwise as mw
from helpers.checkpoints import save
from helpers.tiny import edit_config, llada_net, tiny_llada
from maskwise.models.checkpoints.adapters import merged
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.checkpoints.locations import ZOO
from maskwise.models.finite import nonfinite_weights
from maskwise.models.peft_access import linear_targets
from maskwise.support.errors import UserError
from maskwise.training.training_settings import TuneSettings
from maskwise.training.weights import make_trainable


class PackedMap(nn.Module):
    """As gptqmodel holds a linear map: no parameter, everything in buffers."""

    def __init__(self, weight):
        super().__init__()
        outer, inner = weight.shape
        self.register_buffer("qweight", torch.ones(inner // 8, outer, dtype=torch.int32))
        self.register_buffer("scales", torch.ones(inner // 32, outer))


def with_a_packed_map(model):
    block = model.core.model.transformer["blocks"][0]
    block.q_proj = PackedMap(block.q_proj.weight.detach())
    model.core.config.quantization_config = {"quant_method": "gptq"}
    return model, block.q_proj


@pytest.mark.parametrize("method", ["bitsandbytes", "gptq", "awq", "torchao", None, []])
def test_a_quantised_checkpoint_without_its_package_is_one_line(tmp_path, method):
    edit_config(save(tmp_path), quantization_config={"quant_method": method, "bits": 4, "load_in_8bit": True})
    with pytest.raises(UserError) as problem:
        mw.open(tmp_path)
    assert "\n" not in str(problem.value)


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


def test_an_adapter_is_not_rounded_into_quantised_weights():
    net = llada_net()
    adapted = get_peft_model(net, LoraConfig(r=2, target_modules=linear_targets(net)))
    net.config.quantization_config = {"quant_method": "bitsandbytes"}
    with pytest.raises(UserError, match="cannot be merged into quantised weights without rounding"):
        merged(adapted)
    net.config.quantization_config = None
    assert merged(adapted) is net
