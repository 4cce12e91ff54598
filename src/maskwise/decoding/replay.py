"""CUDA-graph cache: forward passes of repeated shapes are captured once, then replayed.

The inputs of a repeated pass are copied into tensors that keep their addresses, so that it can be captured on CUDA: the
time of a short pass is that of its thousand kernel launches, and a CUDA graph is one launch. The graphs and the caches
they write to are kept with the model for the next generation of the same lengths. A graph reads weights by their
addresses: it sees new values at the same address, and if anything else about the network changes, all are dropped.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from maskwise.models.attention.ragged import KeyValues
from maskwise.models.batch import Batch
from maskwise.models.families.experts import Experts
from maskwise.models.families.layers import Frequencies
from maskwise.models.model import Model

LONGEST = 4096  # tokens; a longer pass hides its launches, and recorded would only hold on to memory
UNRECORDED = 2  # eager passes before a capture, so that a pass that is not repeated costs nothing
MOST_KEPT = 32  # sets of recordings, one for each list of lengths, and passes of a set: a growing canvas has many
SHARE_KEPT = 16  # at most this part of the device's memory is held on to between generations

Pass = Callable[[], Tensor]
Recorder = Callable[[Pass], tuple[Pass, int]]  # gives the pass to be called from then on, and the bytes it holds
Shape = tuple[int, int, int, bool]


@dataclass
class _Repeat:
    batch: Batch  # tensors of its own
    shown: Tensor | None = None  # the offsets of the batch whose spans they hold
    times: int = 0
    recorded: Pass | None = None
    bytes: int = 0


@dataclass
class Recordings:
    """Captured passes over one key-value cache (or none), by shape, the least recently used first."""

    lengths: tuple[int, ...] | None  # of the cache's canvases
    record: Recorder | None
    cache: KeyValues | None = None
    repeats: dict[Shape, _Repeat] = field(default_factory=dict)
    new: bool = False  # something was recorded since they were taken

    @property
    def bytes(self) -> int:
        stored = [] if self.cache is None else [part.nbytes for layer in self.cache.layers for part in layer]
        return sum(stored) + sum(repeat.bytes for repeat in self.repeats.values())

    def forget_the_oldest(self) -> bool:
        """Drops the oldest of too many passes, uncaptured ones first; returns whether captured ones are left.
        Uncaptured passes are still counted: the first pass of a block may repeat only twice in a generation."""
        recorded = [shape for shape, repeat in self.repeats.items() if repeat.recorded is not None]
        others = [shape for shape in self.repeats if shape not in recorded]
        kept = {*[*others, *recorded][-MOST_KEPT:]}
        self.repeats = {shape: repeat for shape, repeat in self.repeats.items() if shape in kept}
        return bool(recorded)


class Kept:
    """Captured passes kept with a model; a decoding takes them out, so that no two decodings share them."""

    def __init__(self, recorder: Callable[[], Recorder] | None, budget: int) -> None:
        """recorder: makes one for each set of recordings; None: nothing is recorded. budget: bytes."""
        self.recorder, self.budget = recorder, budget
        self.state: tuple[Any, ...] = ()  # of the network they were recorded with
        self.sets: dict[tuple[int, ...] | None, Recordings] = {}  # the least recently used first

    def take(self, state: tuple[Any, ...], lengths: tuple[int, ...] | None) -> Recordings | None:
        if state != self.state:
            self.sets.clear()
        return self.sets.pop(lengths, None)

    def give_back(self, state: tuple[Any, ...], used: Recordings) -> None:
        if state != self.state:
            self.sets.clear()
        self.state = state
        self.sets.pop(used.lengths, None)
        self.sets[used.lengths] = used
        while len(self.sets) > MOST_KEPT or sum(one.bytes for one in self.sets.values()) > self.budget:
            del self.sets[next(iter(self.sets))]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Kept":
        return Kept(self.recorder, self.budget)  # a copied network has other weights


def kept_with(model: Model) -> Kept:
    if model.recordings is None and model.device.type == "cuda":
        budget = torch.cuda.get_device_properties(model.device).total_memory // SHARE_KEPT
        model.recordings = Kept(partial(graph_recorder, model.device), budget)
    elif model.recordings is None:
        model.recordings = Kept(None, 0)
    return model.recordings


class Passes:
    """Forward passes of one decoding, captured or eager. A result of `hidden` is valid until the next call."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.kept = kept_with(model)
        self.used: Recordings | None = None
        self.state: tuple[Any, ...] = ()

    def new_cache(self, lengths: Sequence[int]) -> KeyValues:
        """A new, empty key-value cache; ends the passes over the previous one."""
        used = self._turn_to(tuple(lengths))
        if used.cache is None:
            used.cache = self.model.new_cache(lengths)
        else:
            torch._foreach_zero_([part for layer in used.cache.layers for part in layer])
        return used.cache

    def hidden(self, batch: Batch, cache: KeyValues | None) -> Tensor:
        """Hidden states of the batch's tokens, [T, d]. cache: None, or the last one that `new_cache` gave."""
        if batch.tokens > LONGEST:
            return self.model.hidden(batch, cache)
        used = self._turn_to(None) if cache is None else self.used
        assert used is not None and used.cache is cache
        shape = (batch.tokens, len(batch.starts), batch.longest, batch.embeds is None)
        repeat = used.repeats.pop(shape, None) or _Repeat(_copy(batch))
        used.repeats[shape] = repeat
        _refill(repeat, batch)
        repeat.times += 1
        run = partial(self.model.hidden, repeat.batch, cache)
        if repeat.recorded is None and used.record and repeat.times > UNRECORDED and self.model.recordable:
            repeat.recorded, repeat.bytes = used.record(run)
            used.new = True
        return run() if repeat.recorded is None else repeat.recorded()

    def _turn_to(self, lengths: tuple[int, ...] | None) -> Recordings:
        """Switches to the captured passes of these lengths; those in use are put back."""
        if self.used is not None and self.used.lengths == lengths and lengths is None:
            return self.used
        self.close()
        if self.kept.recorder is None:
            self.used = Recordings(lengths, None)
            return self.used
        self.state = network_state(self.model)
        self.used = self.kept.take(self.state, lengths) or Recordings(lengths, self.kept.recorder())
        for repeat in self.used.repeats.values():
            repeat.shown = None
            # Another thread may decode now, and the first pass of a thread allocates what a capture must not.
            repeat.times = min(repeat.times, UNRECORDED - 1)
        return self.used

    def close(self) -> None:
        """Stores the captured passes with the model."""
        used, self.used = self.used, None
        if used is None or not used.forget_the_oldest():
            return
        if used.new:  # the first pass may have laid weights elsewhere
            self.state = network_state(self.model)
        used.new = False
        self.kept.give_back(self.state, used)


