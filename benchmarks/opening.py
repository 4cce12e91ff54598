"""Row g: opening a checkpoint from sharded safetensors, and what it takes of the host's memory."""

import gc
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import load_file

from benchmarks.measure import GIB, Bench, Line, bound, check_close, synchronize
from benchmarks.shapes import make_model, random_ids
from maskwise.models import LLaDAConfig, LLaDAModelLM
from maskwise.models.checkpoints.opening import as_model
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.model import Model


def own_memory() -> int:
    """Bytes of this process that no file backs: pages of a mapped checkpoint are the kernel's to drop."""
    for entry in Path("/proc/self/status").read_text().splitlines():
        if entry.startswith("RssAnon:"):
            return int(entry.split()[1]) * 1024
    raise OSError("/proc/self/status tells nothing of RssAnon: this row runs on Linux only")


def watched(bench: Bench, work: Callable[[], Model]) -> tuple[Model, float, float]:
    """What `work` gives, its seconds, and the GiB of host memory it took at most."""
    gc.collect()
    before, most, over = own_memory(), [0], threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            most[0] = max(most[0], own_memory() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    found = work()
    synchronize(bench.device)
    seconds = time.perf_counter() - start
    over.set()
    watcher.join()
    return found, seconds, max(most[0], own_memory() - before) / GIB


def open_plain(folder: Path, device: torch.device, dtype: torch.dtype) -> Model:
    """All shards read into a dictionary, copied into a model on the host, and moved."""
    with torch.device("meta"):
        net = LLaDAModelLM(LLaDAConfig.from_pretrained(folder))
    net = net.to(dtype).to_empty(device="cpu")
    weights = {}
    for file in sorted(folder.glob("*.safetensors")):
        weights |= load_file(file)
    net.load_state_dict(weights)
    return as_model(net.to(device).eval(), None, "plain")


@torch.no_grad()
def opening(bench: Bench) -> list[Line]:
    model = make_model(bench, "llada")
    ids, dtype = random_ids([40], model), model.dtype
    expected = model.predict(ids, [[5, 20]])[0]
    weights = sum(p.numel() * p.element_size() for p in model.parameters()) / GIB
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model.core.save_pretrained(folder, max_shard_size="4GB" if bench.full else "100KB")
        shards = len(list(folder.glob("*.safetensors")))
        del model
        ours, seconds, host = watched(bench, lambda: open_model(folder, dtype, bench.device))
        check_close("opened weights", ours.predict(ids, [[5, 20]])[0], expected, 1e-6)
        del ours
        theirs, plain_seconds, plain_host = watched(bench, lambda: open_plain(folder, bench.device, dtype))
        check_close("plainly opened weights", theirs.predict(ids, [[5, 20]])[0], expected, 1e-6)
    what = f"{weights:.2f} GiB in {shards} shards"
    return [
        Line("g", f"{what}, opening", "s", seconds, plain_seconds),
        Line("g", f"{what}, host memory", "GiB", host, plain_host),
        bound(bench, "g", "host memory / weights", "share", host / weights, 0.25),
    ]
