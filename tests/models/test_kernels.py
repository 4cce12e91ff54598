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
    ("cases", "count"), [("few", 6), pytest.param("all", 16, marks=pytest.mark.slow)], ids=["few", "all"]
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
    from maskwise.models.families import quantise

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


@pytest.mark.skipif(not torch.cuda.is_available(), reason="takes the branches for CUDA: needs a CUDA device")
@pytest.mark.parametrize("shared", [False, True], ids=["experts", "shared"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@torch.no_grad()
def test_on_cuda_experts_take_the_kernels_and_give_what_pytorch_gives(dtype, shared):
    from maskwise.models.families import experts
    from maskwise.models.families.layers import GatedMLP
    from maskwise.models.families.llada2 import LLaDA2Config, SharedExperts

    torch.compiler.reset()  # torch compiles a function a few times, and then no more
    if shared:
        mixture = SharedExperts(LLaDA2Config(
            hidden_size=64, moe_intermediate_size=32, num_experts=12, num_experts_per_tok=3, n_group=4, topk_group=2
        ))  # fmt: skip
    else:
        mixture = experts.Experts(experts.Router(64, 5, 2), [GatedMLP(64, 32) for _ in range(5)])
    draws = torch.Generator().manual_seed(0)
    for tensor in (*mixture.parameters(), *mixture.buffers()):
        tensor.normal_(std=0.2, generator=draws)
    mixture = mixture.to("cuda", dtype).requires_grad_(False)

    def close(found, expected):
        assert found.dtype == dtype
        assert (found.float() - expected.float()).norm() < 1e-2 * expected.float().norm()

    for count in (33, 1, 2000):
        x = torch.randn(count, 64, generator=draws).to("cuda", dtype)
        mixture.to(dtype)
        assert mixture.kernels is None
        without = mixture(x, x)
        mixture.lay_out()
        assert mixture.kernels == dtype and mixture.gate.kernel and mixture.grouped is not None
        close(mixture(x, x), without)
        with torch.enable_grad():
            close(mixture(x, x), without)
        close(torch.compile(mixture, dynamic=True)(x, x), without)
        if not mixture.waits:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                recorded = mixture(x, x)
            graph.replay()
            assert torch.equal(recorded, mixture(x, x))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="takes the branches for CUDA: needs a CUDA device")
@pytest.mark.parametrize("compiled", [False, True], ids=["plain", "compiled"])
@torch.no_grad()
def test_on_cuda_a_pass_of_few_rows_over_a_cache_gives_what_torchs_kernels_give(compiled, monkeypatch):
    from helpers.tiny import tiny_llada
    from maskwise.kernels import small_batch as few
    from maskwise.models.attention import layouts
    from maskwise.models.batch import Batch
    from maskwise.models.families import packing

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
