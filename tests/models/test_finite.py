"""NaN and infinity in weights and logits: nothing is answered, scored, generated or tuned from them in silence."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

import maskwise as mw
from helpers.checkpoints import save
from helpers.tiny import tiny_ar, tiny_dream, tiny_llada
from helpers.tuning import checkpoint, pairs_file  # noqa: F401
from maskwise.cli import app
from maskwise.decoding.likelihood import log_likelihoods
from maskwise.models.finite import first_nonfinite_layer, nonfinite_weights, stored_tensors
from maskwise.support.errors import UserError
from maskwise.support.files import parse_json, to_json

MIDDLE = "model.transformer.blocks.1.ff_proj.weight"
HEAD = "model.transformer.ff_out.weight"


def spoil(folder, name, value):
    """Puts one NaN or infinity into a weight of a checkpoint."""
    file = folder / "model.safetensors"
    weights = load_file(file)
    weights[name].view(-1)[3] = value
    save_file(weights, file, {"format": "pt"})
    return folder


def command(*given):
    return CliRunner().invoke(app, [str(part) for part in given], prog_name="maskwise")


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_a_weight_that_is_not_finite_is_named_at_opening(tmp_path, value):
    folder = spoil(save(tmp_path), MIDDLE, value)
    with pytest.raises(UserError, match=f"NaN or infinity in its weights, in {MIDDLE}: download"):
        mw.open(folder)
    assert nonfinite_weights(mw.open(folder, check_weights=False).net) == [MIDDLE]


def test_weights_too_large_for_the_type_are_named(tmp_path):
    folder = spoil(save(tmp_path), MIDDLE, 1e30)
    mw.open(folder)
    with pytest.raises(UserError, match="choose another dtype"):
        mw.open(folder, dtype="float16")


def test_every_type_of_weight_is_looked_at():
    net = torch.nn.ParameterDict(
        {
            str(dtype).replace(".", "-"): torch.nn.Parameter(torch.ones(3, 5).to(dtype))
            for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.float8_e4m3fn)
        }
    )
    assert nonfinite_weights(net) == []
    for weight in net.values():
        weight.data = weight.data.float().index_fill(0, torch.tensor([1]), torch.nan).to(weight.dtype)
    assert sorted(nonfinite_weights(net)) == sorted(net)


@pytest.mark.parametrize("name, begins", [(MIDDLE, "blocks.1.ff_proj"), (HEAD, "the output head")])
def test_commands_name_the_layer_of_logits_that_are_not_finite(tmp_path, name, begins):
    folder = spoil(save(tmp_path / "model", window=2048), name, torch.nan)
    data = tmp_path / "data.jsonl"
    data.write_text('{"prompt": "ab", "answer": "c"}\n')
    for given in (
        [
            "diagnose",
            folder,
            "--quick",
            "--probes",
            "mask-count",
            "--questions",
            1,
            "--out",
            tmp_path / "run",
            "--json",
        ],
        ["score", folder, "--data", data, "--json"],
        ["generate", folder, "ab", "--max-new-tokens", 4, "--plain"],
    ):
        done = command(*given, "--no-check-weights")
        assert done.exit_code == 2 and not done.stdout
        assert "not finite" in done.stderr.splitlines()[-1] and begins in done.stderr.splitlines()[-1]
    assert not json.loads((tmp_path / "run" / "manifest.json").read_text())["complete"]


@pytest.mark.parametrize("make", [tiny_llada, tiny_dream, tiny_ar])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_of_every_family_are_watched(make, temperature):
    model = make()
    requests = [([1, 2, 3], [4]), ([1, 2, 3, 4, 5, 6, 7], [8, 9])]
    log_likelihoods(model, requests)
    mw.generate(model, [[1, 2, 3], [5, 6]], 4, temperature=temperature)
    with torch.no_grad():
        model.core.get_input_embeddings().weight[6] = torch.inf  # a token of the second prompt and request alone
    with pytest.raises(UserError, match="logits of request 2 are not finite"):
        log_likelihoods(model, requests)
    with pytest.raises(UserError, match="logits of prompt 2 are not finite"):
        mw.generate(model, [[1, 2, 3], [5, 6]], 4, temperature=temperature)
    assert first_nonfinite_layer(model, [1, 2, 3]) is None


def test_tune_does_not_blame_the_rate_for_the_weights(tmp_path, checkpoint, pairs_file):  # noqa: F811
    from helpers.tuning import SMALL, run_small
    from maskwise.training.tune import tune

    folder = tmp_path / "model"
    folder.mkdir()
    for file in checkpoint.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    spoil(folder, MIDDLE, torch.nan)
    with pytest.raises(UserError, match=MIDDLE):
        run_small(folder, pairs_file, tmp_path / "out")
    with pytest.raises(UserError, match=r"before the first step, are not finite, from .*blocks.1.ff_proj"):
        tune(str(folder), pairs_file, tmp_path / "out", SMALL, device="cpu", tensorboard=False, check_weights=False)


def test_json_is_strict_both_ways():
    for value in (torch.nan, torch.inf, -torch.inf):
        with pytest.raises(ValueError):
            to_json({"a": [value]})
    refused = ["NaN", "[Infinity]", "-Infinity", "1e999", "9" * 5000, "[" * 100_000, '"\\ud800"', "{", ""]
    for text in refused:
        with pytest.raises(ValueError) as caught:
            parse_json(text)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 120
    assert parse_json('{"a": [1, -2.5e3, "\\ud83d\\ude00"]}') == {"a": [1, -2500.0, "😀"]}


def test_the_parts_of_a_quantised_weight_are_looked_at():
    """As torchao stores them: a tensor made of plain ones, which has no minimum of its own."""
    from torch.testing._internal.two_tensor import TwoTensor

    numbers, scales = torch.ones(2, 3), torch.ones(2, 3)
    layer = torch.nn.Linear(3, 2, bias=False)
    layer.weight = torch.nn.Parameter(TwoTensor(numbers, scales), requires_grad=False)
    assert len(stored_tensors(layer.weight.data)) == 2 and nonfinite_weights(layer) == []
    scales[1, 1] = torch.inf
    assert nonfinite_weights(layer) == ["weight"]
