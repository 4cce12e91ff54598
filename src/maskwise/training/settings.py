"""Every setting of a tuning or training run, the presets, and which values are refused."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from maskwise.support.errors import UserError
from maskwise.support.nearest import did_you_mean

ATTENTION = "attention"  # in the place of a regular expression
BLOCK = 32  # tokens of a block where neither the user nor the model says
WARMUP = 20  # steps of the warm-up of a training that is long enough, where the user does not say


def _option(default: Any, help: str, *flags: str, at_least: float | None = None, type: Any = None) -> Any:
    """A setting that `maskwise tune` or `train` takes: its help, and its spelling where it is not --its-name.

    at_least: refused below. type: what is given on the command line, where it is not the setting's own type.
    """
    return field(default=default, metadata={"help": help, "flags": flags, "at_least": at_least, "type": type})


def _default(of: type, name: str, default: Any) -> Any:
    """A setting of the class it is inherited from, with another default."""
    (inherited,) = (one for one in fields(of) if one.name == name)
    return field(default=default, metadata=inherited.metadata)


@dataclass(frozen=True)
class RunSettings:
    """What tuning and training share."""

    # The optimiser
    steps: int = _option(1000, "Optimiser steps.", at_least=1)
    batch: int = _option(8, "Examples per micro-batch and process.", at_least=1)
    accumulation: int = _option(1, "Micro-batches per step.", at_least=1)
    learning_rate: float = _option(1e-4, "Learning rate, over 0.", "--learning-rate", "--lr")
    warmup: int | None = _option(0, "Steps until the full learning rate.", at_least=0)
    decay: str = _option("constant", "Of the learning rate after the warm-up: constant, linear or cosine.")
    clip: float = _option(1.0, "Largest norm of the gradient, over 0.")
    weight_decay: float = _option(0.0, "Weight decay.", at_least=0)
    # What is trained
    full: bool = _option(False, "Train all weights instead of an adapter.", "--full")
    lora_rank: int = _option(64, "Rank of the adapter.", at_least=1)
    lora_alpha: int = _option(128, "Scale of the adapter.", at_least=1)
    lora_dropout: float = _option(0.0, "Dropout before the adapter, below 1.", at_least=0)
    targets: str | None = _option(
        None, "Linear layers to adapt: attention, or a regular expression; else the family's own."
    )
    # How
    bf16: bool | None = _option(None, "Autocast; on CUDA by default.", "--bf16/--no-bf16")
    gradient_checkpointing: bool = _option(
        False, "Recompute layers in the backward pass: less memory.", "--gradient-checkpointing"
    )
    seed: int = _option(0, "Draws order and noise.", at_least=0)
    save_every: int = _option(50, "Steps between checkpoints.", at_least=1)
    keep: int = 2  # checkpoints
    # Evaluation
    eval_every: int = _option(50, "Steps between evaluations; 0 measures before and after only.", at_least=0)
    held_out: int = _option(64, "Examples kept for evaluation, at most a fifth of the data.", at_least=0)
    few: int = _option(2, "Masks appended at evaluation: few...", at_least=0)
    many: int = _option(200, "... and many, more than few.")


@dataclass(frozen=True)
class TuneSettings(RunSettings):
    """The defaults are those of Piskorz et al. (arXiv 2511.21338) for Base models where the paper states them."""

    # The loss: alpha * CE + beta * TV (KL if anchored)
    alpha: float = _option(0.1, "Weight of the cross-entropy; 0 is TV alone.", at_least=0)
    beta: float = _option(1.0, "Weight of the total variation; 0 is CE alone.", at_least=0)
    one_branch: bool = _option(False, "Gradient through the first view only.", "--one-branch")
    # the second view has no masks appended, and is what the model said before tuning
    anchored: bool = _option(False, "Match the untuned model's answers without masks.", "--anchored/--both-views")
    # so that what the model says with few masks stays as it is
    held: float = _option(0.0, "Share of anchored pairs with at most 4 masks appended, below 1.", at_least=0)
    mask_low: float = 0.2  # p ~ U(mask_low, mask_high)
    mask_high: float = 0.8
    # The views
    context: int = _option(1024, "Tokens of prompt, answer and masks together.")
    max_masks: int = _option(600, "Most masks appended.", at_least=1)
    curriculum: int = _option(5000, "Micro-batches until that many; 0 starts there.", at_least=0)
    # visible end-of-text padding to equal length
    pad_eos: bool = _option(False, "Pad visibly, as the paper, not pack.", "--pad-eos")
    text_piece: int = 256  # tokens of a continuation pair cut from plain text
    # The optimiser
    steps: int = _default(RunSettings, "steps", 930)
    batch: int = _option(3, "Pairs per micro-batch and process.", at_least=1)
    accumulation: int = _default(RunSettings, "accumulation", 43)
    learning_rate: float = _default(RunSettings, "learning_rate", 1e-5)


@dataclass(frozen=True)
class TrainSettings(RunSettings):
    """Masked diffusion training on documents."""

    # The objective
    objective: str = _option("nelbo", "nelbo, blockwise or soft-mask.")
    schedule: str = _option("linear", "linear, cosine, polynomial or geometric, of nelbo and soft-mask.")
    weighted: bool = _option(
        True, "By the schedule's weight (1/t), or each masked token once.", "--weighted/--unweighted"
    )
    block: int | None = _option(
        None, f"Tokens of a block (blockwise); else a block diffusion model's own, or {BLOCK}.", at_least=1
    )
    soft_share: float = _option(0.5, "Share of documents with soft masks (soft-mask), 0 to 1.")
    teacher: str | None = _option(None, "Autoregressive model with the same tokenizer to distil from.")
    widen: tuple[int, ...] = _option(
        (), "Attention over blocks of so many tokens first, from causal on, then bidirectional: 1,4,16,64.", type=str
    )
    widen_share: float = _option(0.4, "Share of the steps until bidirectional, over 0 and at most 1.")
    # The rows
    context: int = _option(512, "Tokens of a row.", at_least=8)
    rows: str = _option("documents", "documents: packed, unseen by each other; full: one stream, cut.")
    # The optimiser
    batch: int = _option(8, "Rows per micro-batch and process.", at_least=1)
    learning_rate: float = _default(RunSettings, "learning_rate", 3e-4)
    decay: str = _default(RunSettings, "decay", "cosine")
    warmup: int | None = _option(
        None, f"Steps until the full learning rate; else a tenth of --steps, at most {WARMUP}.", at_least=0
    )
    many: int = _default(RunSettings, "many", 100)


PRESETS = {
    # Ours, for the embedded models on two CPU cores: minutes, with the pairs that come with the package.
    "quick": TuneSettings(
        anchored=True,
        alpha=0.0,
        mask_low=0.95,  # an answer's one telling token is masked nearly always
        mask_high=0.99,
        held=0.3,
        targets=ATTENTION,
        steps=700,
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

# Data that comes with the package (recipes/zoo/quick_pairs.py).
PRESET_PAIRS = {"quick": Path(__file__).parent / "data" / "quick.jsonl"}

DECAYS = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


SCHEDULES = ("linear", "cosine", "polynomial", "geometric")
OBJECTIVES = ("nelbo", "blockwise", "soft-mask")
OBJECTIVES_OF = {"schedule": ("nelbo", "soft-mask"), "block": ("blockwise",), "soft_share": ("soft-mask",)}
ROWS = ("documents", "full")
OF_ADAPTERS = ("lora_rank", "lora_alpha", "lora_dropout", "targets")


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
    """A preset with the changes that are not None; one that would have no effect is refused."""
    if preset not in PRESETS:
        raise UserError(f"unknown preset {preset!r}{did_you_mean(preset, PRESETS)}")
    return check(_changed(PRESETS[preset], changes))


def train_settings(changes: Mapping[str, Setting]) -> TrainSettings:
    """The defaults with the changes that are not None; a change that would have no effect is refused."""
    settings = check_training(_changed(TrainSettings(), changes))
    given = [name for name, value in changes.items() if value is not None]
    _check_rules([
        (settings.objective in objectives or name not in given,
         f"--{name.replace('_', '-')} is of the objective {' and '.join(objectives)}: leave it out for "
         f"{settings.objective}")
        for name, objectives in OBJECTIVES_OF.items()
    ])  # fmt: skip
    _check_rules([(bool(settings.widen) or "widen_share" not in given, "--widen-share needs --widen: give both")])
    return settings


S = TypeVar("S", bound=RunSettings)


def _changed(settings: S, changes: Mapping[str, Any]) -> S:
    known = [field.name for field in fields(settings)]
    for name in changes:
        if name not in known:
            raise UserError(f"there is no setting {name!r}{did_you_mean(name, known)}")
    given = {name: value for name, value in changes.items() if value is not None}
    changed = replace(settings, **given)
    _check_rules([
        (not changed.full or name not in given, f"--{name.replace('_', '-')} is of an adapter: leave it out for --full")
        for name in OF_ADAPTERS
    ])  # fmt: skip
    return changed


def check(settings: TuneSettings) -> TuneSettings:
    """Refuses values that cannot work, each by its name; returns the settings."""
    _check_numbers(settings)
    rules = [
        (settings.alpha + settings.beta > 0, "alpha and beta are both 0: nothing would be learnt"),
        (0 < settings.mask_low <= settings.mask_high < 1, "mask_low and mask_high must satisfy 0 < low <= high < 1"),
        (not (settings.anchored and settings.full), "anchored tuning needs an adapter: leave out full"),
        (not (settings.anchored and settings.one_branch), "anchored tuning has one branch: leave out one_branch"),
        (settings.held < 1, f"held is {settings.held}: it must be below 1"),
        (settings.anchored or not settings.held, "held pairs need --anchored: give both, or neither"),
        (settings.text_piece >= 4, f"text_piece is {settings.text_piece}: it must be at least 4"),
    ]
    _check_rules([*rules, *_run_rules(settings)])
    return settings


def check_training(settings: TrainSettings) -> TrainSettings:
    _check_numbers(settings)
    choices = (("objective", OBJECTIVES), ("schedule", SCHEDULES), ("rows", ROWS))
    rules = [
        (value in known, f"unknown {name} {value!r}{did_you_mean(value, known)}")
        for name, known in choices
        for value in [getattr(settings, name)]
    ]
    rising = all(one >= 1 for one in settings.widen) and list(settings.widen) == sorted(set(settings.widen))
    rules += [
        (0 <= settings.soft_share <= 1, f"soft_share is {settings.soft_share}: it must be in 0..1"),
        (0 < settings.widen_share <= 1, f"widen_share is {settings.widen_share}: it must be over 0 and at most 1"),
        (rising, "--widen takes rising numbers of at least 1 token separated by commas, such as 1,4,16,64"),
        (
            not (settings.teacher and settings.objective == "soft-mask"),
            "soft-mask takes no teacher: use another objective",
        ),
    ]
    _check_rules([*rules, *_run_rules(settings)])
    return settings


def _check_numbers(settings: RunSettings) -> None:
    for one in fields(settings):
        least, value = one.metadata.get("at_least"), getattr(settings, one.name)
        if least is not None and value is not None and value < least:
            wanted = f"be at least {least}" if least else "not be negative"
            raise UserError(f"{one.name} is {value}: it must {wanted}")


def _run_rules(settings: RunSettings) -> list[tuple[bool, str]]:
    return [
        (settings.learning_rate > 0, f"the learning rate is {settings.learning_rate}: it must be positive"),
        (settings.clip > 0, f"clip is {settings.clip}: it must be positive"),
        (settings.decay in DECAYS, f"unknown decay {settings.decay!r}: use {', '.join(DECAYS)}"),
        (settings.seed < 2**63, f"seed is {settings.seed}: it must be below 2 to the 63rd"),
        (settings.keep >= 1, f"keep is {settings.keep}: it must be at least 1"),
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
