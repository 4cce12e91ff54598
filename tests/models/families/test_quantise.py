"""Weights in fp8: the products against dense arithmetic on the rounded numbers, and models opened with them.

Here on a CPU; the kernels of CUDA are held against the same references when a model is opened there (`works`), by
tests/kernels/test_small_batch_linear.py, and by row n of benchmarks/.
"""

import subprocess
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from typer.testing import CliRunner

import maskwise as mw
from helpers.known import SMALL
from helpers.tiny import dream_net, edit_config, llada_moe_net, llada_net, tiny_llada
from maskwise.cli import app
from maskwise.models.batch import Batch
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.checkpoints.opening import as_model
from maskwise.models.families import quantise as quantise_module
from maskwise.models.families.packing import packed_products
from maskwise.models.families.quantise import (
    Float8Linear,
    Float8Weights,
    products_work,
    quantise,
    rounded_rows,
    works,
)
from maskwise.records.folder import read_run
from maskwise.runs.diagnose import diagnose
from maskwise.support.errors import UserError, UserNotice

CPU = torch.device("cpu")


def linear(inner=128, outer=48, bias=False, seed=0):
    torch.manual_seed(seed)
    one = nn.Linear(inner, outer, bias=bias).requires_grad_(False)
    one.weight.mul_(torch.rand(outer, 1) * 4)  # rows of different sizes
    return one


def rows(count=7, inner=128, seed=1):
    drawn = torch.randn(count, inner, generator=torch.Generator().manual_seed(seed))
    return drawn * torch.logspace(-3, 3, count)[:, None]


def e4m3(value):
    """The nearest number with 4 bits of exponent and 3 of mantissa, ties to even, from their definition."""
    if value == 0:
        return 0.0
    exponent = max(torch.tensor(abs(value)).log2().floor().item(), -6)
    step = 2.0 ** (exponent - 3)
    return round(value / step) * step


def test_rows_are_rounded_to_e4m3_with_their_largest_at_448():
    x = rows(count=5, inner=16)
    found, scale = rounded_rows(x)
    torch.testing.assert_close(scale[:, 0] * 448, x.abs().amax(dim=1))
    for row, size, numbers in zip(x, scale[:, 0], found.float(), strict=True):
        torch.testing.assert_close(numbers, torch.tensor([e4m3(float(value / size)) for value in row]))
    assert found.float().abs().amax(dim=1).tolist() == [448] * 5
    zero, _ = rounded_rows(torch.zeros(1, 16))
    assert not zero.float().any()


@pytest.mark.parametrize("bias", [False, True])
@torch.no_grad()
def test_fp8_is_the_dense_product_of_the_rounded_numbers(bias):
    one = linear(bias=bias)
    quantised, x = Float8Linear(one), rows()
    weight, scale = rounded_rows(one.weight)
    given, size = rounded_rows(x)
    expected = (given.double() * size) @ (weight.double() * scale).t() + (one.bias if bias else 0)
    torch.testing.assert_close(quantised(x).double(), expected, rtol=1e-5, atol=1e-5)
    error = (quantised(x) - one(x)).norm() / one(x).norm()
    assert 0.001 < error < 0.05  # two roundings to 4 significant bits each


def test_gradients_flow_as_through_the_rounded_weight():
    one = Float8Linear(linear(bias=True))
    x = rows().requires_grad_()
    up = torch.randn(7, 48, generator=torch.Generator().manual_seed(2))
    (gradient,) = torch.autograd.grad(one(x), x, up)
    torch.testing.assert_close(gradient, up @ (one.weight.float() * one.scale[:, None]))
    assert not any(weight.requires_grad for weight in one.parameters())


def test_inputs_of_any_rank_in_half_precision():
    one, x = Float8Linear(linear().to(torch.bfloat16)), rows(count=6).to(torch.bfloat16)
    found = one(x.unflatten(0, (2, 3)))
    assert found.shape == (2, 3, 48) and found.dtype == torch.bfloat16
    torch.testing.assert_close(found.flatten(0, 1), one(x))


