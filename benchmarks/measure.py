"""Timers, the ceiling, memory, and what one line of the table says."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from maskwise.models.families.experts import Experts
from maskwise.models.model import Model

GIB = 2**30
RATIOS = {"s": 1, "GiB": 1, "1/s": -1}  # plain / ours, or the other way round: above 1 ours is better


@dataclass(frozen=True)
class Bench:
    """Where a run takes place: the device, whether shapes are the published ones, and the ceiling in FLOP/s."""

    device: torch.device
    full: bool
    ceiling: float


@dataclass(frozen=True)
class Timing:
    seconds: float  # median
    peak: float | None  # GiB allocated at most, weights included; None on CPU
    above: float | None  # GiB of it beyond what was allocated when the work began


@dataclass(frozen=True)
class Line:
    """One comparison, or one figure (`plain` None)."""

    row: str
    case: str
    unit: str
    ours: float | None
    plain: float | None = None
    mfu: float | None = None
    plain_mfu: float | None = None
    peak: float | None = None
    plain_peak: float | None = None
    bar: str = ""
    met: bool | None = None  # None where there is no bar, or the shapes are toys

    @property
    def ratio(self) -> float | None:
        if self.plain is None or not self.ours or self.unit not in RATIOS:
            return None
        return (self.plain / self.ours) ** RATIOS[self.unit]

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"ratio": self.ratio}


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(device: torch.device, work: Callable[[], Any], repeats: int = 3, warm: int = 1) -> Timing:
    """Median seconds of `work` after warm-up, host work included, and the most memory it held."""
    for _ in range(warm):
        work()
    synchronize(device)
    on_cuda = device.type == "cuda"
    before = torch.cuda.memory_allocated(device) if on_cuda else 0
    if on_cuda:
        torch.cuda.reset_peak_memory_stats(device)
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        synchronize(device)
        seconds.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated(device) if on_cuda else 0
    middle = statistics.median(seconds)
    return Timing(middle, peak / GIB, (peak - before) / GIB) if on_cuda else Timing(middle, None, None)


def matrix_ceiling(device: torch.device) -> float:
    """FLOP/s of a large square product in the models' precision, on random data: the ceiling all MFU refers to.

    A card that was idle runs faster for its first tenths of a second than it can for seconds: it is warmed up first.
    """
    size, dtype, times = (8192, torch.bfloat16, 10) if device.type == "cuda" else (512, torch.float32, 2)
    left, right = torch.randn(2, size, size, device=device, dtype=dtype)

    def products() -> None:
        for _ in range(times):
            torch.mm(left, right)

    return times * 2 * size**3 / timed(device, products, repeats=5, warm=100 if device.type == "cuda" else 1).seconds


def forward_flops(model: Model, lengths: list[int], head_rows: int) -> float:
    """Floating-point operations a forward pass cannot do without: linear maps, attention, the head's rows.

    Of experts those count that a token goes through, of keys those that a row may see.
    """
    config, head = model.core.config, model.core.get_output_embeddings()
    maps = sum(m.weight.numel() for m in model.core.modules() if isinstance(m, torch.nn.Linear) and m is not head)
    for mixture in (m for m in model.core.modules() if isinstance(m, Experts)):
        of_one = sum(weight.numel() for weight in mixture.experts[0].parameters())
        maps -= (len(mixture.experts) - config.num_experts_per_tok) * of_one
    width = config.num_attention_heads * (
        getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    )
    pairs = sum(model.reach.end(row, length) for length in lengths for row in range(length))
    attention = 4 * width * config.num_hidden_layers * pairs
    return 2.0 * maps * sum(lengths) + attention + 2.0 * head_rows * model.head_weight.numel()


def difference(ours: Tensor, plain: Tensor) -> float:
    """||ours - plain|| / ||plain|| in float64, over what is finite in both."""
    ours, plain = ours.detach().double(), plain.detach().to(ours.device).double()
    finite = torch.isfinite(ours) & torch.isfinite(plain)
    assert bool(finite.any()), "nothing finite to compare"
    return float((ours[finite] - plain[finite]).norm() / plain[finite].norm().clamp(min=1e-30))


def check_close(what: str, ours: Tensor, plain: Tensor, tolerance: float) -> None:
    found = difference(ours, plain)
    assert found < tolerance, f"{what}: ours and plain differ by {found:.2g}, more than {tolerance:.2g}"


def tolerance(bench: Bench) -> float:
    """How far two orders of the same sums may lie apart through all layers: bf16 on CUDA, float32 on CPU."""
    return 5e-2 if bench.full else 1e-4


def line(
    bench: Bench, row: str, case: str, ours: Timing, plain: Timing, flops: float, bar: float | None = None
) -> Line:
    """Two timings of the same work as a line; the bar is on the ratio."""
    ratio = plain.seconds / ours.seconds
    return Line(
        row,
        case,
        "s",
        ours.seconds,
        plain.seconds,
        mfu=flops / ours.seconds / bench.ceiling,
        plain_mfu=flops / plain.seconds / bench.ceiling,
        peak=ours.peak,
        plain_peak=plain.peak,
        bar="" if bar is None else f"ratio >= {bar}",
        met=ratio >= bar if bench.full and bar is not None else None,
    )


def bound(bench: Bench, row: str, case: str, unit: str, value: float | None, limit: float, least: bool = False) -> Line:
    """A figure with a bar of its own: at most `limit`, or at least it."""
    met = None
    if bench.full and value is not None:
        met = value >= limit if least else value <= limit
    return Line(row, case, unit, value, bar=f"{'>=' if least else '<='} {limit:g}", met=met)
