"""What is asked of `generate`, checked before any work is done."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from maskwise.decoding.canvas import check_plan
from maskwise.decoding.rules import Rule, find_rule
from maskwise.decoding.sampling import check_sampling
from maskwise.decoding.softmask import SoftMask
from maskwise.errors import UserError
from maskwise.models.base import Model
from maskwise.models.tokens import TURN_ENDS

CACHES = ("none", "prefix", "dual")


@dataclass(frozen=True)
class Request:
    """The settings of one decoding, as `generate` describes them."""

    max_new_tokens: int
    steps: int | None
    block: int | None
    canvas: str
    window: int | None
    rule: Rule
    knobs: Mapping[str, float]
    cache: str
    refresh: int | None
    temperature: float
    top_k: int | None
    top_p: float | None
    guidance: float
    forbid_end: bool
    late_end: bool
    early_stop: bool
    end_ids: tuple[int, ...]
    soft_mask: SoftMask | None

    @property
    def blocks(self) -> int:
        return 1 if self.block is None else self.max_new_tokens // self.block


def encode(model: Model, prompts: Any) -> list[list[int]]:
    """Strings through the tokenizer, id lists as they are."""
    if isinstance(prompts, str):
        prompts = [prompts]
    encoded = []
    for number, prompt in enumerate(prompts, start=1):
        if isinstance(prompt, int):
            raise UserError("prompts is a list of prompts: put the token ids of one prompt in a list of their own")
        if isinstance(prompt, str):
            if model.tokenizer is None:
                raise UserError(f"{model.name or model.kind} has no tokenizer: give prompt {number} as token ids")
            prompt = text_ids(model, prompt)
        encoded.append([int(token) for token in prompt])
    return encoded


def text_ids(model: Model, text: str) -> list[int]:
    """Token ids of a text; one that begins with the start token, as chat templates write it, gets no second one."""
    start = model.tokenizer.bos_token
    return list(model.tokenizer(text, add_special_tokens=not (start and text.startswith(start)))["input_ids"])


def end_tokens(model: Model) -> tuple[int, ...]:
    """The model's end-of-text token first, then the tokens that end a turn."""
    found: list[int] = []
    tokenizer = model.tokenizer
    if tokenizer is not None and tokenizer.eos_token_id is not None:
        found.append(tokenizer.eos_token_id)
    configured = model.core.config.eos_token_id
    found += configured if isinstance(configured, list) else [configured] if configured is not None else []
    if tokenizer is not None:
        vocabulary = tokenizer.get_vocab()
        found += [vocabulary[name] for name in TURN_ENDS if name in vocabulary]
    return tuple(dict.fromkeys(found))


def check_prompts(model: Model, prompts: Sequence[Sequence[int]], new: int) -> None:
    for number, prompt in enumerate(prompts, start=1):
        if len(prompt) + new > model.window:
            raise UserError(
                f"prompt {number} has {len(prompt)} tokens and {new} new ones are asked for, but the window of "
                f"{model.name or model.kind} is {model.window}: shorten the prompt or max_new_tokens"
            )
        filler = model.mask_id if model.mask_id is not None else 0
        model.check_sequence([*prompt, *[filler] * new], f"prompt {number}")


def check_request(
    model: Model, prompts: Sequence[Sequence[int]], *, rule: str, knobs: Mapping[str, float] | None,
    canvas: str | None, end_ids: Sequence[int] | None, **options: Any,
) -> Request:  # fmt: skip
    """The request for a masked model, or a UserError that says what is wrong with it."""
    if model.mask_id is None:
        raise UserError(f"{model.name or model.kind} has no mask token: open a masked diffusion model or pass mask_id")
    found, all_knobs = find_rule(rule, knobs)
    inside = [sum(token == model.mask_id for token in prompt) for prompt in prompts]
    chosen = check_plan(
        options["max_new_tokens"], canvas, options["block"], options["window"], all(inside) and bool(inside)
    )
    request = Request(
        rule=found, knobs=all_knobs, canvas=chosen,
        end_ids=end_tokens(model) if end_ids is None else tuple(end_ids), **options,
    )  # fmt: skip
    check_sampling(request.temperature, request.top_k, request.top_p)
    _check_steps(request, rule, inside)
    _check_cache(request)
    _check_ends(request, rule)
    if not 0 <= request.guidance < float("inf"):
        raise UserError(f"guidance {request.guidance} is not a number, 0 or more: 0 is none")
    if any(not 0 <= token < model.vocab for token in request.end_ids):
        raise UserError(f"end_ids {list(request.end_ids)} has a token outside 0..{model.vocab - 1}")
    check_prompts(model, prompts, request.max_new_tokens)
    return request


def _check_steps(request: Request, name: str, inside: Sequence[int]) -> None:
    steps, blocks = request.steps, request.blocks
    if steps is None:
        return
    if request.rule.own_pace:
        raise UserError(f"rule {name} decides itself how many tokens a step commits: leave steps out")
    if steps < 1:
        raise UserError(f"steps {steps} leave no time to fill anything in: give 1 or more, or leave steps out")
    if steps % blocks:
        raise UserError(f"steps {steps} do not divide into {blocks} blocks: give a multiple of {blocks}")
    # The first block also holds the masks inside the prompt, so the later ones are the smallest.
    smallest = request.max_new_tokens // blocks + (min(inside, default=0) if blocks == 1 else 0)
    if request.rule.counts is not None and steps // blocks > smallest:
        raise UserError(f"{steps} steps for {smallest * blocks} masks: at most one step a mask")


def _check_cache(request: Request) -> None:
    if request.cache not in CACHES:
        raise UserError(f"unknown cache {request.cache!r}: choose one of {', '.join(CACHES)}")
    if request.refresh is not None and (request.cache == "none" or request.refresh < 1):
        raise UserError("refresh, the steps between full passes, is 1 or more and needs a cache")


def _check_ends(request: Request, name: str) -> None:
    if (request.forbid_end or request.late_end or request.early_stop) and not request.end_ids:
        raise UserError("the model names no end token: pass end_ids, or leave forbid_end, late_end and early_stop out")
    if request.late_end and request.rule.times is not None:
        raise UserError(f"late_end needs a rule that ranks tokens; {name} tosses a coin for each")


def make_generator(model: Model, generator: torch.Generator | None) -> torch.Generator:
    """The caller's generator, or one seeded with 0."""
    return generator if generator is not None else torch.Generator(model.device).manual_seed(0)


def check_generators(generators: Sequence[torch.Generator], prompts: int) -> list[torch.Generator]:
    """One generator a prompt."""
    if len(generators) != prompts:
        raise UserError(f"{prompts} prompts but {len(generators)} generators: give one each, or one for all")
    return list(generators)