def test_shapes_that_no_product_takes_are_known():
    assert works(torch.empty(48, 128)) and not works(torch.empty(48, 24)) and not works(torch.empty(40, 128))


@pytest.fixture
def kernels_on(monkeypatch):
    monkeypatch.setattr("maskwise.models.families.quantise.KERNELS", True)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("no C compiler"), subprocess.CalledProcessError(1, "gcc"), ValueError("pointer"), OSError("cache")],
)
def test_where_kernels_fail_torchs_own_products_are_taken(error, kernels_on):
    def agree():
        if quantise_module.KERNELS:
            raise error
        return True

    with pytest.warns(UserNotice, match="without our kernels") as said:
        assert products_work(agree)
    assert str(error) in str(said[0].message) and not quantise_module.KERNELS
    assert products_work(agree)  # and nothing more is said
    assert len(said) == 1


def test_kernels_that_give_other_numbers_are_left_and_those_not_at_fault_are_kept(kernels_on):
    assert not products_work(lambda: False) and quantise_module.KERNELS  # wrong with and without them
    with pytest.warns(UserWarning, match="other numbers"):
        assert products_work(lambda: not quantise_module.KERNELS)
    assert not quantise_module.KERNELS


# Networks

WIDE = {"d_model": 64, "mlp_hidden_size": 128}


@torch.no_grad()
def test_a_network_has_its_layers_maps_quantised_and_nothing_else():
    net = llada_net(**WIDE)
    head = net.get_output_embeddings()
    quantise(net, CPU)
    assert sum(isinstance(one, Float8Linear) for one in net.modules()) == 7 * net.config.n_layers
    assert net.get_output_embeddings() is head and type(head) is nn.Linear
    assert [one for one in net.modules() if type(one) is nn.Linear] == [head]


@torch.no_grad()
def test_a_shape_that_cannot_be_taken_keeps_its_weights_and_that_is_said():
    net = llada_net(d_model=64, mlp_hidden_size=72)
    with pytest.warns(UserNotice, match=r"fp8: maps from 64 to 72, 72 to 64 numbers keep their precision"):
        quantise(net, CPU)
    assert sum(isinstance(one, Float8Linear) for one in net.modules()) == 4 * net.config.n_layers


@torch.no_grad()
def test_query_key_and_value_in_one_product_are_the_same():
    model, batch = as_model(llada_net(**WIDE), None, "wide"), Batch.pack([[5, 9, 63, 3], [7, 63]])
    quantise(model.core, CPU)
    before = model.hidden(batch)
    with packed_products(model.core):
        owner = next(module for module in model.core.modules() if hasattr(module, "packed"))
        gated = [module for module in model.core.modules() if hasattr(module, "packed_gate")]
        assert type(owner.packed) is Float8Weights
        assert gated and all(type(module.packed_gate) is Float8Weights for module in gated)
        torch.testing.assert_close(model.hidden(batch), before)
    assert owner.q_proj.weight.untyped_storage().data_ptr() == owner.v_proj.weight.untyped_storage().data_ptr()
    torch.testing.assert_close(model.hidden(batch), before)


class Dense(nn.Module):
    """What a quantised map stands for, in plain arithmetic."""

    def __init__(self, one):
        super().__init__()
        self.bias, self.out_features = one.bias, one.out_features
        weight, scale = rounded_rows(one.weight)
        self.weight = weight.float() * scale

    def forward(self, x):
        given, scale = rounded_rows(x)
        return (given.float() * scale) @ self.weight.t() + (0 if self.bias is None else self.bias)


