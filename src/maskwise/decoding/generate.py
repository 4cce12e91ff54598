"""`generate`: a canvas, a rule and a cache put together.

Each step reads one span of every canvas, applies the head to the rows of the active block alone, lets the rule decide,
and writes to the canvas on the device. Nothing is read back inside a step. Between steps the host looks only when it
has to: after each step if the rule keeps its own pace, or early stop is on; else never.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from maskwise.decoding.autoregressive import continue_causal
from maskwise.decoding.canvas import Block, Frame, Grid, Sheet, plan
from maskwise.decoding.replay import Passes
from maskwise.decoding.request import Request, check_generators, check_request, encode, make_generator
from maskwise.decoding.rules import Memory, Rows, State
from maskwise.decoding.sampling import Chance, OneEach, guide, propose, sharpen, uniform
from maskwise.decoding.softmask import SoftMask, SoftSheet
from maskwise.models.attention import KeyValues
from maskwise.models.base import Model
from maskwise.models.packing import packed_products


@dataclass(frozen=True)
class Generation:
    """What came out for one prompt."""

    ids: list[int]  # the new tokens only: those that were masks, from left to right
    text: str  # their text; the whole text where the prompt itself held masks; empty without a tokenizer
    forwards: int  # forward passes this sequence took part in; guidance takes two a step
    order: list[int]  # the step of this sequence, from 0, at which each of `ids` was committed
    sequence: list[int]  # the whole canvas, prompt included


@dataclass(frozen=True)
class Snapshot:
    """What a callback sees after each step, and only then: the canvas changes with the next one."""

    step: int
    sheet: Sheet
    sequences: int

    @property
    def canvases(self) -> list[list[int]]:
        """The canvases, masks where nothing is committed yet; read back from the device when asked for."""
        return self.sheet.canvases()[: self.sequences]


@torch.no_grad()
def generate(
    model: Model,
    prompts: Sequence[str | Sequence[int]] | str,
    max_new_tokens: int = 128,
    steps: int | None = None,
    block: int | None = None,
    rule: str = "low-confidence",
    canvas: str | None = None,
    cache: str = "none",
    temperature: float = 0.0,
    generator: torch.Generator | Sequence[torch.Generator] | None = None,
    *,
    knobs: Mapping[str, float] | None = None,
    window: int | None = None,
    refresh: int | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    guidance: float = 0.0,
    forbid_end: bool = False,
    late_end: bool = False,
    early_stop: bool = False,
    end_ids: Sequence[int] | None = None,
    soft_mask: SoftMask | None = None,
    on_step: Callable[[Snapshot], None] | None = None,
) -> list[Generation]:
    """Continues prompts (strings or id lists of any lengths), or fills in the masks inside them.

    steps: in all blocks together; one token a step when left out. block: tokens worked on at a time.
    canvas: fixed (default), blocks (default with a block), growing, or window (with `window` masks past the block).
    rule, knobs: which tokens a step commits, and the rule's own settings; see maskwise.decoding.rules.RULES.
    cache: none; prefix keeps the keys and values left of the active block, dual those right of it too. Both are made
        new at each block, and every `refresh` steps if given. Caches and windows are approximate.
    temperature, top_k, top_p: sampling, greedy at 0. guidance: classifier-free guidance scale.
    forbid_end: never the end token. late_end: end tokens only when nothing else is left in the block.
    early_stop: a sequence is done once an end token stands with no mask before it; the rest is filled with end tokens.
    soft_mask: show open masks as mixtures of what was predicted for them. on_step: called after each step.
    generator: where randomness comes from; seeded with 0 when left out. One a prompt: then what a prompt gives does
        not depend on the others beside it.
    """
    ids = encode(model, prompts)
    options: dict[str, Any] = {
        "max_new_tokens": max_new_tokens, "steps": steps, "block": block, "cache": cache, "temperature": temperature,
        "window": window, "refresh": refresh, "top_k": top_k, "top_p": top_p, "guidance": guidance,
        "forbid_end": forbid_end, "late_end": late_end, "early_stop": early_stop, "soft_mask": soft_mask,
    }  # fmt: skip
    chance: torch.Generator | list[torch.Generator]
    if isinstance(generator, Sequence):
        chance = check_generators(generator, len(ids))
    else:
        chance = make_generator(model, generator)
    if model.causal:
        options |= {"rule": rule, "knobs": knobs, "canvas": canvas, "end_ids": end_ids, "on_step": on_step}
        done = continue_causal(model, ids, chance, **options)
        return [Generation(new, _text(model, new), len(new), list(range(len(new))), [*prompt, *new])
                for prompt, new in zip(ids, done, strict=True)]  # fmt: skip
    request = check_request(model, ids, rule=rule, knobs=knobs, canvas=canvas, end_ids=end_ids, **options)
    if not ids:
        return []
    with _packed(model):
        return _Work(model, request, ids, chance, on_step).run()


@torch.no_grad()
def greedy_answers(model: Model, prompts: list[list[int]], length: int, masks: int) -> list[list[int]]:
    """`length` new tokens of each prompt, one a step, the most confident first; `masks` more after them stay masks."""
    nothing = {"steps": None, "block": None, "window": None, "cache": "none", "refresh": None, "temperature": 0.0,
               "top_k": None, "top_p": None, "guidance": 0.0, "forbid_end": False, "late_end": False,
               "early_stop": False, "soft_mask": None}  # fmt: skip
    request = check_request(model, prompts, rule="low-confidence", knobs=None, canvas=None, end_ids=None,
                            max_new_tokens=length + masks, **nothing)  # fmt: skip
    work = _Work(model, request, prompts, make_generator(model, None), None)
    answer = plan(prompts, work.mask_id, length + masks, "blocks", length, None)[0]
    with _packed(model):
        work.fill(answer, list(range(len(prompts))))
    starts = [len(prompt) for prompt in prompts]
    return [canvas[at : at + length] for canvas, at in zip(work.sheet.canvases(), starts, strict=True)]


def _packed(model: Model) -> AbstractContextManager[None]:
    """On a CPU one large product is no faster than three, and nothing of the model need be moved."""
    return packed_products(model.core) if model.device.type == "cuda" else nullcontext()


def _text(model: Model, ids: Sequence[int]) -> str:
    return "" if model.tokenizer is None else model.tokenizer.decode(ids, skip_special_tokens=True)


@dataclass(frozen=True)
class _Schedule:
    """How many steps each lane takes in a block, and what happens in them."""

    lengths: list[int] | None  # None where the rule keeps its own pace
    left: list[list[int]]  # [lanes][steps] rows still open after each step; empty where nobody knows
    counts: Tensor | None = None  # [steps, lanes] int64
    times: Tensor | None = None  # [steps + 1, lanes] float32


def _schedule(request: Request, masks: list[int], device: torch.device) -> _Schedule:
    rule, knobs = request.rule, request.knobs
    if rule.own_pace:
        return _Schedule(None, [])
    lengths = [request.steps // request.blocks if request.steps else n for n in masks]
    longest = max(lengths)
    if rule.times is not None:
        times = [_padded(rule.times(steps, knobs), longest + 1) for steps in lengths]
        return _Schedule(lengths, [], times=torch.tensor(times).t().to(device))
    assert rule.counts is not None
    counts = [_padded(rule.counts(n, steps, knobs), longest) for n, steps in zip(masks, lengths, strict=True)]
    left = [[n - done for done in accumulate(line)] for n, line in zip(masks, counts, strict=True)]
    return _Schedule(lengths, left, counts=torch.tensor(counts).t().to(device))


def _padded(line: list[Any], length: int) -> list[Any]:
    return [*line, *[0] * (length - len(line))]


class _Work:
    """One call of `generate` on a masked model."""

    def __init__(
        self, model: Model, request: Request, prompts: list[list[int]],
        generator: torch.Generator | list[torch.Generator], on_step: Callable[[Snapshot], None] | None,
    ) -> None:  # fmt: skip
        assert model.mask_id is not None
        self.model, self.request, self.prompts, self.generator, self.on_step = (
            model, request, prompts, generator, on_step,
        )  # fmt: skip
        self.mask_id = model.mask_id
        # With guidance every canvas has a blind twin, in which the prompt is masked.
        twins = [[self.mask_id] * len(prompt) for prompt in prompts] if request.guidance else []
        self.sheet = Sheet.lay([*prompts, *twins], request.max_new_tokens, self.mask_id, model.device)
        self.soft = SoftSheet.blank(model, len(self.sheet.ids)) if request.soft_mask else None
        self.ends = torch.tensor(request.end_ids, dtype=torch.int64, device=model.device)
        everything = [list(range(len(prompt) + request.max_new_tokens)) for prompt in prompts]
        self.whole = Grid.over(self.sheet, range(len(prompts)), everything)  # [S, longest canvas]
        self.prompt_lengths = torch.tensor([[len(prompt)] for prompt in prompts]).to(model.device)
        self.forwards = [0] * len(prompts)
        self.clock = torch.zeros(len(prompts), 1, dtype=torch.int64, device=model.device)  # steps of each sequence
        self.step = 0
        self.passes = Passes(model)
        self.kept: tuple[list[int], KeyValues] | None = None

    def run(self) -> list[Generation]:
        request = self.request
        working = list(range(len(self.prompts)))
        for block in plan(self.prompts, self.mask_id, request.max_new_tokens, request.canvas, request.block,
                          request.window):  # fmt: skip
            working = self.fill(block, working)
            if not working:
                break
        return self._generations()

    def fill(self, block: Block, sequences: list[int]) -> list[int]:
        """Fills the block's slots in these sequences; gives back the sequences that go on to the next block."""
        schedule = _schedule(self.request, [len(block.slots[s]) for s in sequences], self.model.device)
        grid = Grid.over(self.sheet, sequences, [block.slots[s] for s in sequences])
        lanes = _Lanes(self, block, sequences)
        memory: Memory | None = None
        stopped: set[int] = set()
        step = 0
        while lanes.active:
            logits = self._look(lanes, grid, step)
            chance = self._chance(schedule, lanes, step, grid)
            rows, tokens = self._propose(logits, grid, chance)
            state = self._state(schedule, lanes, step, grid, memory, chance)
            choice = self.request.rule.pick(rows, state, self.request.knobs)
            grid = self._write(lanes, grid, tokens, choice.flip)
            memory = choice.memory
            if self.soft is not None and self.request.soft_mask is not None:
                for places in self._both(grid.places):
                    self.soft.mix(self.model, self.request.soft_mask, logits, places)
            for lane in lanes.active:
                self.forwards[sequences[lane]] += 2 if self.request.guidance else 1
            if self.request.early_stop:
                stopped |= self._stop_ended()
            if self.on_step is not None:
                self.on_step(Snapshot(self.step, self.sheet, len(self.prompts)))
            self.clock[lanes.sequence] += 1
            self.step, step = self.step + 1, step + 1
            stays = _stays(schedule, lanes.active, step, grid, [sequences[lane] in stopped for lane in lanes.active])
            if not all(stays):
                kept = lanes.keep(stays)
                grid = grid.keep(kept)
                memory = None if memory is None else Memory(memory.log_p[kept], memory.calm[kept])
            if schedule.left and lanes.active:
                # Committed rows stay committed under these rules: drop them, and the head never sees them again.
                grid = grid.narrow(max(schedule.left[lane][step - 1] for lane in lanes.active))
        return [s for s in sequences if s not in stopped]

    def _look(self, lanes: "_Lanes", grid: Grid, step: int) -> Tensor:
        """Logits of the grid's rows. -> [S, W, V]."""
        frame, cache, members = lanes.reading(step)
        hidden = self.passes.hidden(frame, cache, self._pass)
        batch = frame.batch(self.sheet)
        shape = (*grid.open.shape, -1)
        logits = [self.model.head(hidden[frame.rows(self.model, batch, m, grid)]).view(shape) for m in members]
        seen = logits[0] if len(logits) == 1 else guide(logits[0], logits[1], self.request.guidance, self.mask_id)
        if self.request.forbid_end:
            seen[..., self.request.end_ids[0]] = float("-inf")
        return seen

    def _pass(self, frame: Frame, cache: KeyValues | None) -> Tensor:
        """Hidden states of what the frame shows of the canvases now. -> [T, d]."""
        batch = frame.batch(self.sheet)
        if self.soft is not None and batch.ids is not None:
            batch = replace(batch, ids=None, embeds=self.soft.show(self.model, batch.ids, frame.index))
        return self.model.hidden(batch, cache)

    def store(self, lengths: list[int]) -> KeyValues:
        """The cache of a block; the block before's where the lengths are the same, for its first pass fills it anew."""
        if self.kept is None or self.kept[0] != lengths:
            self.kept = lengths, self.model.new_cache(lengths)
        return self.kept[1]

    def _chance(self, schedule: _Schedule, lanes: "_Lanes", step: int, grid: Grid) -> Chance:
        """What this step's draws come from. A lane alone would have as many rows as it has slots, or open ones."""
        if isinstance(self.generator, torch.Generator):
            return self.generator
        sequences = [lanes.sequences[lane] for lane in lanes.active]
        generators = [self.generator[s] for s in sequences]
        if not schedule.left or step == 0:
            return OneEach(generators, [len(lanes.block.slots[s]) for s in sequences], None)
        widths = [schedule.left[lane][step - 1] for lane in lanes.active]
        return OneEach(generators, widths, (grid.open.cumsum(dim=1) - 1).clamp(min=0))

    def _propose(self, logits: Tensor, grid: Grid, chance: Chance) -> tuple[Rows, Tensor]:
        request = self.request
        sharpened = sharpen(logits, request.temperature, request.top_k, request.top_p)
        tokens = propose(sharpened, request.temperature, chance)
        held = torch.isin(tokens, self.ends) & grid.open if request.late_end else None
        return Rows(sharpened if request.rule.filtered else logits, tokens, grid.open, held), tokens

    def _state(
        self, schedule: _Schedule, lanes: "_Lanes", step: int, grid: Grid, memory: Memory | None, chance: Chance
    ) -> State:
        counts, times = schedule.counts, schedule.times
        return State(
            count=None if counts is None else counts[step, lanes.index],
            time=None if times is None else times[step, lanes.index],
            after=None if times is None else times[step + 1, lanes.index],
            draws=uniform(tuple(grid.open.shape), chance, grid.open.device) if self.request.rule.draws else None,
            memory=memory,
        )

    def _write(self, lanes: "_Lanes", grid: Grid, tokens: Tensor, flip: Tensor) -> Grid:
        flip = flip & (grid.places < len(self.sheet.ids) - 1)
        for places in self._both(grid.places):
            self.sheet.turn(
                places, tokens, flip & grid.open, flip & ~grid.open, self.mask_id, self.clock[lanes.sequence]
            )
        return replace(grid, open=grid.open ^ flip)

    def _both(self, places: Tensor) -> list[Tensor]:
        """The places themselves, and with guidance those of the blind twins."""
        if not self.request.guidance:
            return [places]
        spare = len(self.sheet.ids) - 1
        return [places, torch.where(places == spare, spare, places + self.sheet.starts[len(self.prompts)])]

    def _stop_ended(self) -> set[int]:
        """Fills the rest of those sequences that have an end token with no mask before it, and names them."""
        sheet, places = self.sheet, self.whole.places
        masked = sheet.ids[places] == self.mask_id
        new_end = torch.isin(sheet.ids[places], self.ends) & (self.whole.positions >= self.prompt_lengths)
        ended = (new_end & (masked.cumsum(dim=1) == 0)).any(dim=1)
        fill = masked & ended[:, None] & (places < len(sheet.ids) - 1)
        sheet.turn(places, self.ends[:1], fill, torch.zeros_like(fill), self.mask_id, self.clock)
        return {s for s, over in enumerate(ended.tolist()) if over}

    def _generations(self) -> list[Generation]:
        found = []
        canvases, orders = self.sheet.canvases(), self.sheet.orders()
        for s, prompt in enumerate(self.prompts):
            new = [place for place, step in enumerate(orders[s]) if step >= 0]
            ids = [canvases[s][place] for place in new]
            shown = canvases[s] if self.mask_id in prompt else ids
            found.append(
                Generation(ids, _text(self.model, shown), self.forwards[s], [orders[s][p] for p in new], canvases[s])
            )
        return found


