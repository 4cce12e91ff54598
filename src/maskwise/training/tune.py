"""`maskwise tune`: pairs -> noised answers -> two views -> one ragged batch -> fused CE + TV -> adapter."""

import os
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import TrainerCallback, TrainingArguments
from transformers.utils import logging

from maskwise import __version__
from maskwise.errors import UserError
from maskwise.files import only_user_of, read_json, refuse_links
from maskwise.models.base import Model
from maskwise.models.fingerprint import fingerprint
from maskwise.models.finite import refuse_nonfinite_rows
from maskwise.models.locations import locate_checkpoint
from maskwise.models.opening import open as open_model
from maskwise.models.opening import pick_device
from maskwise.randomness import LAW, torch_generator
from maskwise.terminal import one_line
from maskwise.training.dataset import Collator, NoisedPairs
from maskwise.training.evaluation import held_out_views, measure
from maskwise.training.folder import (
    drop_incomplete,
    newest_whole,
    refuse_other_base,
    refuse_other_run,
    refuse_unreadable,
    saving,
    write_json,
)
from maskwise.training.pairs import Pair, end_of_text, read_data_file, tokenize_pairs
from maskwise.training.settings import DECAYS, TuneSettings
from maskwise.training.trainer import TuneTrainer
from maskwise.training.weights import make_trainable, save_trained_weights, trained_weights


def tune(
    name: str,
    data: Path,
    out: Path,
    settings: TuneSettings,
    dtype: str = "auto",
    device: str | None = None,
    tensorboard: bool | None = None,
    callbacks: list[TrainerCallback] | None = None,
    check_weights: bool = True,
) -> dict[str, Any]:
    """Tunes a model on a data file and writes the adapter, or the whole model, and every setting into `out`.

    Run again with the same settings it resumes where it was stopped. Returns what result.json holds.
    """
    data_file = read_data_file(data)
    if device is not None and pick_device(device).index not in (None, 0):
        raise UserError(f"--device {device}: name cpu or cuda, and choose the card with CUDA_VISIBLE_DEVICES")
    processes = PartialState(cpu=device == "cpu" or not torch.cuda.is_available())
    identity = {
        "model": name,
        "dtype": dtype,
        "settings": asdict(settings),
        "data": {"file": data.name, "sha256": data_file.sha256},
        "processes": processes.num_processes,
        "seeds": LAW,
    }
    if processes.is_main_process:  # the others would see what it is about to write
        refuse_other_run(out, identity)
    processes.wait_for_everyone()
    if (out / "result.json").exists():
        return read_json(out / "result.json", "choose another --out")
    with_tensorboard = _tensorboard(tensorboard)
    # A step of the usual size is less than half a unit in the last place of most half-precision weights.
    wider = "float32" if settings.full and dtype == "auto" else dtype
    model = open_model(name, wider, processes.device, check_weights=check_weights)
    if model.mask_id is None:
        raise UserError(
            f"{name} is autoregressive and has no mask token: turn it into a diffusion model first (convert)"
        )
    base = fingerprint(model)
    pairs = tokenize_pairs(data_file, model, settings.context, settings.text_piece)
    del data_file  # its texts are not needed while the model is trained
    held_out, training = split(pairs.kept, settings)
    make_trainable(model, settings)
    if processes.num_processes == 1:  # compiled layers were measured on one device only
        model.compile_for_long_work()
    trained = sum(p.numel() for p in model.net.parameters() if p.requires_grad)
    counts = {
        "pairs": len(training),
        "held_out": len(held_out),
        "dropped": pairs.dropped,
        "trained_parameters": trained,
    }
    with ExitStack() as held:
        if processes.is_main_process:
            with saving(out / "settings.json", "nothing was begun"):
                out.mkdir(parents=True, exist_ok=True)
            held.enter_context(only_user_of(out))
            refuse_links(out)
            refuse_links(out / "checkpoints")
            refuse_other_base(out, base)
            begin(out, {"identity": identity, "base": base, "counts": counts, "versions": _versions()})
        processes.wait_for_everyone()
        views = held_out_views(held_out, settings, model.mask_id)
        trainer = make_trainer(model, training, settings, out, views, locate_checkpoint(name)[0])
        with torch.autocast(model.device.type, torch.bfloat16, enabled=trainer.args.bf16):  # as it is measured after
            before = measure(model, model, views) if views else None
        if before is not None and not isfinite(before["ce"]):
            refuse_nonfinite_rows(model, training[0].prompt, "the held-out pairs, before the first step,")
        for callback in callbacks or []:
            trainer.add_callback(callback)
        if with_tensorboard and trainer.is_world_process_zero():
            trainer.add_callback(_board(out / "logs"))
        train(trainer, out)
        return finish(trainer, out, before, {"model": name, "out": str(out), **counts})


def begin(out: Path, description: dict[str, Any]) -> None:
    """Says what the folder is for, and removes what an interrupted save left in it."""
    with saving(out / "settings.json", "nothing was begun"):
        drop_incomplete(out / "checkpoints")
        write_json(out / "settings.json", description)


