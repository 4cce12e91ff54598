"""Row d: output head, cross-entropy and total variation, forward and backward."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.measure import Bench, Line, bound, check_close, line, timed
from maskwise import diffusion


def plain_loss(h1: Tensor, h2: Tensor, weight: Tensor, targets: Tensor, ce: Tensor, tv: Tensor) -> Tensor:
    log1, log2 = (F.linear(h, weight).float().log_softmax(-1) for h in (h1, h2))
    entropies = (F.nll_loss(log1, targets, reduction="none") + F.nll_loss(log2, targets, reduction="none")) / 2
    return (ce * entropies + tv * (log1.exp() - log2.exp()).abs().sum(-1)).sum()


def linear_ce_tv(bench: Bench) -> Iterator[Line]:
    vocab, width, sizes = (126464, 4096, (512, 2048, 8192)) if bench.full else (501, 32, (16, 64))
    dtype = torch.bfloat16 if bench.full else torch.float32
    draws = torch.Generator(bench.device).manual_seed(0)
    random = {"generator": draws, "device": bench.device, "dtype": dtype}
    weight = torch.randn(vocab, width, **random) * 0.02
    above: list[float] = []
    for rows in sizes:
        h1 = torch.randn(rows, width, **random)
        h2 = (h1 + 0.3 * torch.randn(rows, width, **random)).requires_grad_()
        h1 = h1.requires_grad_()
        targets = torch.randint(vocab, (rows,), generator=draws, device=bench.device)
        weights = torch.full((rows,), 1 / rows, device=bench.device)

        def ours(h1=h1, h2=h2, targets=targets, weights=weights) -> tuple[Tensor, ...]:
            loss = diffusion.linear_ce_tv(h1, h2, weight, targets, weights, weights).loss
            return (loss.detach(), *torch.autograd.grad(loss, (h1, h2)))

        def reference(h1=h1, h2=h2, targets=targets, weights=weights) -> tuple[Tensor, ...]:
            loss = plain_loss(h1, h2, weight, targets, weights, weights)
            return (loss.detach(), *torch.autograd.grad(loss, (h1, h2)))

        for what, a, b in zip(("loss", "gradient 1", "gradient 2"), ours(), reference(), strict=True):
            check_close(what, a, b, 5e-2 if bench.full else 1e-4)
        fast, slow = timed(bench.device, ours, repeats=10), timed(bench.device, reference, repeats=5)
        yield line(bench, "d", f"N {rows}", fast, slow, 8.0 * rows * width * vocab, 1.5)
        gradients = 2 * h1.numel() * h1.element_size() / 2**30
        above += [] if fast.above is None else [fast.above - gradients]
    growth = above[-1] / above[0] if above else None
    yield bound(bench, "d", "memory beyond inputs and gradients, largest N / smallest", "share", growth, 1.1)
