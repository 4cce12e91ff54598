"""Holds the Triton kernel against the PyTorch path; started by test_kernel.py in a process of its own."""

import importlib.util
import sys
from pathlib import Path

import torch

ROOM = Path(sys.argv[1])
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def load(name: str):
    """A file of the room on its own: the room's other imports take seconds."""
    spec = importlib.util.spec_from_file_location(name, ROOM / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


kernel, fused = load("ce_tv_kernel"), load("fused")


def compare(block: int, size: float, out: torch.dtype) -> None:
    kernel.BLOCK = block
    g = torch.Generator().manual_seed(0)
    rows, vocab, mask_id = 5, 300, 17
    logits = torch.randn(2 * rows, vocab, generator=g) * size
    logits[rows] = logits[0]
    logits[:, mask_id] = -torch.inf
    targets = torch.randint(mask_id + 1, vocab, (rows,), generator=g)
    ce_weights, tv_weights = torch.rand(rows, generator=g), torch.rand(rows, generator=g)
    wide = [x.double() for x in (logits, ce_weights, tv_weights)]
    wanted = fused._ce_tv_in_place(wide[0], targets, wide[1], wide[2], torch.float64)
    placed = [x.clone().to(DEVICE) for x in (logits, targets, ce_weights, tv_weights)]
    ce, tv, grad = (x.cpu().double() for x in kernel.ce_tv_kernel(*placed, out))
    torch.testing.assert_close(ce, wanted[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(tv, wanted[1], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(grad, wanted[2], rtol=1e-5 if out == torch.float32 else 1e-2, atol=1e-6)
    assert tv[0] == 0 and torch.count_nonzero(grad[:, mask_id]) == 0
    compare_one_view(logits[:rows], targets, ce_weights, out)


def compare_one_view(logits: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor, out: torch.dtype) -> None:
    """Against autograd in float64; the masked column gets no gradient."""
    wide = logits.double().requires_grad_()
    wanted = weights * torch.nn.functional.cross_entropy(wide, targets, reduction="none")
    wanted.sum().backward()
    ce, grad = (
        x.cpu().double() for x in kernel.ce_kernel(*(x.clone().to(DEVICE) for x in (logits, targets, weights)), out)
    )
    torch.testing.assert_close(ce, wanted.detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(grad, wide.grad, rtol=1e-5 if out == torch.float32 else 1e-2, atol=1e-6)
    assert not grad[logits.isinf()].any()


sys.modules["maskwise.kernels.linear_ce_tv"] = kernel
assert fused.kernels_agree(torch.device(DEVICE))
right, kernel.ce_kernel = kernel.ce_kernel, lambda *all_: [1.01 * x for x in right(*all_)]
assert not fused.kernels_agree(torch.device(DEVICE)), "a wrong kernel is found"
kernel.ce_kernel = right
cases = [(b, s, d) for b in (64, 4096) for s in (1.0, 100.0) for d in (torch.float32, torch.bfloat16)]
for case in cases:
    compare(*case)
print(f"{len(cases)} cases agree on {DEVICE}")