@pytest.mark.parametrize("make", [lambda: llada_net(**WIDE), lambda: dream_net(hidden_size=64, intermediate_size=128)])
@torch.no_grad()
def test_opened_models_predict_what_the_rounded_numbers_say(make, tmp_path):
    make().save_pretrained(tmp_path / "model")
    plain = mw.open(tmp_path / "model", device="cpu")
    model = mw.open(tmp_path / "model", device="cpu", weights="fp8")
    assert model.weights == "fp8" and model.parameter_count == plain.parameter_count
    assert fingerprint(model) != fingerprint(plain)
    ids = [[5, 9, 3, 60, 63, 63]]
    before = plain.predict(ids, [[4]])[0]
    for name, one in list(plain.core.named_modules()):
        if type(one) is nn.Linear and one is not plain.core.get_output_embeddings():
            parent, _, last = name.rpartition(".")
            setattr(plain.core.get_submodule(parent), last, Dense(one))
    found, expected = model.predict(ids, [[4]])[0], plain.predict(ids, [[4]])[0]
    assert not torch.allclose(before, expected, rtol=1e-2, atol=1e-2)
    # A number between two of E4M3's may fall to either side: float32 sums differ in their last bits.
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=0.05)
    with pytest.raises(UserError, match="quantised"):
        model.save_pretrained(tmp_path / "again")


def test_an_adapter_is_merged_before_weights_are_rounded():
    adapted = mw.open("tiny-llada+distracted", device="cpu", weights="fp8")
    assert adapted.net is adapted.core
    merged = mw.open("tiny-llada+distracted", device="cpu")
    merged.net = merged.net.merge_and_unload()
    quantise(merged.core, CPU)
    ids = [[5, 9, 3, 60, merged.mask_id]]
    torch.testing.assert_close(adapted.predict(ids, [[4]])[0], merged.predict(ids, [[4]])[0])


def test_what_cannot_be_quantised_is_refused_in_one_line(tmp_path):
    llada_moe_net().save_pretrained(tmp_path / "moe")
    cut = load_file(tmp_path / "moe" / "model.safetensors")
    del cut["model.norm.weight"]  # without which the weights cannot be loaded: it is refused before
    save_file(cut, tmp_path / "moe" / "model.safetensors", {"format": "pt"})
    with pytest.raises(UserError, match="models with experts"):
        mw.open(tmp_path / "moe", device="cpu", weights="fp8")
    llada_net().save_pretrained(tmp_path / "small")
    for weights, problem in (("int3", "unknown weights 'int3': use fp8"), ("int4", "removed in 0.3: weights fp8")):
        with pytest.raises(UserError, match=problem):
            mw.open("tiny-llada", device="cpu", weights=weights)
    with pytest.raises(UserError, match="open already"):
        mw.score(tiny_llada(), [{"prompt": "a", "answer": "b"}], weights="fp8")
    edit_config(tmp_path / "small", quantization_config={"quant_method": "torchao"})
    with pytest.raises(UserError, match="quantised already"):
        mw.open(tmp_path / "small", device="cpu", weights="fp8")


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_found_after_rounding(bad, tmp_path):
    net = llada_net(**WIDE)
    with torch.no_grad():
        net.model.transformer["blocks"][1].up_proj.weight[3, 5] = bad
    net.save_pretrained(tmp_path / "model")
    with pytest.raises(UserError, match="NaN or infinity"):
        mw.open(tmp_path / "model", device="cpu", weights="fp8")


def test_a_run_says_that_its_figures_include_the_rounding(tmp_path):
    few = replace(SMALL, tasks=SMALL.tasks[:1], questions=1, probes=("mask-count",)).changed(
        "mask-count", mask_counts=(1, 2)
    )
    for kind in (None, "fp8"):
        run = read_run(diagnose(mw.open("tiny-llada", device="cpu", weights=kind), few, tmp_path / str(kind)))
        assert run.manifest["notes"] == [
            "the figures include what rounding to fp8 does: a run without --weights has none of it"
        ] * (kind is not None)


def test_commands_take_the_option():
    run = CliRunner().invoke
    done = run(app, ["generate", "tiny-llada", "Once", "--max-new-tokens", "4", "--weights", "fp8", "--plain"])
    assert done.exit_code == 0 and done.output.strip()
    for command in (["generate", "tiny-llada"], ["diagnose", "tiny-llada"], ["score", "tiny-llada", "--data", "x"]):
        refused = run(app, [*command, "--weights", "fp4"])
        assert refused.exit_code != 0 and "unknown weights 'fp4'" in refused.output
