"""Holds the Triton kernels against plain arithmetic; started by test_kernels.py in a process of its own."""

import importlib.util
import sys
from pathlib import Path

import torch

FOLDER = Path(sys.argv[1])
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FLOAT8 = torch.float8_e4m3fn


def load(name: str):
    """A file on its own: the other imports of its package take seconds."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


kernels, sums = load("few_rows"), load("expert_sums")


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
    found = torch.ops.maskwise.float8_few_rows(*given, torch.float32)
    expected = (rows.double() * row_scale) @ (weight.double() * scale[:, None]).t()
    torch.testing.assert_close(found.cpu().double(), expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max()))
    assert not found[n // 2].any() and not found[:, outer // 2].any()
    assert torch.equal(found, torch.ops.maskwise.float8_few_rows(*given, torch.float32)), "other bits"
    alone = torch.ops.maskwise.float8_few_rows(given[0][:1].clone(), given[1][:1], *given[2:], torch.float32)
    assert torch.equal(alone, found[:1]), "a row depends on the others"


def widened_exactly() -> None:
    """Every number times one, so that nothing is rounded: rows are unit vectors."""
    kernels.float8_tiles = lambda *_: kernels.Tiles(16, 32, 2, 4, 2)
    every = torch.arange(256, dtype=torch.uint8).view(FLOAT8)
    every = every[every.float().isfinite()].repeat(2)[: 16 * 16].view(16, 16)
    units = torch.eye(16).to(FLOAT8)
    ones = torch.ones(16, device=DEVICE)
    found = torch.ops.maskwise.float8_few_rows(units.to(DEVICE), ones, every.to(DEVICE), ones, torch.float32)
    assert torch.equal(found.cpu(), every.float().t())


def compare_rounding() -> None:
    x = torch.randn(5, 100, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 5)[:, None]
    x[2] = 0
    found, scale = (y.cpu() for y in kernels.rounded(x.to(DEVICE)))
    torch.testing.assert_close(scale, x.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 448)
    rounded = (x / scale).to(FLOAT8).float()
    wrong = found.float() != rounded
    if DEVICE == "cpu":  # Triton's interpreter forgets to carry where a number is rounded up to a power of two
        wrong &= ~((rounded.abs().frexp().mantissa == 0.5) & (rounded.abs() > (x / scale).abs()))
    assert not wrong.any() and not found[2].float().any()


def compare_int4(n: int, outer: int, groups: int, split: int, tile: int) -> None:
    """In float16, which Triton's interpreter multiplies as it should."""
    kernels.int4_tiles = lambda *_: kernels.Tiles(tile, 64, split, 4, 2)
    draws = torch.Generator().manual_seed(0)
    q = torch.randint(0, 16, (outer, groups, 64), generator=draws)
    weight = (q[..., :32] + 16 * q[..., 32:]).transpose(0, 1).contiguous().to(torch.uint8)
    scale = torch.rand(groups, outer, 2, generator=draws).half()
    scale[:, outer // 2] = 0
    rows = torch.randn(n, groups * 64, generator=draws).half()
    given = [x.to(DEVICE) for x in (rows, weight, scale)]
    found = torch.ops.maskwise.int4_few_rows(*given)
    size, offset = scale.double().transpose(0, 1)[..., None].unbind(2)
    expected = rows.double() @ ((q - 8) * size + offset).flatten(1).t()
    torch.testing.assert_close(found.cpu().double(), expected, rtol=2e-3, atol=2e-3 * float(expected.abs().mean()))
    assert not found[:, outer // 2].any() and torch.equal(found, torch.ops.maskwise.int4_few_rows(*given))
    assert torch.equal(torch.ops.maskwise.int4_few_rows(given[0][:1].clone(), *given[1:]), found[:1])


def compare_sums(tokens: int, chosen: int, width: int, said_type: torch.dtype, share_type: torch.dtype) -> None:
    """Against the sum token by token, each product rounded to the type of the shares."""
    draws = torch.Generator().manual_seed(0)
    said = torch.randn(tokens * chosen, width, generator=draws).to(said_type)
    place = torch.randperm(tokens * chosen, generator=draws)
    share = torch.rand(tokens, chosen, generator=draws).to(share_type)
    found = sums.expert_sums(said.to(DEVICE), place.to(DEVICE), share.to(DEVICE)).cpu()
    for token in range(tokens):
        expected = torch.zeros(width)
        for number in range(chosen):
            row = said[place[token * chosen + number]]
            expected += (row.to(share_type) * share[token, number]).to(share_type).float()
        torch.testing.assert_close(found[token], expected.to(said_type), rtol=1e-3 if said_type.itemsize == 2 else 1e-6,
                                   atol=1e-6)  # fmt: skip


def compiles() -> None:
    """The operators say what they give before they run."""
    small, numbers8 = torch.full((3, 1), 1e-4, device=DEVICE), numbers(3, 64, seed=0).to(DEVICE)
    of_float8 = (numbers8, small, numbers(20, 64, seed=2).to(DEVICE), torch.ones(20, device=DEVICE), torch.float16)
    scale = torch.ones(1, 20, 2, device=DEVICE, dtype=torch.float16)
    pairs = torch.randint(0, 256, (1, 20, 32), device=DEVICE, dtype=torch.uint8)
    of_int4 = (torch.ones(3, 64, device=DEVICE, dtype=torch.float16), pairs, scale)
    half = torch.ones(6, 20, device=DEVICE, dtype=torch.float16)
    of_sums = (half, torch.arange(6, device=DEVICE), torch.ones(3, 2, device=DEVICE))
    operators = kernels.float8_few_rows, kernels.int4_few_rows, sums.expert_sums
    for operator, given in zip(operators, (of_float8, of_int4, of_sums), strict=True):
        torch.library.opcheck(operator, given, test_utils="test_faketensor")
        with torch.inference_mode():
            assert operator(*given).shape == (3, 20) and operator(*given).dtype == torch.float16


cases = [(1, 48, 128, 1, 16), (33, 70, 100, 3, 32), (5, 16, 16, 1, 16), (17, 33, 200, 2, 16)]
for case in cases:
    compare_float8(*case)
widened_exactly()
compare_rounding()
more = [(1, 16, 1, 1, 16), (33, 40, 5, 3, 32), (6, 17, 4, 2, 16)]
for case in more:
    compare_int4(*case)
for case in ((1, 1, 16), (7, 3, 20)):
    compare_sums(*case, torch.float32, torch.float32)
    compare_sums(*case, torch.float16, torch.float32)
    compare_sums(*case, torch.float16, torch.float16)
compiles()
print(f"{len(cases) + len(more)} cases agree on {DEVICE}")
