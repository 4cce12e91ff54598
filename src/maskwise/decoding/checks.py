"""Options and prompts checked against the model before any work is done."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from maskwise.decoding.options import DecodingOptions
from maskwise.models.checkpoints.configuration import configured_block, read_family
from maskwise.models.checkpoints.locations import locate_checkpoint
from maskwise.models.families import Family
from maskwise.models.model import Model
from maskwise.models.tokenizers.tokenizer import TURN_ENDS
from maskwise.support.errors import UserError
from maskwise.support.randomness import torch_generator


def end_tokens(model: Model) -> tuple[int, ...]:
    """The model's end-of-text token first, then the tokens that end a turn."""
    ids: list[int] = []
    tokenizer = model.tokenizer
    if tokenizer is not None and tokenizer.eos_token_id is not None:
        ids.append(tokenizer.eos_token_id)
    published = getattr(model.core, "generation_config", None)
    for configured in (model.core.config.get_text_config().eos_token_id, getattr(published, "eos_token_id", None)):
        if isinstance(configured, list):
            ids += configured
        elif configured is not None:
            ids.append(configured)
    if tokenizer is not None:
        vocabulary = tokenizer.get_vocab()
        ids += [vocabulary[name] for name in TURN_ENDS if name in vocabulary]
    return tuple(dict.fromkeys(ids))


def check_prompts(model: Model, prompts: Sequence[Sequence[int]], new: int) -> None:
    for number, prompt in enumerate(prompts, start=1):
        if len(prompt) + new > model.window:
            raise UserError(
                f"prompt {number} has {len(prompt)} tokens and {new} new ones are asked for, but the context length "
                f"of {model.name or model.kind} is {model.window}: shorten the prompt or max_new_tokens"
            )
        filler = model.mask_id if model.mask_id is not None else 0
        model.check_sequence([*prompt, *[filler] * new], f"prompt {number}")


def check_request(model: Model, prompts: Sequence[Sequence[int]], options: DecodingOptions) -> DecodingOptions:
    """The options with the model's own end tokens filled in, or a UserError that says why they do not fit."""
    if model.mask_id is None:
        raise UserError(f"{model.name or model.kind} has no mask token: open a masked diffusion model or pass mask_id")
    if model.family.noised:  # these need embeddings, predictions of committed tokens or a masked prompt
        for name in ("soft_mask", "edit", "guidance"):
            if getattr(options, name):
                raise UserError(f"{model.name or model.kind} has no mask token: {name} does not apply, leave it out")
    options = for_model(model, options)
    inside = [sum(token == model.mask_id for token in prompt) for prompt in prompts]
    _check_length(options, bool(inside) and all(inside), model.block is not None)
    _check_steps(options, inside, model.block is not None)
    if options.end_ids is None:
        options = replace(options, end_ids=end_tokens(model))
    _check_ends(model, options)
    check_prompts(model, prompts, options.max_new_tokens)
    return options


def for_model(model: Model, options: DecodingOptions) -> DecodingOptions:
    """The options with the model's own block size, if it is a block diffusion model."""
    if model.block is None:
        return options
    _check_blocks(model.family, model.block, model.name or model.kind, options)
    return options if options.block is not None or options.max_new_tokens == 0 else replace(options, block=model.block)


def refuse_by_configuration(name: str, options: DecodingOptions) -> None:
    """Refuses options that do not go with a checkpoint's own blocks, by its config.json, before weights are read."""
    folder = locate_checkpoint(name)[0]
    family = read_family(folder)
    seen = configured_block(folder, family)
    if seen is not None:
        _check_blocks(family, seen, name, options)


def _check_blocks(family: Family, seen: int, name: str, options: DecodingOptions) -> None:
    """seen: tokens of a block after which the model sees nothing."""
    if options.canvas in ("fixed", "window"):
        raise UserError(f"the model sees no masks after its block of {seen} tokens: leave canvas {options.canvas} out")
    if options.edit is not None and family.causal_context:
        raise UserError(f"{name} reads a block without masks from left to right: leave edit out")
    if options.block is not None and seen % options.block:
        raise UserError(
            f"block {options.block} does not divide the model's blocks of {seen} tokens "
            f"({family.block_field} of its config.json): choose one that does"
        )


def note_on_cache(model: Model, options: DecodingOptions) -> str:
    """A note on a cache without blocks, which suggests the largest block of 32, 16, 8 and 4 that gives several."""
    if options.cache == "none" or options.block is not None or model.block is not None or model.causal:
        return ""
    new = options.max_new_tokens
    fitting = [size for size in (32, 16, 8, 4) if new % size == 0 and size < new]
    return (
        f"--cache {options.cache} without --block: one block, so the cache holds the prompt alone and is refreshed once"
        + (f"; --block {fitting[0]} decodes block by block" if fitting else "")
    )


def is_approximate(model: Model, options: DecodingOptions) -> bool:
    """True if a cache or a window changes the model's predictions. In a block diffusion model keys and values of
    finished blocks are final; only those right of the active part of a block are not."""
    if model.block is None:
        return options.approximate
    cut = options.block not in (None, model.block) and options.chosen_canvas != "growing"
    return options.cache == "dual" and cut


def _check_length(options: DecodingOptions, masks_inside: bool, any_length: bool) -> None:
    new, block = options.max_new_tokens, options.block
    if new == 0 and not masks_inside:
        raise UserError(f"max_new_tokens {new} leaves nothing to generate: give 1 or more, or a prompt with masks")
    if block is not None and new == 0:
        raise UserError("without new tokens there is nothing to cut into blocks: leave block out")
    if block is not None and new % block and not any_length:
        raise UserError(f"block {block} does not divide max_new_tokens {new}: choose a block that does")


def _check_steps(options: DecodingOptions, inside: Sequence[int], own_grid: bool) -> None:
    """inside: the number of masks inside each prompt. own_grid: blocks of any length share the steps."""
    steps, blocks = options.steps, 1 if own_grid else options.blocks
    if steps is None:
        return
    if steps % blocks:
        raise UserError(f"steps {steps} do not divide into {blocks} blocks: give a multiple of {blocks}")
    # The first block also holds the masks inside the prompt, so the later ones are the smallest.
    smallest = options.max_new_tokens // blocks + (min(inside, default=0) if blocks == 1 else 0)
    if options.strategy.count_function is not None and steps // blocks > smallest:
        raise UserError(f"{steps} steps for {smallest * blocks} masks: at most one step per mask")


def _check_ends(model: Model, options: DecodingOptions) -> None:
    ids = options.end_ids or ()
    if (options.forbid_end or options.late_end or options.early_stop) and not ids:
        raise UserError("the model names no end token: pass end_ids, or leave forbid_end, late_end and early_stop out")
    if any(not 0 <= token < model.vocab for token in ids):
        raise UserError(f"end_ids {list(ids)} has a token outside 0..{model.vocab - 1}")


def make_generator(model: Model, generator: torch.Generator | None) -> torch.Generator:
    """The caller's generator, or one of the seed 0."""
    return generator if generator is not None else torch_generator("generate", 0, device=model.device)


def check_generators(generators: Sequence[torch.Generator], prompts: int) -> list[torch.Generator]:
    """One generator per prompt."""
    if len(generators) != prompts:
        raise UserError(f"{prompts} prompts but {len(generators)} generators: give one each, or one for all")
    return list(generators)
