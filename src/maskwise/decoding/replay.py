"""Forward passes that come back: the same number of tokens over one sheet, step after step, block after block.

Such a pass is given tensors that stay where they are, refilled when its spans move. On CUDA it can then be recorded: a
short pass waits for its thousand launches and not for arithmetic, and as a CUDA graph it is launched as one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from maskwise.decoding.canvas import Frame
from maskwise.models.attention import KeyValues
from maskwise.models.base import Model

LONGEST = 4096  # tokens; a longer pass hides its launches, and recorded would only hold on to memory
UNRECORDED = 2  # times a pass is taken as it is, so that one that does not come back costs nothing

Pass = Callable[[Frame, KeyValues | None], Tensor]


@dataclass
class _Repeat:
    frame: Frame  # tensors of its own
    shown: Frame  # the frame whose contents they hold
    times: int = 0
    recorded: Callable[[], Tensor] | None = None


class Passes:
    """The passes of one decoding. What `hidden` gives is good until the next one."""

    def __init__(self, model: Model) -> None:
        self.model, self.device = model, model.device
        self.records = model.device.type == "cuda"
        self.pool = torch.cuda.graph_pool_handle() if self.records else None
        self.cache: KeyValues | None = None
        self.repeats: dict[tuple[int, int, int], _Repeat] = {}

    def hidden(self, frame: Frame, cache: KeyValues | None, run: Pass) -> Tensor:
        """Hidden states of the frame's tokens, [T, d], as `run` makes them: one and the same for the whole decoding."""
        if len(frame.index) > LONGEST:
            return run(frame, cache)
        if cache is not self.cache:
            self.cache, self.repeats = cache, {}
        shape = (len(frame.index), len(frame.starts), frame.longest)
        if shape not in self.repeats:
            self.repeats[shape] = _Repeat(frame.copy(), frame)
        repeat = self.repeats[shape]
        if repeat.shown is not frame:
            repeat.frame.refill(frame)
            repeat.shown = frame
        repeat.times += 1
        if self.records and repeat.times == UNRECORDED + 1 and self.model.recordable:
            repeat.recorded = self._record(partial(run, repeat.frame, cache))
        return run(repeat.frame, cache) if repeat.recorded is None else repeat.recorded()

    def _record(self, run: Callable[[], Tensor]) -> Callable[[], Tensor]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device), torch.cuda.graph(graph, self.pool, capture_error_mode="thread_local"):
            out = run()

        def replay() -> Tensor:
            graph.replay()
            return out

        return replay
