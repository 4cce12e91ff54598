"""The decoding loop of masked models: a generation canvas, an unmasking strategy and a cache put together.

Each step reads one span of every canvas, applies the head to the rows of the active block alone, lets the strategy
choose the rows to commit, and writes them to the canvas on the device. Within a step nothing is copied to the host. The
host looks at the canvas between steps only when it has to: with an adaptive strategy or early stop, after each step.
"""

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace

import torch
from torch import Tensor

from maskwise.decoding.canvas import Block, Frame, Grid, Sheet, SoftSheet, plan
from maskwise.decoding.history.snapshot import Snapshot
from maskwise.decoding.options import DecodingOptions
from maskwise.decoding.replay import Passes
from maskwise.decoding.sampling import Chance, OneEach, guide, propose, sharpen, uniform
from maskwise.decoding.schedule import PASSES_AFTER, BlockSchedule, Editing, block_schedule, steps_per_block
from maskwise.decoding.strategies.state import Memory, Rows, State
from maskwise.models.attention.ragged import KeyValues
from maskwise.models.finite import refuse_nonfinite_rows
from maskwise.models.generation import Generation
from maskwise.models.model import Model
from maskwise.support.errors import UserError


def decoded_text(model: Model, ids: Sequence[int]) -> str:
    return "" if model.tokenizer is None else model.tokenizer.decode(ids, skip_special_tokens=True)


