"""Every setting of a tuning or training run, the presets, and which values are refused."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from maskwise.errors import UserError
from maskwise.nearest import did_you_mean


@dataclass(frozen=True)
class RunSettings:
    """What tuning and training share."""

    # The optimiser
    steps: int = 1000
    batch: int = 8  # examples per micro-batch and process
    accumulation: int = 1  # micro-batches per step
    learning_rate: float = 1e-4
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
    held_out: int = 64  # examples, at most a fifth of the data
    few: int = 2  # masks appended at evaluation: few against many
    many: int = 200


@dataclass(frozen=True)
class TuneSettings(RunSettings):
    """The defaults are those of Piskorz et al. (arXiv 2511.21338) for Base models where the paper states them."""

    # The loss: alpha * CE + beta * TV (KL if anchored); alpha = 0 is TV alone, beta = 0 CE alone
    alpha: float = 0.1
    beta: float = 1.0
    one_branch: bool = False  # the gradient flows through the first view only
    anchored: bool = False  # the second view has no masks appended, and is what the model said before tuning
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
    accumulation: int = 43
    learning_rate: float = 1e-5


@dataclass(frozen=True)
class TrainSettings(RunSettings):
    """Masked diffusion training on documents."""

    # The objective
    objective: str = "nelbo"  # nelbo, blockwise or soft-mask
    schedule: str = "linear"  # of nelbo and soft-mask
    weighted: bool = True  # by the schedule's weight (1/t); without it every masked token counts once
    block: int = 32  # tokens of a block of `blockwise`
    soft_share: float = 0.5  # share of the documents that `soft-mask` shows with soft masks
    teacher: str | None = None  # an autoregressive model with the same tokenizer
    widen: tuple[int, ...] = ()  # attention over blocks of so many tokens, one size after the other, then bidirectional
    widen_share: float = 0.4  # of the steps
    # The rows
    context: int = 512  # tokens of a row
    rows: str = "documents"  # packed without attention across their borders; or "full": one stream cut into rows
    # The optimiser
    learning_rate: float = 3e-4
    decay: str = "cosine"
    warmup: int = 20
    many: int = 100


PRESETS = {
    # Ours, for the embedded models on two CPU cores: minutes, with the pairs that come with the package.
    "quick": TuneSettings(
        anchored=True,
        alpha=0.0,
        mask_low=0.95,  # an answer's one telling token is masked nearly always
        mask_high=0.99,
        steps=600,
        batch=2,
        accumulation=1,
        learning_rate=2e-3,
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


SCHEDULES = ("linear", "cosine", "polynomial", "geometric")
OBJECTIVES = ("nelbo", "blockwise", "soft-mask")
ROWS = ("documents", "full")


REPORTERS = ("wandb", "tensorboard", "mlflow")


def check_reporters(given: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Where the losses are reported to, as in transformers: names, in one text with commas or in a list, or "none".

    A package that is not installed is refused before anything is imported. None: nobody said.
    """
    if given is None:
        return None
    listed = given.split(",") if isinstance(given, str) else given
    names = tuple(dict.fromkeys(name.strip() for name in listed if name.strip() != "none"))
    for name in names:
        if name not in REPORTERS:
            raise UserError(f"unknown --report-to {name!r}{did_you_mean(name, [*REPORTERS, 'none'])}")
        if find_spec(name) is None:
            raise UserError(f"{name} is not installed: pip install {name}, or leave it out of --report-to")
    return names


Setting = bool | int | float | str | tuple[int, ...] | None  # the value of one, by its name


def settings_from(preset: str, changes: Mapping[str, Setting]) -> TuneSettings:
    """A preset with the changes that are not None."""
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}{did_you_mean(preset, PRESETS)}")
    return check(_changed(PRESETS[preset], changes))


def train_settings(changes: Mapping[str, Setting]) -> TrainSettings:
    """The defaults with the changes that are not None."""
    return check_training(_changed(TrainSettings(), changes))


S = TypeVar("S", bound=RunSettings)


