"""Linear maps of small batches, with weights in 16 and 8 bits, equal dense products."""

import sys

import pytest
import torch

from helpers.interpreted import (
    DEVICE,
    DIGITS,
    DONE,
    HALF,
    ON_CARD,
    agree,
    few_and_all,
    needs_a_card,
    run_cases,
    without_operators,
)

FLOAT8 = torch.float8_e4m3fn
OPERATORS = ("half_partial_sums", "fp8_partial_sums")
# rows, outputs, inputs, programs that split the inputs, outputs of a program
CASES = [(17, 40, 100, 2, 32), (1, 48, 128, 1, 16), (5, 16, 16, 1, 16), (33, 70, 200, 3, 32)]


@pytest.mark.slow
@few_and_all
def test_small_batch_linear_equals_dense_products(cases):
    run_cases(__file__, cases)


def numbers(*shape, seed):
    """Any E4M3 numbers: every sign, exponent and mantissa, subnormal ones too, without NaN."""
    bits = torch.randint(0, 127, shape, generator=torch.Generator().manual_seed(seed))
    signs = torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(seed + 1)) * 128
    return (bits + signs).to(torch.uint8).view(FLOAT8)


def compare_half(kernel, n, outer, inner, split, tile):
    kernel.half_tiles = lambda *_: kernel.Tiles(tile, 32, split, 4, 2)
    draws = torch.Generator().manual_seed(0)
    rows, weight = (torch.randn(count, inner, generator=draws).to(HALF) for count in (n, outer))
    given = rows.to(DEVICE), weight.to(DEVICE)
    found, expected = kernel.small_batch_linear(*given), rows.double() @ weight.double().t()
    agree(found.cpu().double(), expected, rtol=DIGITS, atol=DIGITS * float(expected.abs().mean()))
    assert torch.equal(found, kernel.small_batch_linear(*given)), "other bits"
    alone = kernel.small_batch_linear(given[0][:1].clone(), given[1])
    assert torch.equal(alone, found[:1]), "a row depends on the others"