class DecodingLoop:
    """The decoding of one batch of prompts by a masked model.
    options: those that `check_request` gives. first: the number of the first prompt in the whole call, for messages."""

    def __init__(
        self,
        model: Model,
        options: DecodingOptions,
        prompts: list[list[int]],
        generator: torch.Generator | list[torch.Generator],
        on_step: Callable[[Snapshot], None] | None,
        first: int = 0,
    ) -> None:
        assert model.mask_id is not None
        self.model, self.options, self.prompts, self.first = model, options, prompts, first
        self.generator, self.on_step = generator, on_step
        self.mask_id = model.mask_id
        self.strategy, self.parameters = options.strategy, options.all_parameters
        # With guidance every canvas has an unconditional copy with a masked prompt.
        copies = [[self.mask_id] * len(prompt) for prompt in prompts] if options.guidance else []
        self.sheet = Sheet.lay([*prompts, *copies], options.max_new_tokens, self.mask_id, model.device)
        self.soft = SoftSheet.blank(model, len(self.sheet.ids)) if options.soft_mask else None
        self.end_ids = options.end_ids or ()
        self.ends = torch.tensor(self.end_ids, dtype=torch.int64, device=model.device)
        everything = [list(range(len(prompt) + options.max_new_tokens)) for prompt in prompts]
        self.whole = Grid.over(self.sheet, range(len(prompts)), everything)  # [S, longest canvas]
        self.prompt_lengths = torch.tensor([[len(prompt)] for prompt in prompts]).to(model.device)
        self.forwards = [0] * len(prompts)
        self.finite = torch.zeros(len(prompts), device=model.device)  # sums that are finite if all logits were
        self.step = 0
        self.passes = Passes(model)
        self.kept: tuple[list[int], KeyValues] | None = None
        self.filled: dict[int, int] = {}  # where the cache of each sequence ceases to hold final keys and values

    def run(self) -> list[Generation]:
        options = self.options
        working = list(range(len(self.prompts)))
        new, canvas = options.max_new_tokens, options.chosen_canvas
        blocks = plan(self.prompts, self.mask_id, new, canvas, options.block, options.window, self.model.block)
        masks = [[len(block.slots[s]) for block in blocks if block.slots[s]] for s in working]
        steps = [steps_per_block(options, counts, self.model.block is not None) for counts in masks]
        with closing(self.passes):
            for number, block in enumerate(blocks):
                working = [s for s in working if block.slots[s]]
                if not working:
                    break
                working = self.fill(block, working, [steps[s][number] for s in working])
        return self.generations()

    def fill(self, block: Block, sequences: list[int], steps: list[int] | None = None) -> list[int]:
        """Fills the block's masks in these sequences; returns the sequences that continue with the next block.
        steps: of each sequence; by default one for each mask."""
        masks = [len(block.slots[s]) for s in sequences]
        schedule = block_schedule(self.options, masks, steps or masks, self.model.device)
        grid = Grid.over(self.sheet, sequences, [block.slots[s] for s in sequences])
        lanes = Lanes(self, block, sequences)
        longest = max(len(block.slots[s]) for s in sequences)
        memory: Memory | None = None
        editing = Editing(len(sequences), self.model.device)
        stopped: set[int] = set()
        step = 0
        while lanes.active:
            logits = self._look(lanes, grid, step)
            chance = self._chance(schedule, lanes, step, grid)
            rows, known = self._propose(logits, grid, chance)
            self.finite.index_add_(0, lanes.sequence, _finite(logits, rows, known))
            state = self._state(schedule, lanes, step, grid, memory, chance)
            choice = self.strategy.pick(rows, state, self.parameters)
            edits = None if self.options.edit is None else self._edits(grid, rows, editing)
            asked, grid = grid.places, self._write(lanes, grid, rows.tokens, choice.flip, edits)
            memory = choice.memory
            if self.soft is not None and self.options.soft_mask is not None:
                for places in self._both(grid.places):
                    self.soft.mix(self.model, self.options.soft_mask, logits, places)
            for lane in lanes.active:
                self.forwards[sequences[lane]] += 2 if self.options.guidance else 1
            if self.options.early_stop:
                stopped |= self._stop_ended()
            if self.on_step is not None:
                self.on_step(Snapshot(self.step, self.sheet, self.prompts, block.shown, rows, asked, self.mask_id))
            lanes.clock += 1
            self.step, step = self.step + 1, step + 1
            again = None if edits is None else editing.goes_on(edits)
            over = [sequences[lane] in stopped for lane in lanes.active]
            stays = _stays(schedule, lanes.active, step, grid, again, over)
            if not all(stays):
                kept = lanes.keep(stays)
                grid, editing = grid.keep(kept), editing.keep(kept)
                memory = None if memory is None else Memory(memory.log_p[kept], memory.calm[kept])
            most = longest if self.options.edit is None else longest + PASSES_AFTER
            if lanes.active and schedule.lengths is None and step >= most:
                raise UserError(
                    f"strategy {self.strategy.name} commits no token in some steps: it must always commit one"
                )
            if schedule.left and lanes.active:
                # With these strategies committed rows stay committed: drop them, so that the head skips them.
                grid = grid.narrow(max(schedule.left[lane][step - 1] for lane in lanes.active))
        return [s for s in sequences if s not in stopped]

    def _look(self, lanes: "Lanes", grid: Grid, step: int) -> Tensor:
        """Logits of the grid's rows. -> [S, W, V]."""
        frame, cache, members = lanes.reading(step)
        batch = frame.batch(self.sheet)
        if self.soft is not None and batch.ids is not None:
            batch = replace(batch, embeds=self.soft.show(self.model, batch.ids, frame.index))
        hidden = self.passes.hidden(batch, cache)
        shape = (*grid.open.shape, -1)
        logits = [self.model.head(hidden[frame.rows(self.model, batch, m, grid)]).view(shape) for m in members]
        seen = logits[0] if len(logits) == 1 else guide(logits[0], logits[1], self.options.guidance, self.mask_id)
        if self.options.forbid_end:
            seen[..., self.end_ids[0]] = float("-inf")
        return seen

    def store(self, lanes: "Lanes", copies: int) -> KeyValues:
        """A cache for these lanes: the previous block's if it fits, because a block's first pass refills it.

        In a block diffusion model the keys and values before the previous block are final: the first pass begins at the
        previous block and recomputes it after its last commit.
        """
        within, options = self.model.block is not None, self.options
        # The cache must not hold visible keys of tokens that do not exist yet.
        grows = options.chosen_canvas == "growing" and options.block != self.model.block
        canvases = self.sheet.lengths if within and not grows else lanes.block.shown
        lengths = [canvases[s] for s in lanes.sequences] * copies
        if self.kept is None or self.kept[0] != lengths:
            self.kept = lengths, self.passes.new_cache(lengths)
            self.filled = {}
        if within:
            lanes.changed = self.filled
            self.filled = {s: self.model.first_computed(lanes.block.slots[s][0]) for s in lanes.sequences}
        return self.kept[1]

    def _chance(self, schedule: BlockSchedule, lanes: "Lanes", step: int, grid: Grid) -> Chance:
        """The random generators of this step: one for all, or one per sequence.

        A sequence with a generator of its own draws as many numbers as it would if it were decoded alone: one for each
        row of the block, or from the second step on one for each open row where the grid is narrowed to those.
        """
        if isinstance(self.generator, torch.Generator):
            return self.generator
        sequences = [lanes.sequences[lane] for lane in lanes.active]
        generators = [self.generator[s] for s in sequences]
        if not schedule.left or step == 0:
            return OneEach(generators, [len(lanes.block.slots[s]) for s in sequences], None)
        widths = [schedule.left[lane][step - 1] for lane in lanes.active]
        return OneEach(generators, widths, (grid.open.cumsum(dim=1) - 1).clamp(min=0))

    def _propose(self, logits: Tensor, grid: Grid, chance: Chance) -> tuple[Rows, Tensor | None]:
        """The rows, and the log-probabilities of their tokens in the distribution they were drawn from, if known."""
        options = self.options
        sharpened = sharpen(logits, options.temperature, options.top_k, options.top_p)
        tokens, known = propose(sharpened, options.temperature, chance)
        judged = sharpened if self.strategy.filtered else logits
        held = torch.isin(tokens, self.ends) & grid.open if options.late_end else None
        return Rows(judged, tokens, grid.open, held, known if judged is sharpened else None), known

    def _state(
        self, schedule: BlockSchedule, lanes: "Lanes", step: int, grid: Grid, memory: Memory | None, chance: Chance
    ) -> State:
        counts, times = schedule.counts, schedule.times
        return State(
            count=None if counts is None else counts[step, lanes.index],
            time=None if times is None else times[step, lanes.index],
            after=None if times is None else times[step + 1, lanes.index],
            draws=uniform(tuple(grid.open.shape), chance, grid.open.device) if self.strategy.draws else None,
            memory=memory,
        )

    def _edits(self, grid: Grid, rows: Rows, editing: Editing) -> Tensor:
        """Rows that hold a token and get another one, [S, W]."""
        assert self.options.edit is not None
        editing.count(grid.open)
        held = ~grid.open & (grid.places < len(self.sheet.ids) - 1)
        if self.options.late_end:  # no end token while anything else is left in the block
            held &= ~(torch.isin(rows.tokens, self.ends) & grid.open.any(dim=-1, keepdim=True))
        sure = rows.log_p.exp() > self.options.edit
        return held & sure & (rows.tokens != self.sheet.ids[grid.places])

    def _write(self, lanes: "Lanes", grid: Grid, tokens: Tensor, flip: Tensor, edits: Tensor | None) -> Grid:
        open = grid.open
        for places in self._both(grid.places):
            open = self.sheet.commit(places, tokens, flip, grid.open, self.mask_id, lanes.clock)
            if edits is not None:  # rows that hold a token and get another
                self.sheet.commit(places, tokens, edits, edits, self.mask_id, lanes.clock)
        return replace(grid, open=open)

    def _both(self, places: Tensor) -> list[Tensor]:
        """The places themselves, and with guidance those of the unconditional copies."""
        if not self.options.guidance:
            return [places]
        spare = len(self.sheet.ids) - 1
        return [places, torch.where(places == spare, spare, places + self.sheet.starts[len(self.prompts)])]

    def _stop_ended(self) -> set[int]:
        """Fills the masks of the sequences that have a new end token with no mask before it; returns their numbers."""
        sheet, places = self.sheet, self.whole.places
        masked = sheet.ids[places] == self.mask_id
        new_end = torch.isin(sheet.ids[places], self.ends) & (self.whole.positions >= self.prompt_lengths)
        ended = (new_end & (masked.cumsum(dim=1) == 0)).any(dim=1)
        fill = masked & ended[:, None] & (places < len(sheet.ids) - 1)
        now = self.steps_taken(range(len(self.prompts))) - 1  # this step is counted already
        sheet.commit(places, self.ends[:1], fill, masked, self.mask_id, now)
        return {s for s, over in enumerate(ended.tolist()) if over}

    def steps_taken(self, sequences: Sequence[int]) -> Tensor:
        """[S, 1]"""
        taken = torch.tensor([[self.forwards[s]] for s in sequences]) // (2 if self.options.guidance else 1)
        return taken.to(self.model.device)

    def refuse_spoiled(self) -> None:
        """Waits for the device once, at the end, where the canvases are read anyway."""
        for number, fine in enumerate(self.finite.isfinite().tolist()):
            if not fine:
                prompt = [*self.prompts[number], self.mask_id]
                refuse_nonfinite_rows(self.model, prompt, f"prompt {self.first + number + 1}")

    def generations(self) -> list[Generation]:
        self.refuse_spoiled()
        generations: list[Generation] = []
        canvases, orders = self.sheet.canvases(), self.sheet.orders()
        for prompt, canvas, order in zip(self.prompts, canvases, orders, strict=False):
            new = [place for place, step in enumerate(order) if step >= 0]
            ids = [canvas[place] for place in new]
            text = decoded_text(self.model, canvas if self.mask_id in prompt else ids)
            steps = [order[place] for place in new]
            generations.append(Generation(ids, text, self.forwards[len(generations)], steps, canvas))
        return generations