def _changed(settings: S, changes: Mapping[str, Any]) -> S:
    known = [field.name for field in fields(settings)]
    for name in changes:
        if name not in known:
            raise UserError(f"there is no setting {name!r}{did_you_mean(name, known)}")
    return replace(settings, **{name: value for name, value in changes.items() if value is not None})


def check(settings: TuneSettings) -> TuneSettings:
    """Refuses values that cannot work, each by its name; returns the settings."""
    _check_numbers(settings, ("max_masks",), ("alpha", "beta", "curriculum"))
    rules = [
        (settings.alpha + settings.beta > 0, "alpha and beta are both 0: nothing would be learnt"),
        (0 < settings.mask_low <= settings.mask_high < 1, "mask_low and mask_high must satisfy 0 < low <= high < 1"),
        (not (settings.anchored and settings.full), "anchored tuning needs an adapter: leave out full"),
        (not (settings.anchored and settings.one_branch), "anchored tuning has one branch: leave out one_branch"),
        (settings.text_piece >= 4, f"text_piece is {settings.text_piece}: it must be at least 4"),
    ]
    _check_rules([*rules, *_run_rules(settings)])
    return settings


def check_training(settings: TrainSettings) -> TrainSettings:
    _check_numbers(settings, ("block", "context"), ())
    choices = (("objective", OBJECTIVES), ("schedule", SCHEDULES), ("rows", ROWS))
    rules = [
        (value in known, f"unknown {name} {value!r}{did_you_mean(value, known)}")
        for name, known in choices
        for value in [getattr(settings, name)]
    ]
    rising = all(one >= 1 for one in settings.widen) and list(settings.widen) == sorted(set(settings.widen))
    rules += [
        (settings.context >= 8, f"context is {settings.context}: a row has at least 8 tokens"),
        (0 <= settings.soft_share <= 1, f"soft_share is {settings.soft_share}: it must be in 0..1"),
        (0 < settings.widen_share <= 1, f"widen_share is {settings.widen_share}: it must be over 0 and at most 1"),
        (rising, f"widen is {','.join(map(str, settings.widen))}: give rising numbers of tokens, such as 1,4,16,64"),
        (
            not (settings.teacher and settings.objective == "soft-mask"),
            "soft-mask takes no teacher: use another objective",
        ),
    ]
    _check_rules([*rules, *_run_rules(settings)])
    return settings


def _check_numbers(settings: RunSettings, at_least_one: tuple[str, ...], not_negative: tuple[str, ...]) -> None:
    for name in (*at_least_one, "steps", "batch", "accumulation", "lora_rank", "lora_alpha", "save_every", "keep"):
        if getattr(settings, name) < 1:
            raise UserError(f"{name} is {getattr(settings, name)}: it must be at least 1")
    for name in (*not_negative, "warmup", "weight_decay", "eval_every", "held_out", "few", "seed"):
        if getattr(settings, name) < 0:
            raise UserError(f"{name} is {getattr(settings, name)}: it must not be negative")


def _run_rules(settings: RunSettings) -> list[tuple[bool, str]]:
    return [
        (settings.learning_rate > 0, f"the learning rate is {settings.learning_rate}: it must be positive"),
        (settings.clip > 0, f"clip is {settings.clip}: it must be positive"),
        (settings.decay in DECAYS, f"unknown decay {settings.decay!r}: use {', '.join(DECAYS)}"),
        (settings.many > settings.few, f"many ({settings.many}) must be more masks than few ({settings.few})"),
        (0 <= settings.lora_dropout < 1, f"lora_dropout is {settings.lora_dropout}: it must be in 0..1"),
        (_is_expression(settings.targets), f"targets {settings.targets!r} is not a regular expression: correct it"),
    ]


def _check_rules(rules: list[tuple[bool, str]]) -> None:
    for fine, problem in rules:
        if not fine:
            raise UserError(problem)


def _is_expression(pattern: str | None) -> bool:
    try:
        re.compile(pattern or "")
    except re.error:
        return False
    return True
