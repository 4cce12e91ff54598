"""`generate`: text from any model. The loop itself is in loop.py, the options are documented in options.py."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from maskwise.decoding.autoregressive import continue_causal
from maskwise.decoding.canvas import Block, plan
from maskwise.decoding.loop import DecodingLoop, Snapshot, decoded_text
from maskwise.decoding.options import OPTION_NAMES, DecodingOptions, SoftMask, describe_options
from maskwise.decoding.prompts import encode_prompts
from maskwise.decoding.request import check_generators, check_request, make_generator
from maskwise.decoding.strategies import STRATEGIES, Strategy, find_strategy, strategy_named_by
from maskwise.models.checkpoints.opening import opened_model
from maskwise.models.families.packing import columnwise_products, packed_products
from maskwise.models.generation import Generation, Prompt
from maskwise.models.model import Model
from maskwise.support.errors import UserError
from maskwise.support.nearest import nearest

# Forward passes that make up for laying the weights by column and back: 10 with SmolLM2's 135 M on an ARM core.
WORTH_LAYING_OUT = 16

__all__ = ["Generation", "Snapshot", "decode", "generate", "greedy_answers"]

Generators = torch.Generator | Sequence[torch.Generator] | None
OnStep = Callable[[Snapshot], None] | None
DEFAULT = DecodingOptions()


def generate(
    model: str | Path | Model,
    prompts: Sequence[Prompt] | Prompt,
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
    on_step: OnStep = None,
    knobs: Mapping[str, float] | None = None,
    **named: float,
) -> list[Generation]:
    """Continues prompts of any lengths, or fills in the masks inside them.

    Arguments:
        model: a name or an opened model.
        prompts: a text, a chat (a list of {"role", "content"}), or a list of texts, chats and lists of token ids.
        named: parameters of the strategy by their names, ours or the published ones, such as threshold=0.8. Where no
            strategy is named, a parameter that only one strategy has chooses it.

    Returns:
        One `Generation` per prompt: ids, text, forwards, order, sequence.

    >>> import maskwise as mw
    >>> model = mw.open("tiny-llada")
    >>> len(mw.generate(model, ["Once upon a time", "It was"], max_new_tokens=8, steps=4)[0].ids)
    8
    >>> mw.generate(model, "Once upon a time", 8, threshold=0.1)[0].forwards < 8
    True

    generator: the source of random numbers; when left out, one of the seed 0. Given a list of generators, one per
        prompt, what is drawn for a prompt does not depend on the other prompts in the batch.
    on_step: called with a Snapshot after each step; another thread that asks the same model waits for the end, so do
        not wait there for one. knobs: the former name of parameters.
    """
    if knobs is not None:
        warnings.warn("mw.generate: knobs is now called parameters", FutureWarning, stacklevel=2)
        parameters = knobs
    given = locals()
    if named:
        _refuse_unknown(named, rule)
        given["parameters"] = {**(parameters or {}), **named}
    given["rule"] = strategy_named_by(given["parameters"], rule)
    options = DecodingOptions(**{name: given[name] for name in OPTION_NAMES})
    opened = opened_model(model)
    return decode(opened, encode_prompts(opened, prompts, options.chat), options, generator, on_step)


generate.__doc__ = f"{(generate.__doc__ or '').rstrip()}\n\n{describe_options()}\n"


def _refuse_unknown(named: Mapping[str, float], rule: str | Strategy) -> None:
    """Names that are neither an option nor a parameter of a strategy."""
    chosen = find_strategy(rule)
    having = [chosen] if chosen.parameters else STRATEGIES
    known = list(dict.fromkeys(name for one in having for parameter in one.parameters for name in parameter.names))
    for name in named:
        if name not in known:
            whose = f"the strategy {chosen.name} has" if chosen.parameters else "the strategies have"
            meant = nearest(name, [*OPTION_NAMES, *known])
            hint = f"did you mean {meant}? " if meant else ""
            raise UserError(f"generate has no {name!r}: {hint}Parameters that {whose}: {', '.join(known)}; options: "
                            f"{', '.join(OPTION_NAMES)}")  # fmt: skip


@torch.no_grad()
def decode(
    model: Model,
    prompts: list[list[int]],
    options: DecodingOptions,
    generator: Generators = None,
    on_step: OnStep = None,
) -> list[Generation]:
    """`generate` for prompts of token ids, with the options as one value."""
    draws: torch.Generator | list[torch.Generator]
    if isinstance(generator, Sequence):
        draws = check_generators(generator, len(prompts))
    else:
        draws = make_generator(model, generator)
    if model.causal:
        if on_step is not None:
            raise UserError(f"{model.name or model.kind} is autoregressive: on_step applies to masked models only")
        with model.lock:
            continued = continue_causal(model, prompts, draws, options)
        return [
            Generation(new, decoded_text(model, new), len(new), list(range(len(new))), [*prompt, *new])
            for prompt, new in zip(prompts, continued, strict=True)
        ]
    checked = check_request(model, prompts, options)
    if not prompts:
        return []
    with model.lock, _weights_laid_out(model, checked.steps or checked.max_new_tokens):
        return DecodingLoop(model, checked, prompts, draws, on_step).run()


@torch.no_grad()
def greedy_answers(model: Model, prompts: list[list[int]], length: int, masks: int) -> list[list[int]]:
    """The first `length` new tokens of each prompt, decoded greedily one per step, the most confident first.

    `masks` further masks stand after them and stay masks.
    """
    new = length + masks
    options = check_request(model, prompts, DecodingOptions(max_new_tokens=new))
    loop = DecodingLoop(model, options, prompts, make_generator(model, None), None)
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
    return [replace(block, slots=[[place for place in slots if place < end]
                                  for slots, end in zip(block.slots, ends, strict=True)])
            for block in plan(prompts, model.mask_id, new, "blocks", model.block, None, model.block)]  # fmt: skip


def _weights_laid_out(model: Model, forwards: int) -> AbstractContextManager[None]:
    """As the products of so many forward passes are fastest."""
    if model.device.type == "cuda":
        return packed_products(model.core)
    openblas = model.device.type == "cpu" and not torch.backends.mkl.is_available() and forwards >= WORTH_LAYING_OUT
    return columnwise_products(model.core) if openblas else nullcontext()
