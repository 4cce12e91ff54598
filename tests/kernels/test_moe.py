"""The kernels of a mixture of experts (routing, sorted rows, gate, weighted sums) equal sums token by token."""

import subprocess
import sys
import warnings

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

OPERATORS = ("choose_experts", "spread_rows", "gated", "expert_sums")
# tokens, experts, groups, groups kept, chosen experts, with a bias
CHOICES = [(5, 15, 5, 2, 3, True), (4, 11, 1, 1, 3, False), (3, 64, 4, 4, 1, True), (2, 256, 8, 4, 8, True)]
SUMS = [(7, 3, 20), (1, 1, 16)]  # tokens, chosen experts, width
TYPES = [(HALF, torch.float32, HALF), (HALF, torch.float32, torch.float32), (HALF, HALF, HALF), (torch.float32,) * 3]


@pytest.mark.slow
@few_and_all
def test_moe_equals_plain_operations(cases):
    run_cases(__file__, cases)


def compare_choice(kernel, tokens, experts, groups, kept, count, biased):
    """Against sorting, token by token; the first token has ties alone, one more has a NaN among its logits."""
    draws = torch.Generator().manual_seed(0)
    logits = torch.cat((torch.full((1, experts), 0.3), 2 * torch.randn(tokens, experts, generator=draws)))
    bias = torch.randint(0, 2, (experts,), generator=draws) / 8 if biased else None
    given = (None if bias is None else bias.to(DEVICE)), count, groups, kept, count > 1, 2.5
    share, chosen = (x.cpu() for x in kernel.choose_experts(logits.to(DEVICE), *given))
    assert share.dtype == torch.float32 and chosen.dtype == torch.int64
    scores = logits.double().sigmoid() if biased else logits.double().softmax(dim=-1)
    worth = (scores + bias if biased else scores).tolist()
    for token in range(tokens + 1):
        size = experts // groups
        parts = [range(group * size, (group + 1) * size) for group in range(groups)]
        best = {
            group: sum(sorted((worth[token][e] for e in part), reverse=True)[:2]) for group, part in enumerate(parts)
        }
        inside = [e for group in sorted(best, key=lambda group: -best[group])[:kept] for e in parts[group]]
        expected = sorted(inside, key=lambda e: (-worth[token][e], e))[:count]
        assert chosen[token].tolist() == expected, (token, chosen[token], expected)
        shares = scores[token, expected] / (scores[token, expected].sum() if count > 1 else 1) * 2.5
        agree(share[token].double(), shares, rtol=2e-6, atol=0)
    logits[1, 1] = torch.nan
    share, chosen = (x.cpu() for x in kernel.choose_experts(logits.to(DEVICE), *given))
    assert share[1].isnan().any() and share[[0, *range(2, tokens + 1)]].isfinite().all()
    assert chosen.min() >= 0 and chosen.max() < experts and all(len(set(row)) == count for row in chosen.tolist())


