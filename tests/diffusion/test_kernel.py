"""The Triton kernel against the PyTorch path; on a machine without CUDA it runs in Triton's interpreter."""

import importlib

import pytest
import torch

from maskwise.diffusion.fused import _ce_tv_in_place

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture(scope="module")
def kernel():
    """The module; a kernel is interpreted if the variable is set when it is defined and while it runs."""
    with pytest.MonkeyPatch.context() as patch:
        if DEVICE == "cpu":
            patch.setenv("TRITON_INTERPRET", "1")
        yield importlib.import_module("maskwise.diffusion.ce_tv_kernel")


@pytest.mark.parametrize("block", [64, 4096])
@pytest.mark.parametrize("size", [1.0, 100.0])
@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16])
def test_the_kernel_gives_what_pytorch_gives(kernel, monkeypatch, block, size, out):
    monkeypatch.setattr(kernel, "BLOCK", block)
    g = torch.Generator().manual_seed(0)
    rows, vocab, mask_id = 5, 300, 17
    logits = torch.randn(2 * rows, vocab, generator=g) * size
    logits[rows] = logits[0]
    logits[:, mask_id] = -torch.inf
    targets = torch.randint(mask_id + 1, vocab, (rows,), generator=g)
    ce_weights, tv_weights = torch.rand(rows, generator=g), torch.rand(rows, generator=g)
    wanted = _ce_tv_in_place(logits.double(), targets, ce_weights.double(), tv_weights.double(), torch.float64)
    placed = [x.to(DEVICE) for x in (logits, targets, ce_weights, tv_weights)]
    ce, tv, grad = (x.cpu().double() for x in kernel.ce_tv_kernel(*placed, out))
    torch.testing.assert_close(ce, wanted[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(tv, wanted[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(grad, wanted[2], rtol=1e-5 if out == torch.float32 else 1e-2, atol=1e-6)
    assert tv[0] == 0 and torch.count_nonzero(grad[:, mask_id]) == 0