def train(trainer: TuneTrainer, out: Path) -> None:
    """Resumes from the newest whole checkpoint, or starts from the beginning."""
    newest = newest_whole(out / "checkpoints", trainer.tell)
    if newest is not None:
        refuse_unreadable(newest)
    try:
        trainer.train(resume_from_checkpoint=str(newest) if newest is not None else None)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{trainer.what_is_kept()} in {out}, the same command goes on from there") from None
    finally:
        trainer.bar.stop()


def split(pairs: tuple[Pair, ...], settings: TuneSettings) -> tuple[list[Pair], list[Pair]]:
    """(held out, for training): at most a fifth is held out, chosen by the seed."""
    order = torch.randperm(len(pairs), generator=torch_generator("split", settings.seed)).tolist()
    count = min(settings.held_out, len(pairs) // 5)
    return [pairs[i] for i in order[:count]], [pairs[i] for i in order[count:]]


def make_trainer(
    model: Model, pairs: list[Pair], settings: TuneSettings, out: Path, views: list[Any], source: Path | None
) -> TuneTrainer:
    """The Trainer of a model that `make_trainable` has seen; its checkpoints go to out/checkpoints."""
    arguments = training_arguments(settings, out / "checkpoints", model.device.type == "cpu", bool(views))
    if settings.gradient_checkpointing:
        model.core.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    # What FSDP2 shards unit by unit, where the launcher did not say.
    os.environ.setdefault("FSDP_TRANSFORMER_CLS_TO_WRAP", ",".join(model.core._no_split_modules or []))
    assert model.mask_id is not None
    dataset = NoisedPairs(pairs, settings, model.mask_id, arguments.world_size)
    collator = Collator(end_of_text(model) if settings.pad_eos else None)
    return TuneTrainer(model, arguments, settings, dataset, collator, views, source)


def training_arguments(settings: TuneSettings, folder: Path, on_cpu: bool, evaluates: bool) -> TrainingArguments:
    logging.set_verbosity_error()
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=settings.steps,
        per_device_train_batch_size=settings.batch,
        gradient_accumulation_steps=settings.accumulation,
        learning_rate=settings.learning_rate,
        lr_scheduler_type=DECAYS[settings.decay],
        warmup_steps=settings.warmup,
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


def finish(trainer: TuneTrainer, out: Path, before: dict[str, float] | None, about: dict[str, Any]) -> dict[str, Any]:
    """Measures once more and writes the weights, then the result that marks the run as finished."""
    scores = trainer.evaluate() if trainer.held_out else None
    after = {name.removeprefix("eval_"): value for name, value in scores.items()} if scores else None
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    result = {
        **about,
        "steps": trainer.state.global_step,
        "masks": {"few": trainer.settings.few, "many": trainer.settings.many},
        "before": before,
        "after": after,
        "losses": [entry["loss"] for entry in log],
    }
    weights = trained_weights(trainer.tuned)
    if trainer.args.should_save:
        partial = out / "weights.partial"
        with saving(partial, trainer.what_is_kept()):
            save_trained_weights(trainer.tuned, partial, weights, trainer.source)
            for file in sorted(partial.iterdir()):
                file.replace(out / file.name)
            partial.rmdir()
            write_json(out / "result.json", result)
    trainer.accelerator.wait_for_everyone()
    return result


def is_main_process() -> bool:
    return PartialState().is_main_process


def summary_lines(result: dict[str, Any]) -> list[str]:
    """What a person reads at the end: the measures before and after, and what to do next."""
    few, many, out = result["masks"]["few"], result["masks"]["many"], one_line(result["out"])
    names = {
        "ce": "cross-entropy (nats)",
        "tv": f"TV between {few} and {many} masks",
        "accuracy_few": f"accuracy, {few} masks",
        "accuracy_many": f"accuracy, {many} masks",
        "gap": "accuracy lost to masks",
    }
    used = f"{result['pairs']} pairs, {result['held_out']} held out, {result['dropped']} exceeding the context length"
    lines = [f"{result['steps']} steps on {used}"]
    if result["before"]:
        lines.append(f"{'on held-out pairs':28} {'before':>8} {'after':>8}")
        lines += [f"{names[key]:28} {result['before'][key]:8.4f} {result['after'][key]:8.4f}" for key in names]
    return [*lines, f"written to {out}", f"next: maskwise compare {one_line(result['model'])} {out}"]


def _tensorboard(asked: bool | None) -> bool:
    there = find_spec("tensorboard") is not None
    if asked and not there:
        raise UserError("TensorBoard is not installed: install tensorboard or leave --tensorboard out")
    return there if asked is None else asked


def _board(folder: Path) -> TrainerCallback:
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations import TensorBoardCallback

    board = TensorBoardCallback(SummaryWriter(log_dir=str(folder)))
    board.logging_dir = str(folder)  # where it opens a second writer for what is logged after the training
    return board


def _versions() -> dict[str, str]:
    others = {package: version(package) for package in ("torch", "transformers", "peft", "accelerate")}
    return {"maskwise": __version__, **others}
