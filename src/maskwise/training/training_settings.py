"""Every setting of a tuning or training run, with its default and help, and the presets of tuning."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from maskwise.diffusion.objective import Objective
from maskwise.diffusion.objectives import OBJECTIVES
from maskwise.diffusion.schedules import SCHEDULES

ATTENTION = "attention"  # as targets, in place of a regular expression
BLOCK = 32  # tokens of a block, where neither the user nor the model sets them
WARMUP = 20  # steps of warm-up of a long enough training, where the user does not set them


def _option(default: Any, help: str, *flags: str, at_least: float | None = None, type: Any = None) -> Any:
    """A setting with an option on the command line: its help, and its flags where they are not --its-name.
    at_least: the smallest allowed value. type: the type on the command line, where it is not the setting's own."""
    return field(default=default, metadata={"help": help, "flags": flags, "at_least": at_least, "type": type})


def _default(of: type, name: str, default: Any) -> Any:
    """An inherited setting with another default."""
    (inherited,) = (one for one in fields(of) if one.name == name)
    return field(default=default, metadata=inherited.metadata)


def _either(names: list[str]) -> str:
    """nelbo, blockwise or soft-mask"""
    return f"{', '.join(names[:-1])} or {names[-1]}"


@dataclass(frozen=True)
class SharedSettings:
    """The settings that tuning and training share."""

    # The optimiser
    steps: int = _option(1000, "Optimiser steps.", at_least=1)
    batch: int = _option(8, "Examples per micro-batch and process.", at_least=1)
    accumulation: int = _option(1, "Micro-batches per step.", at_least=1)
    learning_rate: float = _option(1e-4, "Learning rate, over 0.", "--learning-rate", "--lr")
    warmup: int | None = _option(0, "Steps until the full learning rate.", at_least=0)
    decay: str = _option("constant", "Learning rate after the warm-up: constant, linear or cosine.")
    clip: float = _option(1.0, "Largest norm of the gradient, over 0.")
    weight_decay: float = _option(0.0, "Weight decay.", at_least=0)
    # What is trained
    full: bool = _option(False, "Train all weights instead of an adapter.", "--full")
    lora_rank: int = _option(64, "Rank of the adapter.", at_least=1)
    lora_alpha: int = _option(128, "Scale of the adapter.", at_least=1)
    lora_dropout: float = _option(0.0, "Dropout before the adapter, below 1.", at_least=0)
    targets: str | None = _option(
        None, "Linear layers to adapt: attention, or a regular expression; by default the family's own."
    )
    # How
    bf16: bool | None = _option(None, "Compute in bfloat16 (autocast); by default on CUDA.", "--bf16/--no-bf16")
    gradient_checkpointing: bool = _option(
        False, "Recompute layers in the backward pass: less memory.", "--gradient-checkpointing"
    )
    seed: int = _option(0, "Seed of the order and the noise.", at_least=0)
    save_every: int = _option(50, "Steps between checkpoints.", at_least=1)
    keep: int = 2  # checkpoints
    # Evaluation
    eval_every: int = _option(50, "Steps between evaluations; 0 measures before and after only.", at_least=0)
    held_out: int = _option(64, "Examples kept for evaluation, at most a fifth of the data.", at_least=0)
    few: int = _option(2, "The smaller number of masks appended at evaluation.", at_least=0)
    many: int = _option(200, "The larger number of masks appended at evaluation.")


