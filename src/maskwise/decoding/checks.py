"""Options and prompts checked against the model before any work is done."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from maskwise.decoding.options import DecodingOptions
from maskwise.models.checkpoints.configuration import configured_block, read_family
from maskwise.models.checkpoints.locations import locate_checkpoint
from maskwise.models.families import Family
from maskwise.models.model import Model
from maskwise.models.tokenizers.tokenizer import TURN_ENDS
from maskwise.support.errors import UserError


def end_tokens(model: Model) -> tuple[int, ...]:
    """The model's end-of-text token first, then the tokens that end a turn."""
    tokenizer = model.tokenizer
    holders = (tokenizer, model.core.config.get_text_config(), getattr(model.core, "generation_config", None))
    stated = [getattr(one, "eos_token_id", None) for one in holders]
    ids = [token for one in stated for token in (one if isinstance(one, list) else [one]) if token is not None]
    if tokenizer is not None:
        vocabulary = tokenizer.get_vocab()
        ids += [vocabulary[name] for name in TURN_ENDS if name in vocabulary]
    return tuple(dict.fromkeys(ids))


def text_before_end(model: Model, ids: Sequence[int], ends: Collection[int]) -> str:
    """The text up to the first end token."""
    length = next((place for place, token in enumerate(ids) if token in ends), len(ids))
    return model.tokenizer.decode(ids[:length], skip_special_tokens=True)


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
    options = for_model(model, options)
    inside = [sum(token == model.mask_id for token in prompt) for prompt in prompts]
    options.check_masks(inside, model.block is not None)
    given = options.end_ids is not None
    if not given:
        options = replace(options, end_ids=end_tokens(model))
    _check_ends(model, options, given)
    check_prompts(model, prompts, options.max_new_tokens)
    return options


def for_model(model: Model, options: DecodingOptions) -> DecodingOptions:
    """The options with the model's own block size, if it is a block diffusion model."""
    if model.block is None:
        return options
    _check_blocks(model.family, model.block, options)
    return options if options.block is not None or options.max_new_tokens == 0 else replace(options, block=model.block)


def refuse_by_configuration(name: str, options: DecodingOptions) -> None:
    """Refuses options that do not go with a checkpoint's own blocks, by its config.json, before weights are read."""
    folder = locate_checkpoint(name)[0]
    family = read_family(folder)
    seen = configured_block(folder, family)
    if seen is not None:
        _check_blocks(family, seen, options)


def _check_blocks(family: Family, seen: int, options: DecodingOptions) -> None:
    """seen: tokens of a block after which the model sees nothing."""
    if options.canvas in ("fixed", "window"):
        raise UserError(f"the model sees no masks after its block of {seen} tokens: leave canvas {options.canvas} out")
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


def _check_ends(model: Model, options: DecodingOptions, given: bool) -> None:
    ids = options.end_ids or ()
    if (options.forbid_end or options.late_end or options.early_stop) and not ids:
        raise UserError("the model names no end token: pass end_ids, or leave forbid_end, late_end and early_stop out")
    if options.forbid_end and options.early_stop and len(ids) == 1:  # of several, the first alone is forbidden
        raise UserError("the only end token is forbidden, so early_stop has no effect: leave one out")
    if any(not 0 <= token < model.vocab for token in ids):
        where = (
            f"end_ids {list(ids)}"
            if given
            else f"eos_token_id of {model.name or model.kind} (config.json, generation_config.json)"
        )
        raise UserError(f"{where} has a token outside 0..{model.vocab - 1}: correct it")
