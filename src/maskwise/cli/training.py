"""The commands that train a model: on documents (train), and to ignore appended masks (tune)."""

from pathlib import Path
from typing import Annotated, Any

import typer

from maskwise.cli.common import LARGEST_SEED, CheckWeights, Dtype, Json, ModelName, echo, print_json, whole_numbers
from maskwise.cli.early import check_data, check_models

# What both commands take.
Steps = Annotated[int | None, typer.Option(help="Optimiser steps.")]
Accumulation = Annotated[int | None, typer.Option(help="Micro-batches per step.")]
LearningRate = Annotated[float | None, typer.Option("--learning-rate", "--lr", help="Learning rate.")]
Warmup = Annotated[int | None, typer.Option(help="Steps until the full learning rate.")]
Decay = Annotated[str | None, typer.Option(help="Of the learning rate: constant, linear or cosine.")]
Clip = Annotated[float | None, typer.Option(help="Largest norm of the gradient.")]
WeightDecay = Annotated[float | None, typer.Option(help="Weight decay.")]
LoraRank = Annotated[int | None, typer.Option(help="Rank of the adapter.")]
LoraAlpha = Annotated[int | None, typer.Option(help="Scale of the adapter.")]
LoraDropout = Annotated[float | None, typer.Option(help="Dropout before the adapter.")]
Targets = Annotated[str | None, typer.Option(help="Regular expression of the linear layers to adapt.")]
Bf16 = Annotated[bool | None, typer.Option("--bf16/--no-bf16", help="Autocast; on CUDA by default.")]
GradientCheckpointing = Annotated[
    bool | None, typer.Option("--gradient-checkpointing", help="Recompute layers in the backward pass: less memory.")
]
SaveEvery = Annotated[int | None, typer.Option(help="Steps between checkpoints.")]
EvalEvery = Annotated[int | None, typer.Option(help="Steps between evaluations; 0 for none between.")]
Few = Annotated[int | None, typer.Option(help="Masks appended at evaluation: few...")]
Many = Annotated[int | None, typer.Option(help="... and many.")]
Tensorboard = Annotated[bool | None, typer.Option("--tensorboard/--no-tensorboard", help="Write OUT/logs.")]
ReportTo = Annotated[
    str | None,
    typer.Option(help="wandb, tensorboard, mlflow, separated by commas, or none; TensorBoard if not given and there."),
]
TrainingDevice = Annotated[str | None, typer.Option(help="cpu or cuda.")]


def train(
    model: ModelName,
    data: Annotated[Path, typer.Option(help="Text, or .jsonl with text or messages.")],
    out: Annotated[Path, typer.Option(help="Folder for the adapter or checkpoint.")],
    objective: Annotated[str | None, typer.Option(help="nelbo, blockwise or soft-mask.")] = None,
    schedule: Annotated[str | None, typer.Option(help="linear, cosine, polynomial or geometric.")] = None,
    weighted: Annotated[
        bool | None, typer.Option("--weighted/--unweighted", help="By the schedule (1/t), or each masked token once.")
    ] = None,
    block: Annotated[int | None, typer.Option(help="Tokens of a block (blockwise).")] = None,
    soft_share: Annotated[float | None, typer.Option(help="Share of documents with soft masks (soft-mask).")] = None,
    teacher: Annotated[str | None, typer.Option(help="Autoregressive model to distil from.")] = None,
    widen: Annotated[str | None, typer.Option(help="Attention over blocks first, from causal on: 1,4,16,64.")] = None,
    widen_share: Annotated[float | None, typer.Option(help="Share of the steps until bidirectional.")] = None,
    rows: Annotated[
        str | None, typer.Option(help="documents: packed, unseen by each other; full: one stream, cut.")
    ] = None,
    context: Annotated[int | None, typer.Option(help="Tokens of a row.")] = None,
    steps: Steps = None,
    batch: Annotated[int | None, typer.Option(help="Rows per micro-batch and process.")] = None,
    accumulation: Accumulation = None,
    learning_rate: LearningRate = None,
    warmup: Warmup = None,
    decay: Decay = None,
    clip: Clip = None,
    weight_decay: WeightDecay = None,
    full: Annotated[bool | None, typer.Option("--full", help="Train all weights instead of an adapter.")] = None,
    lora_rank: LoraRank = None,
    lora_alpha: LoraAlpha = None,
    lora_dropout: LoraDropout = None,
    targets: Targets = None,
    bf16: Bf16 = None,
    gradient_checkpointing: GradientCheckpointing = None,
    save_every: SaveEvery = None,
    eval_every: EvalEvery = None,
    held_out: Annotated[int | None, typer.Option(help="Rows kept for evaluation.")] = None,
    few: Few = None,
    many: Many = None,
    seed: Annotated[int | None, typer.Option(min=0, max=LARGEST_SEED, help="Draws order and noise.")] = None,
    tensorboard: Tensorboard = None,
    report_to: ReportTo = None,
    dtype: Dtype = "auto",
    device: TrainingDevice = None,
    check_weights: CheckWeights = True,
    json: Json = False,
) -> None:
    """Train a masked diffusion model on documents. Run again, it resumes where it stopped."""
    from maskwise.training.settings import check_reporters, train_settings

    changes = {
        "objective": objective, "schedule": schedule, "weighted": weighted, "block": block, "soft_share": soft_share,
        "teacher": teacher, "widen": whole_numbers(widen),
        "widen_share": widen_share, "rows": rows, "context": context, "steps": steps, "batch": batch,
        "accumulation": accumulation, "learning_rate": learning_rate, "warmup": warmup, "decay": decay, "clip": clip,
        "weight_decay": weight_decay, "full": full, "lora_rank": lora_rank, "lora_alpha": lora_alpha,
        "lora_dropout": lora_dropout, "targets": targets, "bf16": bf16,
        "gradient_checkpointing": gradient_checkpointing, "save_every": save_every, "eval_every": eval_every,
        "held_out": held_out, "few": few, "many": many, "seed": seed,
    }  # fmt: skip
    settings = train_settings(changes)
    check_models([model], None, dtype)
    check_data(data)
    check_reporters(report_to)
    from maskwise.training.run import is_main_process
    from maskwise.training.train import summary_lines
    from maskwise.training.train import train as run_training

    finished = (out / "result.json").exists()
    result = run_training(
        model, data, out, settings, dtype, device, tensorboard, check_weights=check_weights, report_to=report_to
    )
    if is_main_process():
        _show(result, summary_lines(result), finished, json)


