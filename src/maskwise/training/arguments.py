"""The arguments of transformers' Trainer for the settings of a run."""

import os
from pathlib import Path

from transformers import TrainingArguments
from transformers.utils import logging

from maskwise.models.model import Model
from maskwise.training.training_settings import DECAYS, SharedSettings


def arguments_for(model: Model, settings: SharedSettings, out: Path, evaluates: bool) -> TrainingArguments:
    """The Trainer's arguments for a model after `make_trainable`; its checkpoints go to out/checkpoints."""
    on_cpu = model.device.type == "cpu"
    if settings.gradient_checkpointing:
        model.core.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    # What FSDP2 shards unit by unit, where the launcher did not say.
    os.environ.setdefault("FSDP_TRANSFORMER_CLS_TO_WRAP", ",".join(model.core._no_split_modules or []))
    logging.set_verbosity_error()
    arguments = TrainingArguments(
        output_dir=str(out / "checkpoints"),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch,
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=DECAYS[settings.decay],
        warmup_steps=settings.warmup or 0,
        max_grad_norm=settings.clip,
        weight_decay=settings.weight_decay,
        bf16=not on_cpu if settings.bf16 is None else settings.bf16,
        seed=settings.seed % 2**32,  # numpy, which the Trainer seeds too, takes no more
        use_cpu=on_cpu,
        logging_steps=1,
        logging_nan_inf_filter=False,  # a bad loss stops the run instead of being smoothed over
        save_strategy="steps",
        save_steps=settings.save_every,
        eval_strategy="steps" if evaluates and settings.eval_every else "no",
        eval_steps=settings.eval_every or None,
        remove_unused_columns=False,
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to=[],
        log_level="error",
    )
    # One process drives one device: DataParallel would cut the ragged batch apart.
    arguments._n_gpu = min(arguments.n_gpu, 1)
    return arguments