def _stays(schedule: _Schedule, active: list[int], step: int, grid: Grid, stopped: list[bool]) -> list[bool]:
    """Which lanes go on after `step` steps of the block."""
    if schedule.lengths is not None:
        going = [step < schedule.lengths[lane] for lane in active]
    else:
        going = grid.open.any(dim=-1).tolist()
    return [go and not stop for go, stop in zip(going, stopped, strict=True)]


class _Lanes:
    """The sequences still at work in a block, and what each forward pass reads of them.

    Without a cache a sequence that is done leaves the batch. With one it keeps its place in the store, which is laid
    out once a block, and reads nothing: an empty span.
    """

    def __init__(self, work: _Work, block: Block, sequences: list[int]) -> None:
        self.work, self.block, self.sequences = work, block, sequences
        self.active = list(range(len(sequences)))
        self.index = torch.arange(len(sequences), device=work.model.device)  # the active lanes
        self.sequence = torch.tensor(sequences, dtype=torch.int64).to(work.model.device)  # and their sequences
        self.cache: KeyValues | None = None
        self.frames: dict[str, Frame] = {}

    def keep(self, stays: list[bool]) -> Tensor:
        """Drops lanes; the places of the others among those active so far."""
        kept = [place for place, stay in enumerate(stays) if stay]
        self.active = [self.active[place] for place in kept]
        places = torch.tensor(kept, dtype=torch.int64).to(self.index.device)
        self.index, self.sequence = self.index[places], self.sequence[places]
        self.frames = {}
        return places

    def reading(self, step: int) -> tuple[Frame, KeyValues | None, list[Tensor]]:
        """The frame of this step, the cache, and which sequences of the batch the lanes (and their twins) are."""
        request = self.work.request
        if request.cache == "none":
            everything = True
        else:
            everything = step == 0 or (request.refresh is not None and step % request.refresh == 0)
            if self.cache is None:
                shown = [self.block.shown[s] for s in self.sequences]
                self.cache = self.work.store(shown * (2 if request.guidance else 1))
        kind = "whole" if everything else request.cache
        if kind not in self.frames:
            self.frames[kind] = self._frame(kind)
        # Without a cache only active lanes are in the batch, in their order; with one all lanes of the block are.
        first = self.index if self.cache is not None else torch.arange(len(self.active), device=self.index.device)
        batch_size = len(self.sequences) if self.cache is not None else len(self.active)
        return self.frames[kind], self.cache, [first, first + batch_size] if request.guidance else [first]

    def _frame(self, kind: str) -> Frame:
        lanes = self.active if self.cache is None else list(range(len(self.sequences)))
        spans = [self._span(self.sequences[lane], kind) if lane in self.active else (0, 0) for lane in lanes]
        sequences = [self.sequences[lane] for lane in lanes]
        if self.work.request.guidance:
            sequences, spans = [*sequences, *(s + len(self.work.prompts) for s in sequences)], spans * 2
        return Frame.of(self.work.sheet, sequences, spans)

    def _span(self, sequence: int, kind: str) -> tuple[int, int]:
        slots, shown = self.block.slots[sequence], self.block.shown[sequence]
        if kind == "whole":
            return 0, shown
        return self.work.model.first_row(slots[0]), shown if kind == "prefix" else slots[-1] + 1
