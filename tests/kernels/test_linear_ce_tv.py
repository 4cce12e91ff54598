"""Cross-entropy and total variation of logits, with gradients, equal autograd in float64."""

import torch
import torch.nn.functional as F

from helpers.interpreted import DEVICE, DONE, run_cases


def test_linear_ce_tv_equals_plain_losses_and_gradients():
    run_cases(__file__, "all")


def plain(logits, targets, ce_weights, tv_weights=None):
    """Per-row losses and the gradient of their sum; logits [n, V], or [2n, V] of two views with tv_weights."""
    wide = logits.double().requires_grad_()
    views = wide.split(len(targets))
    losses = [ce_weights.double() * sum(F.cross_entropy(z, targets, reduction="none") for z in views) / len(views)]
    if tv_weights is not None:
        p1, p2 = (z.softmax(dim=-1) for z in views)
        losses.append(tv_weights.double() * (p1 - p2).abs().sum(dim=-1))
    sum(losses).sum().backward()
    return [*(loss.detach() for loss in losses), wide.grad]


def compare(kernel, block, size, out):
    kernel.BLOCK = block
    g = torch.Generator().manual_seed(0)
    rows, vocab, mask_id = 5, 300, 17
    logits = torch.randn(2 * rows, vocab, generator=g) * size
    logits[rows] = logits[0]
    logits[:, mask_id] = -torch.inf
    targets = torch.randint(mask_id + 1, vocab, (rows,), generator=g)
    ce_weights, tv_weights = torch.rand(rows, generator=g), torch.rand(rows, generator=g)

    def check(found, given):
        expected = plain(*given)
        for one, other, atol in zip(found[:-1], expected[:-1], (1e-5, 1e-6), strict=False):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=atol)
        rtol = 1e-5 if out == torch.float32 else 1e-2
        torch.testing.assert_close(found[-1], expected[-1], rtol=rtol, atol=1e-6)
        assert torch.count_nonzero(found[-1][:, mask_id]) == 0

    def run(function, given):
        return [x.cpu().double() for x in function(*(x.clone().to(DEVICE) for x in given), out)]

    two_views = logits, targets, ce_weights, tv_weights
    found = run(kernel.ce_tv, two_views)
    check(found, two_views)
    assert found[1][0] == 0, "equal views have no variation"
    one_view = logits[:rows], targets, ce_weights
    check(run(kernel.ce, one_view), one_view)


def main():
    from maskwise.kernels import linear_ce_tv as kernel

    assert kernel.agrees(DEVICE)
    for name in ("ce", "ce_tv"):
        right = getattr(kernel, name)
        setattr(kernel, name, lambda *given, right=right: [1.01 * x for x in right(*given)])
        assert not kernel.agrees(DEVICE), "a wrong kernel is found"
        setattr(kernel, name, right)
    for block in (64, 4096):
        for size in (1.0, 100.0):
            for out in (torch.float32, torch.bfloat16):
                compare(kernel, block, size, out)
    print(DONE)


if __name__ == "__main__":
    main()
