"""Row o: products of a decoding step's 32 rows with weights in fp8, rounding included, against bf16's.

Weights are cycled over copies that exceed the card's cache, inside one CUDA graph: launches do not count.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.measure import Bench, Line, check_close, timed
from maskwise.models.families.quantise import Float8Linear, float8_reference

SHAPES = ((12288, 4096), (4096, 4096), (24576, 4096), (4096, 12288))  # of LLaDA-8B, as decoding packs its maps
ROWS, CYCLED = 32, 300 * 2**20  # bytes of the smallest copies


def seconds_each(bench: Bench, works: Sequence[Callable[[], Tensor]]) -> float:
    def all_of_them() -> None:
        for work in works:
            work()

    all_of_them()
    if not bench.full:
        return timed(bench.device, all_of_them).seconds / len(works)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        all_of_them()
    return timed(bench.device, graph.replay, repeats=5).seconds / len(works)


def read_rate(bench: Bench) -> float:
    """TB/s of a large sum."""
    size = 2**31 if bench.full else 2**20
    numbers = torch.ones(size // 4, device=bench.device)
    return size / seconds_each(bench, [numbers.sum] * 4) / 1e12


@torch.no_grad()
def small_batch_linear(bench: Bench) -> Iterator[Line]:
    yield Line("o", "reading memory", "TB/s", read_rate(bench))
    dtype, draws = torch.bfloat16 if bench.full else torch.float32, torch.Generator(bench.device).manual_seed(0)
    for outer, inner in SHAPES if bench.full else ((96, 128),):
        rows = torch.randn(ROWS, inner, generator=draws, device=bench.device).to(dtype)
        plain = []
        for _ in range(CYCLED // (outer * inner) + 1 if bench.full else 2):
            one = nn.Linear(inner, outer, bias=False, device="meta")
            drawn = torch.randn(outer, inner, generator=draws, device=bench.device)
            one.weight = nn.Parameter((0.02 * drawn).to(dtype))
            plain.append(one)
        theirs = seconds_each(bench, [partial(F.linear, rows, one.weight) for one in plain])
        fewer = [Float8Linear(one) for one in plain]
        expected = float8_reference(rows, fewer[0].weight, fewer[0].scale)
        check_close("fp8 product", fewer[0](rows), expected, 5e-2)
        ours = seconds_each(bench, [partial(one, rows) for one in fewer])
        yield Line("o", f"fp8, {ROWS} rows, {inner} to {outer}", "s", ours, theirs)
