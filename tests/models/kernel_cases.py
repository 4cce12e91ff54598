"""Holds the Triton kernels against plain arithmetic; started by test_kernels.py in a process of its own.

`few` of the cases: one of each kernel with every edge (rows, outputs and inputs past a tile, a split sum), and the
functions under torch's operators, whose first call imports the compiler, which takes as long as all of these cases.
"""

import importlib.util
import subprocess
import sys
import warnings
from pathlib import Path

import torch

FOLDER, FEW = Path(sys.argv[1]), sys.argv[2:] == ["few"]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALF = torch.float16 if DEVICE == "cpu" else torch.bfloat16  # Triton's interpreter multiplies bf16 wrongly
DIGITS = 2e-3 if DEVICE == "cpu" else 2e-2
FLOAT8 = torch.float8_e4m3fn


def load(name: str):
    """A file on its own: the other imports of its package take seconds."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[f"maskwise.models.{name}"] = module  # an operator is registered once
    return module


kernels, mixing, split = load("few_rows"), load("expert_kernels"), load("few_rows_attention")
operators = (
    kernels.float8_parts, kernels.int4_parts, kernels.half_parts, split.few_rows_attention,
    mixing.choose_experts, mixing.spread_rows, mixing.gated, mixing.expert_sums,
)  # fmt: skip
plain = [one._init_fn for one in operators] if FEW else operators
kernels.float8_parts, kernels.int4_parts, kernels.half_parts, few_rows_attention = plain[:4]
choose_experts, spread_rows, gated, expert_sums = plain[4:]
float8_few_rows, int4_few_rows, half_few_rows = kernels.float8_few_rows, kernels.int4_few_rows, kernels.half_few_rows


def agree(found: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float) -> None:
    """torch.testing would import a second's worth of other packages."""
    assert found.dtype == expected.dtype and found.shape == expected.shape
    wrong = (found - expected).abs() > atol + rtol * expected.abs()
    assert not wrong.any() and found.isfinite().all(), f"{int(wrong.sum())} of {wrong.numel()} differ"


def numbers(*shape: int, seed: int) -> torch.Tensor:
    """Any of E4M3: every sign, exponent and mantissa, subnormal ones too, but not the two that are no numbers."""
    bits = torch.randint(0, 127, shape, generator=torch.Generator().manual_seed(seed))
    signs = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed + 1)) * 128
    return (bits + signs).to(torch.uint8).view(FLOAT8)


