"""The Triton kernels, in a process of their own: whether Triton interprets is decided when it is imported."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
MODELS = Path(find_spec("maskwise").origin).parent / "models"


@pytest.mark.parametrize(
    ("cases", "count"), [("few", 4), pytest.param("all", 12, marks=pytest.mark.slow)], ids=["few", "all"]
)
def test_the_kernels_give_what_plain_arithmetic_gives(cases, count):
    interpreted = {} if torch.cuda.is_available() else {"TRITON_INTERPRET": "1"}
    command = [sys.executable, Path(__file__).with_name("kernel_cases.py"), MODELS, cases]
    process = subprocess.run(command, env=os.environ | interpreted, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    assert process.stdout.startswith(f"{count} cases agree")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="takes the branches for CUDA: needs a CUDA device")
@torch.no_grad()
def test_on_cuda_the_kernels_are_taken_and_give_what_dense_products_give():
    from maskwise.models import experts, quantise
    from maskwise.models.layers import GatedMLP

    draws = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.randn(*shape, generator=draws).to("cuda", torch.bfloat16)

    def close(found, expected):
        assert found.dtype == torch.bfloat16
        assert (found.float() - expected.float()).norm() < quantise.TOLERANCE * expected.float().norm()

    weight = drawn(96, 128)
    numbers, scale = quantise.rounded_rows(weight)
    int4 = quantise.Int4Linear.of(weight, None)
    dense = quantise.from_groups(*quantise.rounded_groups(weight))
    assert quantise.works("fp8", weight) and quantise.works("int4", weight) and quantise.KERNELS
    for count in (1, 16, 17, 32, 33, 64, 65):
        rows = drawn(count, 128)
        close(
            quantise.float8_product(rows, numbers, scale[:, 0].contiguous()),
            quantise.float8_reference(rows, numbers, scale[:, 0]),
        )
        close(int4.product(rows), rows.float() @ dense.t())

    torch.manual_seed(0)
    mixture = experts.Experts(experts.Router(64, 5, 2), [GatedMLP(64, 32) for _ in range(5)])
    for weight in mixture.parameters():
        weight.normal_(std=0.2)
    mixture = mixture.to("cuda", torch.bfloat16).requires_grad_(False)
    x = drawn(33, 64)
    without = mixture(x)
    assert mixture.summed is None
    mixture.lay_out()
    assert mixture.summed == torch.bfloat16
    close(mixture(x), without)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="takes the branches for CUDA: needs a CUDA device")
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@torch.no_grad()
def test_on_cuda_a_pass_of_few_rows_over_a_cache_gives_what_torchs_kernels_give(compiled, monkeypatch):
    from helpers.tiny import tiny_llada
    from maskwise.models import few, layouts, packing
    from maskwise.models.batch import Batch

    model = tiny_llada(width=128, mlp_hidden_size=256, window=1024)
    model.core.to("cuda", torch.bfloat16)
    if compiled:
        model.compile_layers()
    lengths, rows = [700, 340], 6
    ids = torch.randint(60, (sum(lengths),), generator=torch.Generator().manual_seed(0)).tolist()
    canvases = [ids[: lengths[0]], ids[lengths[0] :]]

    def last_rows():
        cache = model.new_cache(lengths)
        model.hidden(Batch.pack(canvases, model.device), cache)
        spans = Batch.spans([one[-rows:] for one in canvases], [n - rows for n in lengths], model.device)
        return model.hidden(spans, cache)

    few._found.clear()
    with packing.packed_products(model.net):
        found = last_rows()
    assert {key[0] for key in few._found} == {"attention", "products"} and all(few._found.values())
    monkeypatch.setattr(layouts, "splits_keys", lambda _: False)
    expected = last_rows()
    assert (found - expected).float().norm() < 5e-2 * expected.float().norm()  # rounded anew in each of two layers
