"""The Triton kernel against the PyTorch path; on a machine without CUDA it runs in Triton's interpreter."""

import os

import pytest
import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
if DEVICE == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernel is defined

from maskwise.diffusion import ce_tv_kernel  # noqa: E402
from maskwise.diffusion.fused import _ce_tv_in_place  # noqa: E402


@pytest.mark.parametrize("block", [64, 4096])
@pytest.mark.parametrize("size", [1.0, 100.0])
@pytest.mark.parametrize("out", [torch.float32, torch.bfloat16])
def test_the_kernel_gives_what_pytorch_gives(monkeypatch, block, size, out):
    monkeypatch.setattr(ce_tv_kernel, "BLOCK", block)
    g = torch.Generator().manual_seed(0)
    rows, vocab, mask_id = 5, 300, 17
    logits = torch.randn(2 * rows, vocab, generator=g) * size
    logits[rows] = logits[0]
    logits[:, mask_id] = -torch.inf
    targets = torch.randint(mask_id + 1, vocab, (rows,), generator=g)
    ce_weights, tv_weights = torch.rand(rows, generator=g), torch.rand(rows, generator=g)
    wanted = _ce_tv_in_place(logits.double(), targets, ce_weights.double(), tv_weights.double(), torch.float64)
    placed = [x.to(DEVICE) for x in (logits, targets, ce_weights, tv_weights)]
    ce, tv, grad = (x.cpu().double() for x in ce_tv_kernel.ce_tv_kernel(*placed, out))
    torch.testing.assert_close(ce, wanted[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(tv, wanted[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(grad, wanted[2], rtol=1e-5 if out == torch.float32 else 1e-2, atol=1e-6)
    assert tv[0] == 0 and torch.count_nonzero(grad[:, mask_id]) == 0