def tune(
    model: ModelName,
    data: Annotated[
        Path | None, typer.Option(help="Pairs as .jsonl (prompt/answer, question/answer, messages), or text.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the adapter; runs/MODEL-tuned if not given.")] = None,
    preset: Annotated[
        str, typer.Option(help="paper-base, paper-instruct; with -ce: CE alone; quick: minutes, brings its own pairs.")
    ] = "paper-base",
    alpha: Annotated[float | None, typer.Option(help="Weight of the cross-entropy; 0 is TV alone.")] = None,
    beta: Annotated[float | None, typer.Option(help="Weight of the total variation; 0 is CE alone.")] = None,
    one_branch: Annotated[bool | None, typer.Option("--one-branch", help="Gradient through one view only.")] = None,
    anchored: Annotated[
        bool | None, typer.Option("--anchored/--both-views", help="Match the untuned model's answers without masks.")
    ] = None,
    steps: Steps = None,
    batch: Annotated[int | None, typer.Option(help="Pairs per micro-batch and process.")] = None,
    accumulation: Accumulation = None,
    learning_rate: LearningRate = None,
    warmup: Warmup = None,
    decay: Decay = None,
    clip: Clip = None,
    weight_decay: WeightDecay = None,
    context: Annotated[int | None, typer.Option(help="Tokens of prompt, answer and masks together.")] = None,
    max_masks: Annotated[int | None, typer.Option(help="Most masks appended.")] = None,
    curriculum: Annotated[int | None, typer.Option(help="Micro-batches until that many.")] = None,
    pad_eos: Annotated[bool | None, typer.Option("--pad-eos", help="Pad visibly, as the paper, not pack.")] = None,
    full: Annotated[bool | None, typer.Option("--full", help="Tune all weights instead of an adapter.")] = None,
    lora_rank: LoraRank = None,
    lora_alpha: LoraAlpha = None,
    lora_dropout: LoraDropout = None,
    targets: Targets = None,
    bf16: Bf16 = None,
    gradient_checkpointing: GradientCheckpointing = None,
    save_every: SaveEvery = None,
    eval_every: EvalEvery = None,
    held_out: Annotated[int | None, typer.Option(help="Pairs kept for evaluation.")] = None,
    few: Few = None,
    many: Many = None,
    seed: Annotated[int | None, typer.Option(min=0, max=LARGEST_SEED, help="Draws order, noise, mask counts.")] = None,
    tensorboard: Tensorboard = None,
    report_to: ReportTo = None,
    dtype: Dtype = "auto",
    device: TrainingDevice = None,
    check_weights: CheckWeights = True,
    json: Json = False,
) -> None:
    """Tune a model to ignore appended masks (mask-agnostic loss, LoRA). Run again, it resumes where it stopped."""
    from maskwise.errors import UserError
    from maskwise.training.settings import PRESET_PAIRS, check_reporters, settings_from

    changes = {
        "alpha": alpha, "beta": beta, "one_branch": one_branch, "anchored": anchored, "steps": steps, "batch": batch,
        "accumulation": accumulation, "learning_rate": learning_rate, "warmup": warmup, "decay": decay, "clip": clip,
        "weight_decay": weight_decay,
        "context": context, "max_masks": max_masks, "curriculum": curriculum, "pad_eos": pad_eos, "full": full,
        "lora_rank": lora_rank, "lora_alpha": lora_alpha, "lora_dropout": lora_dropout, "targets": targets,
        "bf16": bf16, "gradient_checkpointing": gradient_checkpointing, "save_every": save_every,
        "eval_every": eval_every, "held_out": held_out, "few": few, "many": many, "seed": seed,
    }  # fmt: skip
    settings = settings_from(preset, changes)
    data = data or PRESET_PAIRS.get(preset)
    if data is None:
        raise UserError("there is nothing to tune on: give --data FILE, or --preset quick, which brings its own pairs")
    check_models([model], None, dtype)
    check_data(data)
    check_reporters(report_to)
    out = out or Path("runs") / f"{Path(model).name}-tuned"
    from maskwise.training.run import is_main_process
    from maskwise.training.tune import summary_lines
    from maskwise.training.tune import tune as run_tuning

    finished = (out / "result.json").exists()
    result = run_tuning(
        model, data, out, settings, dtype, device, tensorboard, check_weights=check_weights, report_to=report_to
    )
    if is_main_process():
        _show(result, summary_lines(result), finished, json)


def _show(result: dict[str, Any], lines: list[str], finished: bool, json: bool) -> None:
    if json:
        return print_json(result)
    if finished:
        echo("maskwise: this run was finished before; these are its figures", err=True)
    echo("\n".join(lines))
