"""What a decoding step of each engine asks of the host: operations handed to the device, and waits for it.

    python -m benchmarks.peer_counts --peers FOLDER

Counted on a CPU, at a toy width and all of LLaDA-8B's 32 layers, nothing compiled, in steps within a block, where the
cache is full. FOLDER is that of benchmarks/peers. Operations that only look at the same numbers otherwise do not count.
A wait is a number, a list or a size that the host reads from a tensor.
"""

import argparse
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from benchmarks import peer_code
from benchmarks.decode import Enough
from benchmarks.measure import Bench
from benchmarks.peers.dinfer import dinfer_engine
from benchmarks.peers.harness import Engine, same_for_all, shape_of, sizes
from benchmarks.peers.llada import llada_engines
from benchmarks.peers.report import Report
from benchmarks.shapes import random_ids
from maskwise.decoding.generate import generate
from maskwise.models.model import Model

BENCH = Bench(torch.device("cpu"), False, 1.0)
LAYERS, FIRST, LAST = 32, 2, 6  # the steps counted
LOOKS = {"alias", "as_strided", "chunk", "detach", "expand", "lift_fresh", "permute", "reshape", "select", "slice",
         "split", "split_with_sizes", "squeeze", "t", "transpose", "unbind", "unsqueeze", "view", "_reshape_alias",
         "_unsafe_view"}  # fmt: skip


class Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations = self.waits = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        by_mask = name.startswith("index") and any(
            isinstance(part, Tensor) and part.dtype == torch.bool
            for part in (args[1] if isinstance(args[1], list | tuple) else [])
        )
        self.waits += name in ("_local_scalar_dense", "nonzero") or by_mask
        self.operations += name not in LOOKS and name != "_local_scalar_dense"
        return func(*args, **(kwargs or {}))

    @contextmanager
    def lists_too(self) -> Iterator[None]:
        """Whole tensors read by the host are waits as well; on a CPU the dispatcher does not see them."""
        kept = Tensor.tolist, Tensor.cpu

        def counting(method: Callable[..., Any]) -> Callable[..., Any]:
            def counted(*given: Any, **named: Any) -> Any:
                self.waits += 1
                return method(*given, **named)

            return counted

        Tensor.tolist, Tensor.cpu = (counting(method) for method in kept)  # type: ignore[method-assign]
        try:
            yield
        finally:
            Tensor.tolist, Tensor.cpu = kept  # type: ignore[method-assign]


def a_step(run: Callable[[Callable[[int], None]], Any]) -> tuple[float, float]:
    """Operations and waits; `run` calls what it is given with the number of each step."""
    counter, marks = Counter(), []

    def look(step: int) -> None:
        if step in (FIRST, LAST):
            marks.append((counter.operations, counter.waits))
        if step == LAST:
            raise Enough

    with suppress(Enough), counter, counter.lists_too():
        run(look)
    (operations, waits), (later_operations, later_waits) = marks
    return (later_operations - operations) / (LAST - FIRST), (later_waits - waits) / (LAST - FIRST)


def by_passes(engine: Engine, prompts: list[list[int]], look: Callable[[int], None]) -> None:
    passes = iter(range(10**6))
    hook = engine.net.register_forward_pre_hook(lambda *_: look(next(passes)))
    try:
        engine.run(prompts, 1)
    finally:
        hook.remove()


def by_steps(model: Model, prompts: list[list[int]], cache: str, look: Callable[[int], None]) -> None:
    _, new, block = sizes(BENCH)
    generate(model, prompts, new, new, block, cache=cache, on_step=lambda seen: look(seen.step))


def main() -> None:
    options = argparse.ArgumentParser(prog="benchmarks.peer_counts", description=__doc__.splitlines()[0])
    options.add_argument("--peers", type=Path, required=True, help="the folder of checkouts")
    given = options.parse_args()
    torch.compiler.set_stance("force_eager")
    peer_code.put_back()
    with tempfile.TemporaryDirectory() as folder:
        report = Report(BENCH, given.peers, Path(folder) / "out", turns=False)
        model, weights = same_for_all(BENCH, LAYERS)
        engines = llada_engines(report, model, weights)
        net = peer_code.llada_net(peer_code.dinfer(given.peers)[-1], shape_of(model), weights)
        engines.append(dinfer_engine(report, model, "dual", net))
    for batch in (1, 8):
        prompts = random_ids([sizes(BENCH)[0]] * batch, model)
        for engine in engines:
            if engine.who != "Fast-dLLM" or batch == 1:
                counts = a_step(partial(by_passes, engine, prompts))
                print(f"batch {batch}, {engine.cache}, {engine.who}: {counts[0]:g} operations, {counts[1]:g} waits")
        for cache in ("none", "prefix", "dual"):
            counts = a_step(partial(by_steps, model, prompts, cache))
            print(f"batch {batch}, {cache}, maskwise: {counts[0]:g} operations, {counts[1]:g} waits")


if __name__ == "__main__":
    main()
