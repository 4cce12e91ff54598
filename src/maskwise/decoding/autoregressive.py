"""Autoregressive models generate through transformers' own `generate`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig

from maskwise.decoding.request import check_prompts, end_tokens
from maskwise.decoding.sampling import check_sampling
from maskwise.errors import UserError
from maskwise.models.base import Model

# What these options ask for has no meaning without masks; each stands with the value that asks for nothing.
MASKS_ONLY = {
    "rule": "low-confidence", "knobs": None, "canvas": None, "steps": None, "block": None, "cache": "none",
    "window": None, "refresh": None, "guidance": 0.0, "late_end": False, "soft_mask": None, "on_step": None,
}  # fmt: skip


@torch.no_grad()
def continue_causal(
    model: Model, prompts: Sequence[Sequence[int]], generator: torch.Generator, **options: Any
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
        "do_sample": temperature > 0,
        "use_cache": True,
    }
    if temperature > 0:
        settings |= {"temperature": temperature, "top_k": options["top_k"] or 0, "top_p": options["top_p"] or 1.0}
    else:
        settings |= {"temperature": None, "top_k": None, "top_p": None}
    return _left_padded(model, prompts, generator, settings, set(ends) if options["early_stop"] else set())


def _left_padded(
    model: Model, prompts: Sequence[Sequence[int]], generator: torch.Generator, settings: dict[str, Any], ends: set[int]
) -> list[list[int]]:
    longest = max(len(prompt) for prompt in prompts)
    ids = torch.tensor([[0] * (longest - len(prompt)) + list(prompt) for prompt in prompts], device=model.device)
    seen = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts], device=model.device)
    # transformers draws from the global generator: seed it from ours and put it back afterwards.
    seed = int(torch.randint(2**31, (), generator=generator, device=generator.device))
    with torch.random.fork_rng(devices=[model.device] if model.device.type == "cuda" else []), _no_defaults(model):
        torch.manual_seed(seed)
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
