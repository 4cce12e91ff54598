"""Attention with split keys equals softmax attention written out, sequence by sequence."""

import sys

import pytest
import torch

from helpers.interpreted import (
    DEVICE,
    DIGITS,
    DONE,
    HALF,
    agree,
    few_and_all,
    needs_a_card,
    run_cases,
    without_operators,
)

CASES = [(6, 2, 16, [6, 1, 3], [33, 5, 100]), (2, 2, 32, [20, 1], [270, 20]), (3, 3, 16, [1], [20])]


@pytest.mark.slow
@few_and_all
def test_split_attention_equals_plain_attention(cases):
    run_cases(__file__, cases)


def plain(q, k, v, scale):
    """q [n, H, D], k and v [m, G, D] of one sequence -> [n, H, D], in float64."""
    q, k, v = (x.double().repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (q, k, v))
    weights = (torch.einsum("qhd,khd->hqk", q, k) * scale).softmax(dim=-1)
    return torch.einsum("hqk,khd->qhd", weights, v)


def compare(kernel, heads, groups, width, rows, keys):
    """Parts of 32 keys, 5 at most, 16 keys at a time, 16 rows per tile."""
    kernel.PART, kernel.KEYS, kernel.MOST_ROWS, kernel.MOST_PARTS = 32, 16, 16, 5
    draws = torch.Generator().manual_seed(0)
    q = 3 * torch.randn(sum(rows), heads, width, generator=draws).to(HALF)
    k, v = (torch.randn(sum(keys), groups, width, generator=draws).to(HALF) for _ in range(2))
    ends = [torch.tensor([0, *counts]).cumsum(0).int() for counts in (rows, keys)]

    def attended(q, k, v, ends):
        longest = [int(one.diff().max()) for one in ends]
        return kernel.split_attention(*(x.to(DEVICE) for x in (q, k, v, *ends)), *longest, 0.3).cpu()

    found = attended(q, k, v, ends)
    assert torch.equal(found, attended(q, k, v, ends)), "other bits"
    for queries, seen in zip(*(torch.stack((one[:-1], one[1:]), dim=1).tolist() for one in ends), strict=True):
        mine = q[slice(*queries)], k[slice(*seen)], v[slice(*seen)]
        agree(found[slice(*queries)].double(), plain(*mine, 0.3), rtol=DIGITS, atol=DIGITS)
        alone = attended(*mine, [torch.tensor([0, len(x)]).int() for x in mine[:2]])
        if max(keys) <= 32 * 5:
            assert torch.equal(alone, found[slice(*queries)]), "a sequence depends on the others"


def compiles(operator):
    """The operator states what it returns before it runs."""
    q, ends = torch.ones(3, 2, 16, device=DEVICE, dtype=torch.float16), torch.tensor([0, 3], device=DEVICE).int()
    given = q, q[:, :1].contiguous(), q[:, :1].contiguous(), ends, ends, 3, 3, 1.0
    torch.library.opcheck(operator, given, test_utils="test_faketensor")


def main(few):
    from maskwise.kernels import split_attention as kernel

    if few:
        without_operators(kernel, "split_attention")
    right = kernel.split_attention
    assert kernel.agrees(DEVICE, HALF, 16)
    for case in CASES[:1] if few else CASES:
        compare(kernel, *case)
    if not few:
        compiles(right)
        kernel.split_attention = lambda *given: 1.1 * right(*given)
        assert not kernel.agrees(DEVICE, HALF, 16), "a wrong kernel is found"
    print(DONE)


@needs_a_card
@torch.no_grad()
def test_on_cuda_a_pass_of_few_rows_over_a_cache_takes_both_split_kernels(monkeypatch):
    """`split_attention` and `small_batch_linear`, in plain and compiled layers, give what torch's own kernels give."""
    from helpers.tiny import tiny_llada
    from maskwise.kernels import gate
    from maskwise.models.attention import layouts
    from maskwise.models.batch import Batch
    from maskwise.models.families import packing

    for compiled in (False, True):
        model = tiny_llada(width=128, mlp_hidden_size=256, window=1024)
        model.core.to("cuda", torch.bfloat16)
        if compiled:
            model.compile_layers()
        lengths, rows = [700, 340], 6
        ids = torch.randint(60, (sum(lengths),), generator=torch.Generator().manual_seed(0)).tolist()
        canvases = [ids[: lengths[0]], ids[lengths[0] :]]

        def last_rows(model=model, canvases=canvases, lengths=lengths, rows=rows):
            cache = model.new_cache(lengths)
            model.hidden(Batch.pack(canvases, model.device), cache)
            spans = Batch.spans([one[-rows:] for one in canvases], [n - rows for n in lengths], model.device)
            return model.hidden(spans, cache)

        gate._verdicts.clear()
        with packing.packed_products(model.net):
            found = last_rows()
        assert {key[0] for key in gate._verdicts} == {"split_attention", "small_batch_linear"}
        assert None not in gate._verdicts.values()
        with monkeypatch.context() as patched:
            patched.setattr(layouts, "_can_split", lambda _: False)
            expected = last_rows()
        assert (found - expected).float().norm() < 5e-2 * expected.float().norm()  # rounded in each of two layers


if __name__ == "__main__":
    main(few=sys.argv[1:] == ["few"])
