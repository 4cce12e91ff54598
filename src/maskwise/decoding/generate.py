"""`generate`: text from any model. The loop itself is in loop.py, the options are documented in options.py."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Unpack

import torch

from maskwise.decoding.autoregressive import check_causal, continue_causal
from maskwise.decoding.canvas import Block, plan
from maskwise.decoding.checks import check_request, for_model
from maskwise.decoding.divergence import Divergence, check_divergence
from maskwise.decoding.history.snapshot import Snapshot
from maskwise.decoding.known_names import chosen_options, refuse_other_mask
from maskwise.decoding.loop import DecodingLoop, decoded_text
from maskwise.decoding.options import OPTION_NAMES, DecodingOptions, SoftMask, describe_options
from maskwise.decoding.prompt_ids import encode_prompts, listed_prompts, note_other_masks
from maskwise.decoding.strategies import Strategy
from maskwise.decoding.traces import recorded_settings, trace_file, trace_of
from maskwise.models.batch import passes
from maskwise.models.checkpoints.locations import refuse_swapped
from maskwise.models.checkpoints.opening import opened_model
from maskwise.models.families.packing import columnwise_products, packed_products
from maskwise.models.generation import Generation, Generations, OtherNames, PromptInput
from maskwise.models.model import Model
from maskwise.support.errors import UserError, UserNotice
from maskwise.support.randomness import number_repeats, torch_generator

# Forward passes that make up for laying the weights by column and back: 10 with SmolLM2's 135 M on an ARM core.
WORTH_LAYING_OUT = 16
BATCH_BYTES, BATCH_SHARE = 1 << 28, 16  # memory for what a batch computes: on a CPU, and the share of a GPU's

__all__ = ["Generation", "Generations", "Snapshot", "decode", "generate", "greedy_answers"]

Generators = torch.Generator | Sequence[torch.Generator] | None
OnStep = Callable[[Snapshot], None] | None
OnBatch = Callable[[int, list[Generation]], None]
DEFAULT = DecodingOptions()


def generate(
    model: str | Path | Model,
    prompts: Sequence[PromptInput] | PromptInput,
    max_new_tokens: int = DEFAULT.max_new_tokens,
    steps: int | None = DEFAULT.steps,
    block: int | None = DEFAULT.block,
    rule: str | Strategy = DEFAULT.rule,
    canvas: str | None = DEFAULT.canvas,
    cache: str = DEFAULT.cache,
    temperature: float = DEFAULT.temperature,
    generator: Generators = None,
    *,
    parameters: Mapping[str, float] | None = DEFAULT.parameters,
    window: int | None = DEFAULT.window,
    refresh: int | None = DEFAULT.refresh,
    top_k: int | None = DEFAULT.top_k,
    top_p: float | None = DEFAULT.top_p,
    guidance: float = DEFAULT.guidance,
    forbid_end: bool = DEFAULT.forbid_end,
    late_end: bool = DEFAULT.late_end,
    early_stop: bool = DEFAULT.early_stop,
    end_ids: Sequence[int] | None = DEFAULT.end_ids,
    soft_mask: SoftMask | bool | None = DEFAULT.soft_mask,
    edit: float | None = DEFAULT.edit,
    chat: bool | None = DEFAULT.chat,
    seed: int | None = None,
    batch: int | None = None,
    out: str | Path | None = None,
    divergence: bool = False,
    on_step: OnStep = None,
    **named: Unpack[OtherNames],
) -> Generations:
    """Continues prompts of any lengths, or fills in the masks inside them.

    Arguments:
        model: a name or an opened model.
        prompts: a text, a chat (a list of {"role", "content"}), or a list of texts, chats and lists of token ids.
        named: parameters of the strategy by their names, ours or the published ones, such as threshold=0.8. Where no
            strategy is named, a parameter that only one strategy has chooses it. Also the names that LLaDA's, Dream's
            and transformers' code give to these options, such as gen_length and remasking.

    Returns:
        A list with one `Generation` per prompt: ids, text, forwards, order, sequence. Its `settings` are the options by
        our names, its `traces` what `out` holds, its `divergence` what was measured.

    >>> import maskwise as mw
    >>> model = mw.open("tiny-llada")
    >>> len(mw.generate(model, ["Once upon a time", "It was"], max_new_tokens=8, steps=4)[0].ids)
    8
    >>> mw.generate(model, "Once upon a time", 8, threshold=0.1)[0].forwards < 8
    True

    generator: the source of random numbers; when left out, one of the seed 0. Given a list of generators, one per
        prompt, what is drawn for a prompt does not depend on the other prompts in the batch.
    seed: in place of a generator, one for each prompt, which depends on the seed, the prompt's tokens and the number of
        equal prompts before it.
    batch: prompts decoded at a time; when left out, as many as fit into a share of the memory, or all with on_step.
    out: a new .jsonl file for the traces, one line per prompt; it is OUT.partial until all are done.
    divergence: decode exactly too, and compare; for greedy decoding with a cache or a window.
    on_step: called with a Snapshot after each step; another thread that asks the same model waits for the end, so do
        not wait there for one.
    """
    given = locals()
    if isinstance(generator, int):
        raise UserError(f"generator takes generators of torch: give a number as seed={generator}")
    if on_step is not None and not callable(on_step):
        raise UserError("on_step must be a function, which is called with a Snapshot after each step")
    options = chosen_options({name: given[name] for name in OPTION_NAMES}, dict(named))
    refuse_swapped(model, prompts)
    if options.temperature == 0 and (options.top_k, options.top_p) != (None, None) and not options.strategy.filtered:
        unused = "top_k and top_p change nothing at temperature 0: give a temperature above 0 to sample"
        warnings.warn(unused, UserNotice, stacklevel=2)
    opened = opened_model(model)
    refuse_other_mask(named.get("mask_id"), opened.mask_id, opened.name or opened.kind)
    listed = listed_prompts(prompts)
    if seed is not None and generator is not None:
        raise UserError("seed and generator exclude each other: give one")
    return _recorded(opened, listed, options, generator, seed, batch, out, divergence, on_step)


generate.__doc__ = f"{(generate.__doc__ or '').rstrip()}\n\n{describe_options()}\n"


def _recorded(
    model: Model,
    prompts: list[Any],
    options: DecodingOptions,
    generator: Generators,
    seed: int | None,
    batch: int | None,
    out: str | Path | None,
    divergence: bool,
    on_step: OnStep,
) -> Generations:
    """Decodes batch by batch and records settings, traces and, on request, the divergence from exact decoding."""
    note_other_masks(model, prompts, options.max_new_tokens == 0)
    options = for_model(model, options)
    if divergence:
        check_divergence(model, options)
    with nullcontext() if out is None else trace_file(Path(out)) as write:
        ids = encode_prompts(model, prompts, options.chat, today=True)
        if seed is not None:
            generator = prompt_generators(model, seed, ids)
        same_draws: Generators = None  # a copy, so that exact decoding draws the same numbers
        if divergence and generator is not None:
            each = [generator] if isinstance(generator, torch.Generator) else generator
            copies = [one.clone_state() for one in each]
            same_draws = copies[0] if isinstance(generator, torch.Generator) else copies
        found = Generations(model=model.name or model.kind, settings=recorded_settings(model, options))

        def keep(first: int, generations: list[Generation]) -> None:
            traces = [
                trace_of(prompts[number], ids[number], generation, bool(options.guidance))
                for number, generation in enumerate(generations, first)
            ]
            found.traces.extend(traces)
            if write is not None:
                write(traces)

        found.extend(decode(model, ids, options, generator, on_step, batch, keep))
    if divergence:
        exact = decode(model, ids, options.exact(), same_draws, batch=batch)
        found.divergence = asdict(Divergence.between(exact, found))
    return found


def prompt_generators(model: Model, seed: int, prompts: Sequence[Sequence[int]]) -> list[torch.Generator]:
    """A generator for each prompt, which depends on the seed, its tokens and the number of equal prompts before it."""
    return [torch_generator("generate", seed, parts, device=model.device) for parts in number_repeats(prompts)]


@torch.no_grad()
def decode(
    model: Model,
    prompts: list[list[int]],
    options: DecodingOptions,
    generator: Generators = None,
    on_step: OnStep = None,
    batch: int | None = None,
    on_batch: OnBatch | None = None,
) -> list[Generation]:
    """`generate` for prompts of token ids, with the options as one value. on_batch: called after each batch with the
    number of its first prompt and its generations."""
    if batch is not None and batch < 1:
        raise UserError(f"batch {batch} holds no prompt: give 1 or more")
    if isinstance(generator, Sequence) and len(generator) != len(prompts):
        raise UserError(f"{len(prompts)} prompts but {len(generator)} generators: give one each, or one for all")
    draws = torch_generator("generate", 0, device=model.device) if generator is None else generator
    if model.causal:
        if on_step is not None:
            raise UserError(f"{model.name or model.kind} is autoregressive: on_step applies to masked models only")
        check_causal(model, prompts, options)
    else:
        options = check_request(model, prompts, options)
    found: list[Generation] = []
    with model.lock, _weights_laid_out(model, options.steps or options.max_new_tokens):
        for first, last in _batches(model, prompts, options, batch, on_step is not None):
            own_draws = draws if isinstance(draws, torch.Generator) else list(draws[first:last])
            part = _decode_batch(model, prompts[first:last], options, own_draws, on_step, first)
            found += part
            if on_batch is not None:
                on_batch(first, part)
    return found


def _decode_batch(
    model: Model,
    prompts: list[list[int]],
    options: DecodingOptions,
    draws: torch.Generator | list[torch.Generator],
    on_step: OnStep,
    first: int,
) -> list[Generation]:
    """first: the number of the first prompt in the whole call, for messages."""
    if not model.causal:
        return DecodingLoop(model, options, prompts, draws, on_step, first).run()
    continued = continue_causal(model, prompts, draws, options, first)
    return [
        Generation(new, decoded_text(model, new), len(new), list(range(len(new))), [*prompt, *new])
        for prompt, new in zip(prompts, continued, strict=True)
    ]


def _batches(
    model: Model, prompts: Sequence[Sequence[int]], options: DecodingOptions, batch: int | None, watched: bool
) -> list[tuple[int, int]]:
    """First and last + 1 of the prompts that are decoded together, so that a call takes the memory of a batch.
    A callback is shown all canvases of a call, so with one there is one batch, unless its size is given."""
    if batch is not None or watched:
        return passes([1] * len(prompts), batch or max(len(prompts), 1))
    rows = 1 if model.causal else (options.block or options.max_new_tokens)
    width = model.head_weight.shape[1]
    # Float32 logits of the open rows, twice with guidance, and about 16 numbers of the model's width for each token.
    logits = 4 * model.vocab * (2 if options.guidance else 1)
    sizes = [
        logits * (rows + prompt.count(model.mask_id)) + 64 * width * (len(prompt) + options.max_new_tokens)
        for prompt in prompts
    ]
    budget = BATCH_BYTES
    if model.device.type == "cuda":
        budget = torch.cuda.get_device_properties(model.device).total_memory // BATCH_SHARE
    return passes(sizes, budget)


@torch.no_grad()
def greedy_answers(model: Model, prompts: list[list[int]], length: int, masks: int) -> list[list[int]]:
    """The first `length` new tokens of each prompt, decoded greedily one per step, the most confident first.
    `masks` further masks follow and stay masks."""
    new = length + masks
    options = check_request(model, prompts, DecodingOptions(max_new_tokens=new))
    loop = DecodingLoop(model, options, prompts, torch_generator("generate", 0, device=model.device), None)
    with model.lock, _weights_laid_out(model, length), closing(loop.passes):
        for block in _answer_blocks(model, prompts, length, new):
            if sequences := [s for s, slots in enumerate(block.slots) if slots]:
                loop.fill(block, sequences)
    loop.refuse_spoiled()
    starts = [len(prompt) for prompt in prompts]
    return [canvas[at : at + length] for canvas, at in zip(loop.sheet.canvases(), starts, strict=True)]


def _answer_blocks(model: Model, prompts: list[list[int]], length: int, new: int) -> list[Block]:
    """The first `length` of `new` masks: one block, or the model's own, where it sees none after a token's."""
    assert model.mask_id is not None
    if model.block is None:
        return plan(prompts, model.mask_id, new, "blocks", length, None)[:1]
    ends = [len(prompt) + length for prompt in prompts]
    blocks = plan(prompts, model.mask_id, new, "blocks", model.block, None, model.block)
    kept = [[[p for p in own if p < end] for own, end in zip(block.slots, ends, strict=True)] for block in blocks]
    return [replace(block, slots=slots) for block, slots in zip(blocks, kept, strict=True)]


def _weights_laid_out(model: Model, forwards: int) -> AbstractContextManager[None]:
    """Lays out the weights as is fastest for so many forward passes."""
    if model.causal or model.spread:
        return nullcontext()
    if model.device.type == "cuda":
        return packed_products(model.core)
    openblas = model.device.type == "cpu" and not torch.backends.mkl.is_available() and forwards >= WORTH_LAYING_OUT
    return columnwise_products(model.core) if openblas else nullcontext()