def compare_float8(n: int, outer: int, inner: int, split: int, tile: int) -> None:
    kernels.float8_tiles = lambda *_: kernels.Tiles(tile, 32, split, 4, 2)
    weight, rows = numbers(outer, inner, seed=0), numbers(n, inner, seed=2)
    weight[outer // 2] = 0
    rows[n // 2] = 0
    draws = torch.Generator().manual_seed(4)
    scale, row_scale = torch.rand(outer, generator=draws), torch.rand(n, 1, generator=draws) * 1e3
    given = [x.to(DEVICE) for x in (rows, row_scale, weight, scale)]
    found = float8_few_rows(*given, torch.float32)
    expected = (rows.double() * row_scale) @ (weight.double() * scale[:, None]).t()
    agree(found.cpu().double(), expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max()))
    assert not found[n // 2].any() and not found[:, outer // 2].any()
    assert torch.equal(found, float8_few_rows(*given, torch.float32)), "other bits"
    alone = float8_few_rows(given[0][:1].clone(), given[1][:1], *given[2:], torch.float32)
    assert torch.equal(alone, found[:1]), "a row depends on the others"


def compare_half(n: int, outer: int, inner: int, split: int, tile: int) -> None:
    kernels.half_tiles = lambda *_: kernels.Tiles(tile, 32, split, 4, 2)
    draws = torch.Generator().manual_seed(0)
    rows, weight = (torch.randn(count, inner, generator=draws).to(HALF) for count in (n, outer))
    given = rows.to(DEVICE), weight.to(DEVICE)
    found, expected = half_few_rows(*given), rows.double() @ weight.double().t()
    agree(found.cpu().double(), expected, rtol=DIGITS, atol=DIGITS * float(expected.abs().mean()))
    assert torch.equal(found, half_few_rows(*given)), "other bits"
    assert torch.equal(half_few_rows(given[0][:1].clone(), given[1]), found[:1]), "a row depends on the others"


def widened_exactly() -> None:
    """Every number times one, so that nothing is rounded: rows are unit vectors."""
    kernels.float8_tiles = lambda *_: kernels.Tiles(16, 32, 2, 4, 2)
    every = torch.arange(256, dtype=torch.uint8).view(FLOAT8)
    every = every[every.float().isfinite()].repeat(2)[: 16 * 16].view(16, 16)
    units = torch.eye(16).to(FLOAT8)
    ones = torch.ones(16, device=DEVICE)
    found = float8_few_rows(units.to(DEVICE), ones, every.to(DEVICE), ones, torch.float32)
    assert torch.equal(found.cpu(), every.float().t())


def compare_rounding() -> None:
    x = torch.randn(5, 100, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 5)[:, None]
    x[2] = 0
    found, scale = (y.cpu() for y in kernels.rounded(x.to(DEVICE)))
    agree(scale, x.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 448, rtol=1e-6, atol=0)
    rounded = (x / scale).to(FLOAT8).float()
    wrong = found.float() != rounded
    if DEVICE == "cpu":  # Triton's interpreter forgets to carry where a number is rounded up to a power of two
        wrong &= ~((rounded.abs().frexp().mantissa == 0.5) & (rounded.abs() > (x / scale).abs()))
    assert not wrong.any() and not found[2].float().any()


def nan_stays_in_its_row() -> None:
    kernels.float8_tiles = lambda *_: kernels.Tiles(16, 32, 1, 4, 2)
    x = torch.randn(4, 100, generator=torch.Generator().manual_seed(0))
    x[1, 7], x[2] = torch.nan, -torch.tensor(torch.nan)  # some and all, of either sign
    given, scale = kernels.rounded(x.to(DEVICE))
    ones = torch.ones(16, 100, device=DEVICE).to(FLOAT8), torch.ones(16, device=DEVICE)
    found = float8_few_rows(given, scale, *ones, torch.float32)
    for is_nan in (scale.isnan(), found.isnan()):
        assert is_nan[1:3].all() and not is_nan[0].any() and not is_nan[3].any()


def compare_int4(n: int, outer: int, groups: int, split: int, tile: int) -> None:
    kernels.int4_tiles = lambda *_: kernels.Tiles(tile, 64, split, 4, 2)
    draws = torch.Generator().manual_seed(0)
    q = torch.randint(0, 16, (outer, groups, 64), generator=draws)
    weight = (q[..., :32] + 16 * q[..., 32:]).transpose(0, 1).contiguous().to(torch.uint8)
    scale = torch.rand(groups, outer, 2, generator=draws).to(HALF)
    scale[:, outer // 2] = 0
    rows = torch.randn(n, groups * 64, generator=draws).to(HALF)
    given = [x.to(DEVICE) for x in (rows, weight, scale)]
    found = int4_few_rows(*given)
    size, offset = scale.double().transpose(0, 1)[..., None].unbind(2)
    expected = rows.double() @ ((q - 8) * size + offset).flatten(1).t()
    size = float(expected.abs().mean())
    agree(found.cpu().double(), expected, rtol=DIGITS, atol=DIGITS * size)
    assert not found[:, outer // 2].any() and torch.equal(found, int4_few_rows(*given))
    assert torch.equal(int4_few_rows(given[0][:1].clone(), *given[1:]), found[:1])


def compare_choice(tokens: int, experts: int, groups: int, kept: int, count: int, biased: bool) -> None:
    """Against sorting, token by token; the first has ties alone, one more has no number among its logits."""
    draws = torch.Generator().manual_seed(0)
    logits = torch.cat((torch.full((1, experts), 0.3), 2 * torch.randn(tokens, experts, generator=draws)))
    bias = torch.randint(0, 2, (experts,), generator=draws) / 8 if biased else None
    given = (None if bias is None else bias.to(DEVICE)), count, groups, kept, count > 1, 2.5
    share, chosen = (x.cpu() for x in choose_experts(logits.to(DEVICE), *given))
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
    share, chosen = (x.cpu() for x in choose_experts(logits.to(DEVICE), *given))
    assert share[1].isnan().any() and share[[0, *range(2, tokens + 1)]].isfinite().all()
    assert chosen.min() >= 0 and chosen.max() < experts and all(len(set(row)) == count for row in chosen.tolist())


def compare_spread(tokens: int, chosen: int, width: int, kind: torch.dtype) -> None:
    draws = torch.Generator().manual_seed(0)
    x, place = torch.randn(tokens, width, generator=draws).to(kind), torch.randperm(tokens * chosen, generator=draws)
    expected = torch.empty(tokens * chosen, width, dtype=kind)
    for number, to in enumerate(place.tolist()):
        expected[to] = x[number // chosen]
    assert torch.equal(spread_rows(x.to(DEVICE), place.to(DEVICE)).cpu(), expected)


def compare_gated(count: int, inner: int, kind: torch.dtype) -> None:
    """Both steps rounded to the type; where one lies between two numbers, either may be kept."""
    both = (4 * torch.randn(count, 2 * inner, generator=torch.Generator().manual_seed(0))).to(kind)
    both[0, :2] = torch.tensor([100.0, -100.0])
    found = gated(both.to(DEVICE)).cpu()
    gate, up = both[:, :inner], both[:, inner:]
    opened = (gate.double() / (1 + (-gate.double()).exp())).to(kind)
    expected = (opened.double() * up.double()).to(kind)
    agree(found, expected, rtol=1e-6 if kind == torch.float32 else 2 * DIGITS, atol=1e-30)
    assert kind == torch.float32 or (found == expected).float().mean() > 0.99


def compare_sums(tokens: int, chosen: int, width: int, *types: torch.dtype) -> None:
    """Against the sum token by token, each product rounded to the type of the shares; types: said, shares, sums."""
    said_type, share_type, out = types
    draws = torch.Generator().manual_seed(0)
    said = torch.randn(tokens * chosen, width, generator=draws).to(said_type)
    place = torch.randperm(tokens * chosen, generator=draws)
    share = torch.rand(tokens, chosen, generator=draws).to(share_type)
    others = [torch.randn(tokens, width, generator=draws).to(out) for _ in range(2)]
    for beside in ([], others[:1], others):
        given = said.to(DEVICE), place.to(DEVICE), share.to(DEVICE), out, [one.to(DEVICE) for one in beside]
        found = expert_sums(*given).cpu()
        for token in range(tokens):
            expected = torch.zeros(width)
            for number in range(chosen):
                row = said[place[token * chosen + number]]
                expected += (row.to(share_type) * share[token, number]).to(share_type).float()
            expected = sum((one[token] for one in beside), expected.to(out))
            rtol = 1e-6 if out == torch.float32 else DIGITS  # between two numbers, either may be kept
            agree(found[token], expected, rtol=rtol, atol=rtol * len(beside) + 1e-6)


def nothing_gives_nothing() -> None:
    none = torch.zeros(0, 6, device=DEVICE)
    place = torch.zeros(0, dtype=torch.int64, device=DEVICE)
    assert [x.shape for x in choose_experts(none, None, 2, 1, 1, True, 1.0)] == [(0, 2)] * 2
    assert spread_rows(none, place).shape == (0, 6) and gated(none).shape == (0, 3)
    assert expert_sums(none, place, none[:, :2], HALF, [none]).shape == (0, 6)


def compiles() -> None:
    """The operators say what they give before they run."""
    small, numbers8 = torch.full((3, 1), 1e-4, device=DEVICE), numbers(3, 64, seed=0).to(DEVICE)
    of_float8 = (numbers8, small, numbers(20, 64, seed=2).to(DEVICE), torch.ones(20, device=DEVICE), torch.float16)
    scale = torch.ones(1, 20, 2, device=DEVICE, dtype=torch.float16)
    pairs = torch.randint(0, 256, (1, 20, 32), device=DEVICE, dtype=torch.uint8)
    of_int4 = (torch.ones(3, 64, device=DEVICE, dtype=torch.float16), pairs, scale)
    of_half = of_int4[0], torch.ones(20, 64, device=DEVICE, dtype=torch.float16)
    said = torch.ones(6, 20, device=DEVICE)
    place, other = torch.arange(6, device=DEVICE), torch.ones(3, 20, device=DEVICE, dtype=torch.float16)
    of_sums = said, place, torch.ones(3, 2, device=DEVICE), torch.float16, [other]
    of_choice = said, torch.ones(20, device=DEVICE), 3, 4, 2, True, 1.0
    q, ends = torch.ones(3, 2, 16, device=DEVICE, dtype=torch.float16), torch.tensor([0, 3], device=DEVICE).int()
    of_attention = q, q[:, :1].contiguous(), q[:, :1].contiguous(), ends, ends, 3, 3, 1.0
    of_experts = of_choice, (said[:3], place), (said,), of_sums
    for operator, given in zip(operators, (of_float8, of_int4, of_half, of_attention, *of_experts), strict=True):
        torch.library.opcheck(operator, given, test_utils="test_faketensor")
    calls = [
        (float8_few_rows, of_float8), (int4_few_rows, of_int4), (half_few_rows, of_half), (expert_sums, of_sums),
    ]  # fmt: skip
    for call, given in calls:
        with torch.inference_mode():
            assert call(*given).shape == (3, 20) and call(*given).dtype == torch.float16
    added = torch.compile(kernels._added, backend="aot_eager", fullgraph=True)
    parts = torch.randn(3, 5, 20, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    agree(added(parts, torch.float32), kernels._added(parts, torch.float32), rtol=1e-6, atol=1e-6)


def compare_attention(heads: int, groups: int, width: int, rows: list[int], keys: list[int]) -> None:
    """Against softmax written out, sequence by sequence; parts of 32 keys, 5 at most, 16 at a time, 16 rows a tile."""
    split.PART, split.KEYS, split.MOST_ROWS, split.MOST_PARTS = 32, 16, 16, 5
    draws = torch.Generator().manual_seed(0)
    q = 3 * torch.randn(sum(rows), heads, width, generator=draws).to(HALF)
    k, v = (torch.randn(sum(keys), groups, width, generator=draws).to(HALF) for _ in range(2))
    ends = [torch.tensor([0, *counts]).cumsum(0).int() for counts in (rows, keys)]

    def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, ends: list[torch.Tensor]) -> torch.Tensor:
        longest = [int(one.diff().max()) for one in ends]
        return few_rows_attention(*(x.to(DEVICE) for x in (q, k, v, *ends)), *longest, 0.3).cpu()

    found = attended(q, k, v, ends)
    assert torch.equal(found, attended(q, k, v, ends)), "other bits"
    for asked, seen in zip(*(torch.stack((one[:-1], one[1:]), dim=1).tolist() for one in ends), strict=True):
        mine = q[slice(*asked)], k[slice(*seen)], v[slice(*seen)]
        wide = [x.double().repeat_interleave(heads // x.shape[1], dim=1) for x in mine]
        weights = (torch.einsum("qhd,khd->hqk", wide[0], wide[1]) * 0.3).softmax(dim=-1)
        expected = torch.einsum("hqk,khd->qhd", weights, wide[2])
        agree(found[slice(*asked)].double(), expected, rtol=DIGITS, atol=DIGITS)
        alone = attended(*mine, [torch.tensor([0, len(x)]).int() for x in mine[:2]])
        if max(keys) <= 32 * 5:
            assert torch.equal(alone, found[slice(*asked)]), "a sequence depends on the others"


@torch.no_grad()
def experts_use_what_was_tried() -> None:
    """The kernels in their place; and what is said where they fail or are wrong."""
    from maskwise.kernels.gate import works_here
    from maskwise.models.families import experts
    from maskwise.models.families.layers import GatedMLP

    sys.modules["maskwise.models"].expert_kernels = mixing  # as an import of it would do
    mixture = experts.Experts(experts.Router(16, 5, 2), [GatedMLP(16, 24) for _ in range(5)]).requires_grad_(False)
    for seed, weight in enumerate(mixture.parameters()):
        weight.normal_(generator=torch.Generator().manual_seed(seed))
    mixture, x = mixture.to(DEVICE), torch.randn(7, 16, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    assert experts._agree(torch.device(DEVICE), HALF)
    names = ("choose_experts", "spread_rows", "gated", "expert_sums")
    right, used = {name: getattr(mixing, name) for name in names}, []
    for grouped in (False, True):
        if grouped:
            mixture.lay_out()
        mixture._use(None)
        expected = mixture(x, x), mixture(x)
        mixture._use(torch.float32)
        for name in names:
            setattr(mixing, name, lambda *given, name=name: used.append(name) or right[name](*given))
        agree(mixture(x, x), expected[0], rtol=1e-4, atol=1e-4)
        agree(mixture(x), expected[1], rtol=1e-4, atol=1e-4)
        assert set(used) == {*names} - ({"gated"} if not grouped else set())
        used.clear()
        with torch.enable_grad():
            mixture(x, x)
        assert not used
        mixture._use(HALF)  # under autocast x may be in float32; what is said in another type is added up by PyTorch
        agree(mixture(x, x), expected[0], rtol=1e-4, atol=1e-4)
        assert "spread_rows" in used and "expert_sums" not in used
        used.clear()
        mixture._use(torch.float32)
        vars(mixing).update(right)
        compiled = torch.compile(mixture, backend="aot_eager", dynamic=True)
        agree(compiled(x, x), expected[0], rtol=1e-4, atol=1e-4)
    assert mixture.to(DEVICE).kernels is None and not mixture.gate.kernel, "weights that moved are looked at anew"

    def failing(*_):
        raise subprocess.CalledProcessError(1, "gcc")

    def off(name):
        def wrong(*given):
            out = right[name](*given)
            return (out[0] * 1.1, out[1]) if isinstance(out, tuple) else out * 1.1

        return wrong

    for name, wrong, why in (("gated", failing, "gcc"), *((name, off(name), "other numbers") for name in names)):
        setattr(mixing, name, wrong)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            assert not works_here(lambda: experts._agree(torch.device(DEVICE), HALF), "experts: by PyTorch")
        assert why in str(said[-1].message), said
        vars(mixing).update(right)


of_float8 = [(17, 40, 100, 2, 32), (1, 48, 128, 1, 16), (5, 16, 16, 1, 16), (33, 70, 200, 3, 32)]
of_int4 = [(17, 40, 3, 2, 32), (1, 16, 1, 1, 16), (33, 17, 5, 3, 16)]
of_choice = [(5, 15, 5, 2, 3, True), (4, 11, 1, 1, 3, False), (3, 64, 4, 4, 1, True), (2, 256, 8, 4, 8, True)]
of_sums = [(7, 3, 20), (1, 1, 16)]
of_attention = [(6, 2, 16, [6, 1, 3], [33, 5, 100]), (2, 2, 32, [20, 1], [270, 20]), (3, 3, 16, [1], [20])]
types = [(HALF, torch.float32, HALF), (HALF, torch.float32, torch.float32), (HALF, HALF, HALF), (torch.float32,) * 3]
if FEW:
    of_float8, of_int4, of_sums, of_attention = of_float8[:1], of_int4[:1], of_sums[:1], of_attention[:1]
    of_choice = of_choice[:2]
for case in of_float8:
    compare_float8(*case)
    compare_half(*case)
for case in of_int4:
    compare_int4(*case)
for case in of_choice:
    compare_choice(*case)
for case in of_sums:
    for kind in (HALF, torch.float32):
        compare_spread(*case, kind)
        compare_gated(case[0] * case[1], case[2], kind)
    for kinds in types:
        compare_sums(*case, *kinds)
nothing_gives_nothing()
for case in of_attention:
    compare_attention(*case)
compare_rounding()
nan_stays_in_its_row()
if not FEW:
    widened_exactly()
    compiles()
    experts_use_what_was_tried()
counted = of_float8, of_int4, of_choice, of_sums, of_attention
print(f"{sum(map(len, counted))} cases agree on {DEVICE}")