def _copy(batch: Batch) -> Batch:
    tensors: Any = {name: getattr(batch, name) for name in ("ids", "embeds", "offsets", "starts")}
    return replace(batch, **{name: one.clone() for name, one in tensors.items() if one is not None})


def _refill(repeat: _Repeat, batch: Batch) -> None:
    """Copies the batch into the captured pass's input tensors; equal spans share their offsets."""
    own = repeat.batch
    for kept, given in ((own.ids, batch.ids), (own.embeds, batch.embeds)):
        if kept is not None and given is not None:
            kept.copy_(given)
    if repeat.shown is not batch.offsets:
        own.offsets.copy_(batch.offsets)
        own.starts.copy_(batch.starts)
        repeat.shown = batch.offsets


def graph_recorder(device: torch.device) -> Recorder:
    """Captures CUDA graphs in one shared memory pool: they never run concurrently."""
    pool = torch.cuda.graph_pool_handle()

    def record(run: Pass) -> tuple[Pass, int]:
        graph, before = torch.cuda.CUDAGraph(), torch.cuda.memory_reserved(device)
        with torch.cuda.device(device), torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
            out = run()

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay, max(torch.cuda.memory_reserved(device) - before, 0)

    return record


SDPA_KERNELS = ("flash", "mem_efficient", "math", "cudnn")
TORCHS_OWN = frozenset(vars(nn.Module())) - {"training"}


def network_state(model: Model) -> tuple[Any, ...]:
    """Addresses and settings of all weights; equal states mean that a captured pass is still valid."""
    kind = model.device.type
    settings = (
        model.block,
        model.causal,
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled(kind),
        torch.get_autocast_dtype(kind),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        *(getattr(torch.backends.cuda, f"{name}_sdp_enabled")() for name in SDPA_KERNELS),
    )
    return (*settings, *(part for module in _modules(model.net) for part in _module_state(module)))


def _modules(module: nn.Module) -> Iterator[nn.Module]:
    """All modules except stacked experts, which report their own address."""
    laid = False
    if isinstance(module, Experts):
        module.lay_out()  # it may change the addresses
        laid = module.grouped is not None
    yield module
    for name, child in module.named_children():
        if not (laid and name == "experts"):
            yield from _modules(child)


def _module_state(module: nn.Module) -> Iterator[Any]:
    yield type(module)
    yield len(module._forward_hooks) + len(module._forward_pre_hooks)
    yield module._compiled_call_impl is None
    for tensors in (module._parameters, module._buffers):
        for tensor in tensors.values():
            yield None if tensor is None else tensor.data_ptr()
    if type(module) is not nn.Linear:  # of which a model with experts has thousands
        yield from (_plain(value) for name, value in vars(module).items() if name not in TORCHS_OWN)


def _plain(value: Any) -> Any:
    """A module attribute as a comparable value, such as an adapter's scale; None if not comparable."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        return value.data_ptr()
    if isinstance(value, list | tuple):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple((key, _plain(one)) for key, one in value.items())
    return _plain(value.made) if isinstance(value, Frequencies) else None
