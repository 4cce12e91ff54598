"""Tokens, passes and seconds of probes at their defaults, on an 8B shape.

    python -m benchmarks.probe_costs                          # LLaDA-8B's shape on CUDA (about 60 GiB), a toy on CPU
    python -m benchmarks.probe_costs --probes numerics --out FILE

1. A LLaDA of 8B with random bf16 weights is made on the card; the questions are written with the embedded tokenizer.
2. Each probe is run at its defaults, in an order of its own, with a new run folder. The time is that of `diagnose`:
   questions, forward passes and records; opening a checkpoint and drawing the page are not in it.
3. Tokens are those of all forward passes, counted where a pass is asked for, so that passes replayed from CUDA graphs
   and passes of copies in other dtypes count too.

Random weights never reach a threshold, so adaptive strategies commit one token per step: the most passes there can be.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from msgspec import Struct, to_builtins

from benchmarks.measure import Bench, synchronize
from benchmarks.shapes import make_model
from maskwise.decoding.replay import Passes
from maskwise.models.batch import Batch
from maskwise.models.interface import ModelInterface
from maskwise.models.model import Model
from maskwise.runs.diagnose import diagnose
from maskwise.runs.settings import chosen_settings

PROBES = ("numerics", "templates", "confidence", "self-correction", "trajectory")


class ProbeCost(Struct, frozen=True):
    """What one probe cost."""

    probe: str
    tokens: int
    passes: int
    records: int
    seconds: float
    peak: float | None  # GiB allocated at most, weights included; None on CPU


class PassCounter:
    """Tokens and forward passes; a pass that is asked for within another is counted once."""

    def __init__(self) -> None:
        self.tokens = self.passes = self.depth = 0

    def wrapped(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(owner: Any, batch: Batch, *given: Any, **named: Any) -> Any:
            if self.depth == 0:
                self.tokens += batch.tokens
                self.passes += 1
            self.depth += 1
            try:
                return method(owner, batch, *given, **named)
            finally:
                self.depth -= 1

        return counted


@contextmanager
def counting() -> Iterator[PassCounter]:
    """Counts every forward pass of every model, those replayed from CUDA graphs included."""
    places = ((ModelInterface, "hidden"), (ModelInterface, "asked_rows"), (Passes, "hidden"))
    own = [vars(owner)[name] for owner, name in places]
    counter = PassCounter()
    for (owner, name), method in zip(places, own, strict=True):
        setattr(owner, name, counter.wrapped(method))
    try:
        yield counter
    finally:
        for (owner, name), method in zip(places, own, strict=True):
            setattr(owner, name, method)


def cost_of(model: Model, probe: str, folder: Path) -> ProbeCost:
    on_cuda = model.device.type == "cuda"
    if on_cuda:
        torch.cuda.reset_peak_memory_stats(model.device)
    with counting() as counter:
        start = time.perf_counter()
        run = diagnose(model, chosen_settings(probes=probe), folder)
        synchronize(model.device)
        seconds = time.perf_counter() - start
    peak = torch.cuda.max_memory_allocated(model.device) / 2**30 if on_cuda else None
    records = sum(1 for line in (run / "records.jsonl").read_text().splitlines() if line)
    return ProbeCost(probe, counter.tokens, counter.passes, records, seconds, peak)


def line_of(one: ProbeCost) -> str:
    peak = "" if one.peak is None else f", {one.peak:.0f} GiB at most"
    return (
        f"{one.probe}: {one.tokens:,} tokens, {one.passes:,} passes, {one.records} records, {one.seconds:.1f} s{peak}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="benchmarks.probe_costs", description=(__doc__ or "").splitlines()[0])
    options.add_argument("--probes", default=",".join(PROBES), help="names, separated by commas")
    options.add_argument("--toy", action="store_true", help="a toy on the CPU, also where there is a GPU")
    options.add_argument("--out", type=Path, help="write the numbers as JSON")
    given = options.parse_args(arguments)
    full = torch.cuda.is_available() and not given.toy
    bench = Bench(torch.device("cuda" if full else "cpu"), full, 1.0)
    model = make_model(bench, "llada")
    where = torch.cuda.get_device_name() if full else "CPU"
    print(f"{model.name}, {model.dtype_name}, random weights, {where}, torch {torch.__version__}", flush=True)
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for probe in given.probes.split(","):
            found.append(cost_of(model, probe, Path(folder) / probe))
            print(line_of(found[-1]), flush=True)
    if given.out:
        given.out.write_text(json.dumps(to_builtins(found), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
