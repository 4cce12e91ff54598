"""Autoregressive models generate through transformers' own `generate`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from maskwise.decoding.checks import check_prompts, end_tokens
from maskwise.decoding.options import DecodingOptions
from maskwise.decoding.sampling import Chance, OneEach, gumbel, sharpen
from maskwise.models.finite import refuse_nonfinite_rows
from maskwise.models.model import Model
from maskwise.support.errors import UserError


def check_causal(model: Model, prompts: Sequence[Sequence[int]], options: DecodingOptions) -> None:
    """Refuses options of masked models, and prompts that the model cannot continue."""
    for option in fields(options):
        if option.metadata["masked_only"] and getattr(options, option.name) != option.default:
            raise UserError(
                f"{model.name or model.kind} is autoregressive: {option.name} applies to masked models only, leave it "
                "out"
            )
    new = options.max_new_tokens
    if new < 1:
        raise UserError(f"max_new_tokens {new} leaves nothing to generate: give 1 or more")
    for number, prompt in enumerate(prompts, start=1):
        if not prompt:
            raise UserError(f"prompt {number} is empty: an autoregressive model needs at least one token")
    check_prompts(model, prompts, new)


@torch.no_grad()
def continue_causal(
    model: Model,
    prompts: Sequence[Sequence[int]],
    generator: torch.Generator | list[torch.Generator],
    options: DecodingOptions,
    first: int = 0,
) -> list[list[int]]:
    """The new tokens of each prompt, max_new_tokens of them, or fewer with early_stop (the end token included).
    first: the number of the first prompt in the whole call, for messages."""
    ends = list(end_tokens(model) if options.end_ids is None else options.end_ids)
    settings: dict[str, Any] = {
        "max_new_tokens": options.max_new_tokens,
        "eos_token_id": ends if options.early_stop else None,
        "suppress_tokens": ends[:1] if options.forbid_end else None,
        "do_sample": False,
        "use_cache": True,
    }
    watch = _NonfiniteWatch()
    processors = LogitsProcessorList([watch])
    if options.temperature > 0:
        chance = generator if isinstance(generator, torch.Generator) else OneEach(generator, [1] * len(prompts), None)
        processors.append(_GumbelNoise(options, chance))
    longest = max(len(prompt) for prompt in prompts)  # left-padded
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=model.device)
    seen = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=model.device)
    with _no_defaults(model):
        out = model.net.generate(  # type: ignore
            input_ids=ids, attention_mask=seen, pad_token_id=0, logits_processor=processors, **settings
        )
    stops = set(ends) if options.early_stop else set()
    continued = [until_end(line, stops) for line in out[:, longest:].tolist()]
    for number, spoiled in enumerate([] if watch.spoiled is None else watch.spoiled.tolist()):
        if spoiled:
            refuse_nonfinite_rows(model, prompts[number], f"prompt {first + number + 1}")
    return continued


class _NonfiniteWatch(LogitsProcessor):
    """Records which prompts had logits that are not finite."""

    spoiled: Tensor | None = None  # [S]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """[S, V] -> [S, V]."""
        now = ~scores.amax(dim=-1).isfinite()
        self.spoiled = now if self.spoiled is None else self.spoiled | now
        return scores


class _GumbelNoise(LogitsProcessor):
    """Adds noise to the logits, so that the largest is a sample.
    transformers' own sampling draws for all prompts from one global generator."""

    def __init__(self, options: DecodingOptions, chance: Chance) -> None:
        self.options, self.chance = options, chance

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """[S, V] -> [S, V]."""
        sharpened = sharpen(scores, self.options.temperature, self.options.top_k, self.options.top_p)
        return gumbel(sharpened[:, None], self.chance)[:, 0]


@contextmanager
def _no_defaults(model: Model) -> Iterator[None]:
    """Ignores the checkpoint's generation defaults, such as a repetition penalty: only the given options count."""
    own, model.core.generation_config = model.core.generation_config, GenerationConfig()
    try:
        yield
    finally:
        model.core.generation_config = own


def until_end(ids: list[int], ends: set[int]) -> list[int]:
    for place, token in enumerate(ids):
        if token in ends:
            return ids[: place + 1]
    return ids
