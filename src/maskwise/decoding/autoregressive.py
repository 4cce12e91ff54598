"""Autoregressive models generate through transformers' own `generate`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from maskwise.decoding.request import check_prompts, end_tokens
from maskwise.decoding.sampling import Chance, OneEach, check_sampling, gumbel, sharpen
from maskwise.errors import UserError
from maskwise.models.base import Model

# What these options ask for has no meaning without masks; each stands with the value that asks for nothing.
MASKS_ONLY = {
    "rule": "low-confidence", "knobs": None, "canvas": None, "steps": None, "block": None, "cache": "none",
    "window": None, "refresh": None, "guidance": 0.0, "late_end": False, "soft_mask": None, "on_step": None,
}  # fmt: skip


@torch.no_grad()
def continue_causal(
    model: Model, prompts: Sequence[Sequence[int]], chance: torch.Generator | list[torch.Generator], **options: Any
) -> list[list[int]]:
    """The new tokens of each prompt, max_new_tokens of them, or fewer with early_stop (the end token included)."""
    for name, nothing in MASKS_ONLY.items():
        if options[name] != nothing:
            raise UserError(
                f"{model.name or model.kind} is autoregressive: {name} applies to masked models only, leave it out"
            )
    new, temperature = options["max_new_tokens"], options["temperature"]
    if new < 1:
        raise UserError(f"max_new_tokens {new} leaves nothing to generate: give 1 or more")
    check_sampling(temperature, options["top_k"], options["top_p"])
    for number, prompt in enumerate(prompts, start=1):
        if not prompt:
            raise UserError(f"prompt {number} is empty: an autoregressive model needs at least one token")
    check_prompts(model, prompts, new)
    if not prompts:
        return []
    ends = list(end_tokens(model) if options["end_ids"] is None else options["end_ids"])
    forbidden = ends[:1] if options["forbid_end"] else None
    settings: dict[str, Any] = {
        "max_new_tokens": new,
        "eos_token_id": ends if options["early_stop"] else None,
        "suppress_tokens": forbidden,
        "do_sample": False,
        "use_cache": True,
    }
    if temperature > 0:
        draws = chance if isinstance(chance, torch.Generator) else OneEach(chance, [1] * len(prompts), None)
        noise = _Noise(temperature, options["top_k"], options["top_p"], draws)
        settings["logits_processor"] = LogitsProcessorList([noise])
    return _left_padded(model, prompts, settings, set(ends) if options["early_stop"] else set())


class _Noise(LogitsProcessor):
    """Logits whose largest is a draw; transformers' own sampling draws for all prompts from one global generator."""

    def __init__(self, temperature: float, top_k: int | None, top_p: float | None, chance: Chance) -> None:
        self.temperature, self.top_k, self.top_p, self.chance = temperature, top_k, top_p, chance

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """[S, V] -> [S, V]."""
        sharpened = sharpen(scores, self.temperature, self.top_k, self.top_p)
        return gumbel(sharpened[:, None], self.chance)[:, 0]


def _left_padded(
    model: Model, prompts: Sequence[Sequence[int]], settings: dict[str, Any], ends: set[int]
) -> list[list[int]]:
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=model.device)
    seen = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=model.device)
    with _no_defaults(model):
        out = model.net.generate(input_ids=ids, attention_mask=seen, pad_token_id=0, **settings)  # type: ignore
    return [_until_end(line, ends) for line in out[:, longest:].tolist()]


@contextmanager
def _no_defaults(model: Model) -> Iterator[None]:
    """A checkpoint may come with a repetition penalty and the like: here only what was asked for counts."""
    own, model.core.generation_config = model.core.generation_config, GenerationConfig()
    try:
        yield
    finally:
        model.core.generation_config = own


def _until_end(ids: list[int], ends: set[int]) -> list[int]:
    for place, token in enumerate(ids):
        if token in ends:
            return ids[: place + 1]
    return ids