@dataclass(frozen=True)
class TuneSettings(SharedSettings):
    """The defaults are those of Piskorz et al. (arXiv 2511.21338) for Base models where the paper states them."""

    # The loss: alpha * CE + beta * TV (KL if anchored)
    alpha: float = _option(0.1, "Weight of the cross-entropy (CE).", at_least=0)
    beta: float = _option(
        1.0,
        "Weight of the TV term, the L1 distance of the two views' predictions (0 to 2); if anchored, of the KL.",
        at_least=0,
    )
    one_branch: bool = _option(False, "Stop the gradient at the second view of each pair.", "--one-branch")
    # the second view has no masks appended and is predicted by the untuned model
    anchored: bool = _option(
        False,
        "Anchored: match the untuned model's predictions without appended masks (KL). Both views: match the "
        "predictions for two inputs of a pair that differ in the number of appended masks (TV), as in the paper.",
        "--anchored/--both-views",
    )
    # so that the predictions with few masks stay as they are
    held: float = _option(0.0, "Share of anchored pairs with at most 4 masks appended, below 1.", at_least=0)
    mask_low: float = 0.2  # p ~ U(mask_low, mask_high)
    mask_high: float = 0.8
    # The views
    context: int = _option(1024, "Tokens of prompt, answer and masks together.")
    max_masks: int = _option(600, "Most masks appended; 0: none, as a control.", at_least=0)
    curriculum: int = _option(5000, "Micro-batches until --max-masks is reached.", at_least=0)
    # visible end-of-text padding to equal length
    pad_eos: bool = _option(False, "Pad with visible end tokens, as the paper.", "--pad-eos")
    text_piece: int = 256  # tokens of a continuation pair cut from plain text
    # The optimiser
    steps: int = _default(SharedSettings, "steps", 930)
    batch: int = _option(3, "Pairs per micro-batch and process.", at_least=1)
    accumulation: int = _default(SharedSettings, "accumulation", 43)
    learning_rate: float = _default(SharedSettings, "learning_rate", 1e-5)


@dataclass(frozen=True)
class TrainSettings(SharedSettings):
    """Masked diffusion training on documents."""

    # The objective
    objective: str | Objective = _option("nelbo", f"{_either(list(map(str, OBJECTIVES)))}.", type=str)  # noqa: RUF009
    schedule: str = _option("linear", f"Masking schedule (nelbo and soft-mask only): {_either([*SCHEDULES])}.")
    weighted: bool = _option(
        True, "Weight masked tokens by the schedule (1/t), or all equally.", "--weighted/--unweighted"
    )
    block: int | None = _option(
        None, f"Tokens of a block (blockwise); else a block diffusion model's own, or {BLOCK}.", at_least=1
    )
    soft_share: float = _option(0.5, "Share of documents with soft masks (soft-mask), 0 to 1.")
    parameters: Mapping[str, float] = field(default_factory=dict)  # of an objective that has its own
    # The rows
    context: int = _option(512, "Tokens per row.", at_least=8)
    rows: str = _option("documents", "documents: packed, with separate attention; full: one stream, cut.")
    # The optimiser
    batch: int = _option(8, "Rows per micro-batch and process.", at_least=1)
    learning_rate: float = _default(SharedSettings, "learning_rate", 3e-4)
    decay: str = _default(SharedSettings, "decay", "cosine")
    warmup: int | None = _option(
        None, f"Steps until the full learning rate; else a tenth of --steps, at most {WARMUP}.", at_least=0
    )
    many: int = _default(SharedSettings, "many", 100)


# Ours, for the embedded models on two CPU cores: minutes, with the pairs that come with the package. The one token that
# matters in an answer is nearly always masked.
_QUICK: Any = {"anchored": True, "alpha": 0.0, "mask_low": 0.95, "mask_high": 0.99, "held": 0.3, "targets": ATTENTION}
_QUICK |= {"steps": 700, "batch": 2, "accumulation": 1, "learning_rate": 2e-3, "warmup": 10, "decay": "linear"}
_QUICK |= {"context": 900, "max_masks": 240, "curriculum": 0, "lora_rank": 16, "lora_alpha": 32}
_QUICK |= {"eval_every": 0, "held_out": 32}
PRESETS = {
    "quick": TuneSettings(**_QUICK),
    "paper-base": TuneSettings(),
    "paper-instruct": TuneSettings(beta=10.0, learning_rate=1e-6),
    "paper-base-ce": TuneSettings(beta=0.0, learning_rate=1e-6),
    "paper-instruct-ce": TuneSettings(beta=0.0, learning_rate=1e-5),
}

# Data that comes with the package (recipes/zoo/quick_pairs.py).
PRESET_PAIRS = {"quick": Path(__file__).parent / "data" / "quick.jsonl"}

DECAYS = {"constant": "constant_with_warmup", "linear": "linear", "cosine": "cosine"}


def described(settings: SharedSettings) -> dict[str, Any]:
    """Every setting by its name, as settings.json holds it; an objective is its name."""
    values = {one.name: getattr(settings, one.name) for one in fields(settings)}
    return {name: str(value) if isinstance(value, Objective) else value for name, value in values.items()}