def compare_fp8(kernel, n, outer, inner, split, tile):
    kernel.fp8_tiles = lambda *_: kernel.Tiles(tile, 32, split, 4, 2)
    weight, rows = numbers(outer, inner, seed=0), numbers(n, inner, seed=2)
    weight[outer // 2] = 0
    rows[n // 2] = 0
    draws = torch.Generator().manual_seed(4)
    scale, row_scale = torch.rand(outer, generator=draws), torch.rand(n, 1, generator=draws) * 1e3
    given = [x.to(DEVICE) for x in (rows, row_scale, weight, scale)]
    found = kernel.small_batch_linear_fp8(*given, torch.float32)
    expected = (rows.double() * row_scale) @ (weight.double() * scale[:, None]).t()
    agree(found.cpu().double(), expected, rtol=1e-5, atol=1e-6 * float(expected.abs().max()))
    assert not found[n // 2].any() and not found[:, outer // 2].any()
    assert torch.equal(found, kernel.small_batch_linear_fp8(*given, torch.float32)), "other bits"
    alone = kernel.small_batch_linear_fp8(given[0][:1].clone(), given[1][:1], *given[2:], torch.float32)
    assert torch.equal(alone, found[:1]), "a row depends on the others"


def every_number_is_widened_exactly(kernel):
    """Every number times one, so that nothing is rounded: rows are unit vectors."""
    kernel.fp8_tiles = lambda *_: kernel.Tiles(16, 32, 2, 4, 2)
    every = torch.arange(256, dtype=torch.uint8).view(FLOAT8)
    every = every[every.float().isfinite()].repeat(2)[: 16 * 16].view(16, 16)
    units = torch.eye(16).to(FLOAT8)
    ones = torch.ones(16, device=DEVICE)
    found = kernel.small_batch_linear_fp8(units.to(DEVICE), ones, every.to(DEVICE), ones, torch.float32)
    assert torch.equal(found.cpu(), every.float().t())


def compare_rounding(kernel):
    x = torch.randn(5, 100, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 3, 5)[:, None]
    x[2] = 0
    found, scale = (y.cpu() for y in kernel.rounded_rows(x.to(DEVICE)))
    agree(scale, x.abs().amax(dim=1, keepdim=True).clamp(min=1e-12) / 448, rtol=1e-6, atol=0)
    rounded = (x / scale).to(FLOAT8).float()
    wrong = found.float() != rounded
    if not ON_CARD:  # Triton's interpreter forgets to carry where a number is rounded up to a power of two
        wrong &= ~((rounded.abs().frexp().mantissa == 0.5) & (rounded.abs() > (x / scale).abs()))
    assert not wrong.any() and not found[2].float().any()


def nan_stays_in_its_row(kernel):
    kernel.fp8_tiles = lambda *_: kernel.Tiles(16, 32, 1, 4, 2)
    x = torch.randn(4, 100, generator=torch.Generator().manual_seed(0))
    x[1, 7], x[2] = torch.nan, -torch.tensor(torch.nan)  # some and all, of either sign
    given, scale = kernel.rounded_rows(x.to(DEVICE))
    ones = torch.ones(16, 100, device=DEVICE).to(FLOAT8), torch.ones(16, device=DEVICE)
    found = kernel.small_batch_linear_fp8(given, scale, *ones, torch.float32)
    for is_nan in (scale.isnan(), found.isnan()):
        assert is_nan[1:3].all() and not is_nan[0].any() and not is_nan[3].any()


def compiles(kernel):
    """The operators state what they return before they run, and partial sums are added in compiled code too."""
    small, rows8 = torch.full((3, 1), 1e-4, device=DEVICE), numbers(3, 64, seed=0).to(DEVICE)
    of_fp8 = rows8, small, numbers(20, 64, seed=2).to(DEVICE), torch.ones(20, device=DEVICE), torch.float16
    of_half = [torch.ones(count, 64, device=DEVICE, dtype=torch.float16) for count in (3, 20)]
    for name, given in zip(OPERATORS, (of_half, of_fp8), strict=True):
        torch.library.opcheck(getattr(kernel, name), given, test_utils="test_faketensor")
    functions = kernel.small_batch_linear, kernel.small_batch_linear_fp8
    for function, given in zip(functions, (of_half, of_fp8), strict=True):
        with torch.inference_mode():
            found = function(*given)
            assert found.shape == (3, 20) and found.dtype == torch.float16
    added = torch.compile(kernel._added, backend="aot_eager", fullgraph=True)
    parts = torch.randn(3, 5, 20, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    agree(added(parts, torch.float32), kernel._added(parts, torch.float32), rtol=1e-6, atol=1e-6)


def main(few):
    from maskwise.kernels import small_batch_linear as kernel

    if few:
        without_operators(kernel, *OPERATORS)
    assert kernel.agrees(DEVICE, HALF)
    right = kernel.small_batch_linear
    kernel.small_batch_linear = lambda *given: 1.1 * right(*given)
    assert not kernel.agrees(DEVICE, HALF), "a wrong kernel is found"
    kernel.small_batch_linear = right
    for case in CASES[:1] if few else CASES:
        compare_half(kernel, *case)
        compare_fp8(kernel, *case)
    compare_rounding(kernel)
    nan_stays_in_its_row(kernel)
    if not few:
        every_number_is_widened_exactly(kernel)
        compiles(kernel)
    print(DONE)


@needs_a_card
@torch.no_grad()
def test_on_cuda_quantised_products_take_the_kernels_and_equal_dense_products():
    from maskwise.models.families import quantise

    draws = torch.Generator().manual_seed(0)

    def drawn(*shape):
        return torch.randn(*shape, generator=draws).to("cuda", torch.bfloat16)

    def close(found, expected):
        assert found.dtype == torch.bfloat16
        assert (found.float() - expected.float()).norm() < quantise.TOLERANCE * expected.float().norm()

    weight = drawn(96, 128)
    values, scale = quantise.rounded_rows(weight)
    assert quantise.works(weight) and quantise.KERNELS
    for count in (1, 16, 17, 32, 33, 64, 65):
        rows = drawn(count, 128)
        close(
            quantise.float8_product(rows, values, scale[:, 0].contiguous()),
            quantise.float8_reference(rows, values, scale[:, 0]),
        )


if __name__ == "__main__":
    main(few=sys.argv[1:] == ["few"])