def compare_spread(kernel, tokens, chosen, width, kind):
    draws = torch.Generator().manual_seed(0)
    x, place = torch.randn(tokens, width, generator=draws).to(kind), torch.randperm(tokens * chosen, generator=draws)
    expected = torch.empty(tokens * chosen, width, dtype=kind)
    for number, to in enumerate(place.tolist()):
        expected[to] = x[number // chosen]
    assert torch.equal(kernel.spread_rows(x.to(DEVICE), place.to(DEVICE)).cpu(), expected)


def compare_gated(kernel, count, inner, kind):
    """Both steps rounded to the type; where one lies between two numbers, either may be kept."""
    both = (4 * torch.randn(count, 2 * inner, generator=torch.Generator().manual_seed(0))).to(kind)
    both[0, :2] = torch.tensor([100.0, -100.0])
    found = kernel.gated(both.to(DEVICE)).cpu()
    gate, up = both[:, :inner], both[:, inner:]
    opened = (gate.double() / (1 + (-gate.double()).exp())).to(kind)
    expected = (opened.double() * up.double()).to(kind)
    agree(found, expected, rtol=1e-6 if kind == torch.float32 else 2 * DIGITS, atol=1e-30)
    assert kind == torch.float32 or (found == expected).float().mean() > 0.99


def compare_sums(kernel, tokens, chosen, width, *types):
    """Against the sum token by token, products rounded to the type of the shares; types: outputs, shares, sums."""
    output_type, share_type, out = types
    draws = torch.Generator().manual_seed(0)
    outputs = torch.randn(tokens * chosen, width, generator=draws).to(output_type)
    place = torch.randperm(tokens * chosen, generator=draws)
    share = torch.rand(tokens, chosen, generator=draws).to(share_type)
    others = [torch.randn(tokens, width, generator=draws).to(out) for _ in range(2)]
    for added in ([], others[:1], others):
        given = outputs.to(DEVICE), place.to(DEVICE), share.to(DEVICE), out, [one.to(DEVICE) for one in added]
        found = kernel.expert_sums(*given).cpu()
        for token in range(tokens):
            expected = torch.zeros(width)
            for number in range(chosen):
                row = outputs[place[token * chosen + number]]
                expected += (row.to(share_type) * share[token, number]).to(share_type).float()
            expected = sum((one[token] for one in added), expected.to(out))
            rtol = 1e-6 if out == torch.float32 else DIGITS  # between two numbers, either may be kept
            agree(found[token], expected, rtol=rtol, atol=rtol * len(added) + 1e-6)


def nothing_gives_nothing(kernel):
    none = torch.zeros(0, 6, device=DEVICE)
    place = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    assert [x.shape for x in kernel.choose_experts(none, None, 2, 1, 1, True, 1.0)] == [(0, 2)] * 2
    assert kernel.spread_rows(none, place).shape == (0, 6) and kernel.gated(none).shape == (0, 3)
    assert kernel.expert_sums(none, place, none[:, :2], HALF, [none]).shape == (0, 6)


def compiles(kernel):
    """The operators state what they return before they run."""
    outputs = torch.ones(6, 20, device=DEVICE)
    place, other = torch.arange(6, device=DEVICE), torch.ones(3, 20, device=DEVICE, dtype=torch.float16)
    of_sums = outputs, place, torch.ones(3, 2, device=DEVICE), torch.float16, [other]
    of_choice = outputs, torch.ones(20, device=DEVICE), 3, 4, 2, True, 1.0
    for name, given in zip(OPERATORS, (of_choice, (outputs[:3], place), (outputs,), of_sums), strict=True):
        torch.library.opcheck(getattr(kernel, name), given, test_utils="test_faketensor")
    with torch.inference_mode():
        found = kernel.expert_sums(*of_sums)
    assert found.shape == (3, 20) and found.dtype == torch.float16


@torch.no_grad()
def experts_use_the_kernels(kernel):
    """`Experts` gives the same with them, and leaves them where gradients or other types come in."""
    from maskwise.models.families import experts
    from maskwise.models.families.layers import GatedMLP

    mixture = experts.Experts(experts.Router(16, 5, 2), [GatedMLP(16, 24) for _ in range(5)]).requires_grad_(False)
    for seed, weight in enumerate(mixture.parameters()):
        weight.normal_(generator=torch.Generator().manual_seed(seed))
    mixture, x = mixture.to(DEVICE), torch.randn(7, 16, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    right, used = {name: getattr(kernel, name) for name in OPERATORS}, []
    for grouped in (False, True):
        if grouped:
            mixture.lay_out()
        mixture._use(None)
        expected = mixture(x, x), mixture(x)
        mixture._use(torch.float32)
        for name in OPERATORS:
            setattr(kernel, name, lambda *given, name=name: used.append(name) or right[name](*given))
        agree(mixture(x, x), expected[0], rtol=1e-4, atol=1e-4)
        agree(mixture(x), expected[1], rtol=1e-4, atol=1e-4)
        assert set(used) == {*OPERATORS} - ({"gated"} if not grouped else set())
        used.clear()
        with torch.enable_grad():
            mixture(x, x)
        assert not used
        mixture._use(HALF)  # under autocast x may be in float32; outputs of another type are added up by PyTorch
        agree(mixture(x, x), expected[0], rtol=1e-4, atol=1e-4)
        assert "spread_rows" in used and "expert_sums" not in used
        used.clear()
        mixture._use(torch.float32)
        vars(kernel).update(right)
        compiled = torch.compile(mixture, backend="aot_eager", dynamic=True)
        agree(compiled(x, x), expected[0], rtol=1e-4, atol=1e-4)
    assert mixture.to(DEVICE).kernels is None and not mixture.gate.kernel, "weights that moved are tried again"


def the_trial_finds_each_wrong_kernel(kernel):
    from maskwise.kernels import gate

    assert gate.kernel("moe", DEVICE, HALF) is kernel
    right = {name: getattr(kernel, name) for name in OPERATORS}

    def failing(*_):
        raise subprocess.CalledProcessError(1, "gcc")

    def off(name):
        def wrong(*given):
            out = right[name](*given)
            return (out[0] * 1.1, out[1]) if isinstance(out, tuple) else out * 1.1

        return wrong

    for name, wrong, why in (("gated", failing, "gcc"), *((name, off(name), "other numbers") for name in OPERATORS)):
        gate._verdicts.clear()
        setattr(kernel, name, wrong)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert gate.kernel("moe", DEVICE, HALF) is None
        assert why in str(said[-1].message), said
        vars(kernel).update(right)


def main(few):
    from maskwise.kernels import moe as kernel

    if few:
        without_operators(kernel, *OPERATORS)
    assert kernel.agrees(DEVICE, HALF)
    for case in CHOICES[:2] if few else CHOICES:
        compare_choice(kernel, *case)
    for case in SUMS[:1] if few else SUMS:
        for kind in (HALF, torch.float32):
            compare_spread(kernel, *case, kind)
            compare_gated(kernel, case[0] * case[1], case[2], kind)
        for kinds in TYPES:
            compare_sums(kernel, *case, *kinds)
    nothing_gives_nothing(kernel)
    if not few:
        the_trial_finds_each_wrong_kernel(kernel)
        compiles(kernel)
        experts_use_the_kernels(kernel)
    print(DONE)


@needs_a_card
@pytest.mark.parametrize("shared", [False, True], ids=["experts", "shared"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@torch.no_grad()
def test_on_cuda_experts_take_the_kernels_and_give_what_pytorch_gives(dtype, shared):
    from maskwise.models.families import experts
    from maskwise.models.families.layers import GatedMLP
    from maskwise.models.families.llada2 import LLaDA2Config, SharedExperts

    torch.compiler.reset()  # torch compiles a function a few times, and then no more
    if shared:
        groups = {"num_experts": 12, "num_experts_per_tok": 3, "n_group": 4, "topk_group": 2}
        mixture = SharedExperts(LLaDA2Config(hidden_size=64, moe_intermediate_size=32, **groups))
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


if __name__ == "__main__":
    main(few=sys.argv[1:] == ["few"])
