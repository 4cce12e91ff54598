"""Every setting of a tuning run, the presets, and which values are refused."""

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from maskwise.errors import UserError


@dataclass(frozen=True)
class TuneSettings:
    """The defaults are those of Piskorz et al. (arXiv 2511.21338) for Base models where the paper states them."""

    # The loss: alpha * CE + beta * TV; alpha = 0 is TV alone, beta = 0 CE alone
    alpha: float = 0.1
    beta: float = 1.0
    one_branch: bool = False  # the gradient flows through the first view only
    mask_low: float = 0.2  # p ~ U(mask_low, mask_high)
    mask_high: float = 0.8
    # The views
    context: int = 1024  # N: prompt, answer and appended masks together
    max_masks: int = 600
    curriculum: int = 5000  # micro-batches until max_masks is reached; 0 starts there
    pad_eos: bool = False  # visible end-of-text padding to equal length, as the paper does, instead of packing
    text_piece: int = 256  # tokens of a continuation pair cut from plain text
    # The optimiser
    steps: int = 930
    batch: int = 3  # pairs per micro-batch and process
    accumulation: int = 43  # micro-batches per step
    learning_rate: float = 1e-5
    warmup: int = 0  # steps
    decay: str = "constant"  # of the learning rate after the warm-up: constant, linear or cosine
    clip: float = 1.0
    weight_decay: float = 0.0
    # What is trained
    full: bool = False  # all weights instead of an adapter
    lora_rank: int = 64
    lora_alpha: int = 128
    lora_dropout: float = 0.0
    targets: str | None = None  # regular expression of the adapted linear layers; None: the family's own
    # How
    bf16: bool | None = None  # autocast; None is yes on CUDA and no on the CPU
    gradient_checkpointing: bool = False  # recompute layers in the backward pass
    seed: int = 0
    save_every: int = 50  # steps
    keep: int = 2  # checkpoints
    # Evaluation
    eval_every: int = 50  # steps; 0 measures before and after only
    held_out: int = 64  # pairs, at most a fifth of the data
    few: int = 2  # masks appended at evaluation: few against many
    many: int = 200


PRESETS = {
    # Ours, for the embedded models on two CPU cores: minutes, with the pairs that come with the package.
    "quick": TuneSettings(
        steps=120,
        batch=8,
        accumulation=1,
        learning_rate=1e-3,
        warmup=10,
        decay="linear",
        context=900,
        max_masks=240,
        curriculum=0,
        lora_rank=16,
        lora_alpha=32,
        eval_every=0,
        held_out=32,
    ),
    "paper-base": TuneSettings(),
    "paper-instruct": TuneSettings(beta=10.0, learning_rate=1e-6),
    "paper-base-ce": TuneSettings(beta=0.0, learning_rate=1e-6),
    "paper-instruct-ce": TuneSettings(beta=0.0, learning_rate=1e-5),
}

# Data that comes with the package (recipes/quick_pairs.py).
PRESET_PAIRS = {"quick": Path(__file__).parent / "quick.jsonl"}

DECAYS = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


def settings_from(preset: str, changes: dict[str, Any]) -> TuneSettings:
    """A preset with the changes that are not None."""
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}: use one of {', '.join(PRESETS)}")
    known = {field.name for field in fields(TuneSettings)}
    assert changes.keys() <= known, changes.keys() - known
    return check(replace(PRESETS[preset], **{name: value for name, value in changes.items() if value is not None}))


def check(settings: TuneSettings) -> TuneSettings:
    """Refuses values that cannot work, each by its name; returns the settings."""
    at_least_one = ("max_masks", "steps", "batch", "accumulation", "lora_rank", "lora_alpha", "save_every", "keep")
    not_negative = ("alpha", "beta", "curriculum", "warmup", "weight_decay", "eval_every", "held_out", "few", "seed")
    for name in at_least_one:
        if getattr(settings, name) < 1:
            raise UserError(f"{name} is {getattr(settings, name)}: it must be at least 1")
    for name in not_negative:
        if getattr(settings, name) < 0:
            raise UserError(f"{name} is {getattr(settings, name)}: it must not be negative")
    rules = [
        (settings.alpha + settings.beta > 0, "alpha and beta are both 0: nothing would be learnt"),
        (0 < settings.mask_low <= settings.mask_high < 1, "mask_low and mask_high must satisfy 0 < low <= high < 1"),
        (settings.learning_rate > 0, f"the learning rate is {settings.learning_rate}: it must be positive"),
        (settings.clip > 0, f"clip is {settings.clip}: it must be positive"),
        (settings.decay in DECAYS, f"unknown decay {settings.decay!r}: use {', '.join(DECAYS)}"),
        (settings.many > settings.few, f"many ({settings.many}) must be more masks than few ({settings.few})"),
        (settings.text_piece >= 4, f"text_piece is {settings.text_piece}: it must be at least 4"),
        (0 <= settings.lora_dropout < 1, f"lora_dropout is {settings.lora_dropout}: it must be in 0..1"),
    ]
    for fine, problem in rules:
        if not fine:
            raise UserError(problem)
    if settings.targets is not None:
        try:
            re.compile(settings.targets)
        except re.error as problem:
            raise UserError(f"targets {settings.targets!r} is not a regular expression: {problem}") from None
    return settings