def _finite(logits: Tensor, rows: Rows, known: Tensor | None) -> Tensor:
    """A number of each sequence, not finite where an open row's logits are not. [S]"""
    seen = logits.gather(-1, rows.tokens[..., None])[..., 0] if known is None else known
    return torch.where(rows.open, seen, 0.0).sum(dim=1)


def _stays(
    schedule: BlockSchedule, active: list[int], step: int, grid: Grid, again: Tensor | None, stopped: list[bool]
) -> list[bool]:
    """True for lanes that continue after `step` steps of the block. again [S]: those read again for edits."""
    if schedule.lengths is not None:
        going = [step < schedule.lengths[lane] for lane in active]
    else:
        going = (grid.open.any(dim=-1) if again is None else again).tolist()
    return [go and not stop for go, stop in zip(going, stopped, strict=True)]


class Lanes:
    """The sequences still being decoded in a block, one lane each, and the input of each forward pass.

    Without a cache a sequence that is done leaves the batch. The cache is laid out once per block, so with a cache the
    sequence stays in the batch with an empty span: nothing of it is read.
    """

    def __init__(self, loop: DecodingLoop, block: Block, sequences: list[int]) -> None:
        self.loop, self.block, self.sequences = loop, block, sequences
        self.active = list(range(len(sequences)))
        self.index = torch.arange(len(sequences), device=loop.model.device)  # the active lanes
        self.sequence = torch.tensor(sequences, dtype=torch.int64).to(loop.model.device)  # and their sequences
        self.clock = loop.steps_taken(sequences)  # [S, 1] of the active lanes
        self.cache: KeyValues | None = None
        self.changed: dict[int, int] = {}  # a block's first pass begins there, 0 where nothing is said
        self.frames: dict[str, Frame] = {}

    def keep(self, stays: list[bool]) -> Tensor:
        """Keeps the lanes marked True; returns their places among the lanes that were active."""
        kept = [place for place, stay in enumerate(stays) if stay]
        self.active = [self.active[place] for place in kept]
        places = torch.tensor(kept, dtype=torch.int64).to(self.index.device)
        self.index, self.sequence, self.clock = self.index[places], self.sequence[places], self.clock[places]
        self.frames = {}
        return places

    def reading(self, step: int) -> tuple[Frame, KeyValues | None, list[Tensor]]:
        """The frame of this step, the cache, and the lanes' sequences in the batch (with guidance also copies)."""
        options = self.loop.options
        if options.cache == "none":
            everything = True
        else:
            everything = step == 0 or (options.refresh is not None and step % options.refresh == 0)
            if self.cache is None:
                self.cache = self.loop.store(self, 2 if options.guidance else 1)
        kind = "whole" if everything else options.cache
        if kind not in self.frames:
            self.frames[kind] = self._frame(kind)
        # Without a cache only active lanes are in the batch, in their order; with one all lanes of the block are.
        first = self.index if self.cache is not None else torch.arange(len(self.active), device=self.index.device)
        batch_size = len(self.sequences) if self.cache is not None else len(self.active)
        return self.frames[kind], self.cache, [first, first + batch_size] if options.guidance else [first]

    def _frame(self, kind: str) -> Frame:
        lanes = self.active if self.cache is None else list(range(len(self.sequences)))
        spans = [self._span(self.sequences[lane], kind) if lane in self.active else (0, 0) for lane in lanes]
        sequences = [self.sequences[lane] for lane in lanes]
        if self.loop.options.guidance:
            sequences, spans = [*sequences, *(s + len(self.loop.prompts) for s in sequences)], spans * 2
        return Frame.of(self.loop.sheet, sequences, spans)

    def _span(self, sequence: int, kind: str) -> tuple[int, int]:
        slots, shown = self.block.slots[sequence], self.block.shown[sequence]
        if kind == "whole":
            return self.changed.get(sequence, 0), shown
        return self.loop.model.first_computed(slots[0]), shown if kind == "prefix" else slots[-1] + 1
