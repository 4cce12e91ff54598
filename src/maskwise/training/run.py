"""One run of training in a folder, whatever is trained: checked, begun, resumed, measured and finished."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from transformers import TrainerCallback, TrainingArguments
from transformers.integrations import get_reporting_integration_callbacks
from transformers.utils import logging

from maskwise import __version__
from maskwise.models.checkpoints.configuration import configured_block, read_family
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.checkpoints.locations import locate_checkpoint
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.checkpoints.opening import pick_device
from maskwise.models.finite import refuse_nonfinite_rows
from maskwise.models.model import Model
from maskwise.support.errors import UserError
from maskwise.support.files import only_user_of, read_json, refuse_links, replace_file
from maskwise.support.processes import one_line_if_left_alone
from maskwise.support.randomness import LAW, torch_generator
from maskwise.training.card import trained_card
from maskwise.training.data.pairs import DataFile
from maskwise.training.evaluation import masks_used
from maskwise.training.folder import (
    drop_incomplete,
    newest_whole,
    refuse_other_base,
    refuse_other_run,
    refuse_unreadable,
    saving,
    write_json,
)
from maskwise.training.settings import DECAYS, RunSettings, TrainSettings, check_reporters
from maskwise.training.trainer import RunTrainer
from maskwise.training.weights import make_trainable, save_trained_weights, trained_weights


@dataclass(frozen=True)
class Work:
    """What a command makes of a model and its data."""

    counts: dict[str, Any]  # of the examples, for the result
    evaluates: bool  # whether anything is held out
    make_trainer: Callable[[], RunTrainer]  # called once the model is trainable
    example: Sequence[int]  # ids of one, to look for where values are no longer finite
    mask_row: bool = False  # an adapter trains the mask's embedding too
    teacher: str | None = None  # its fingerprint


@dataclass(frozen=True)
class Place:
    """Where a run runs and what it keeps there."""

    out: Path
    dtype: str = "auto"
    device: str | None = None
    tensorboard: bool | None = None
    callbacks: Sequence[TrainerCallback] = ()
    check_weights: bool = True
    report_to: Sequence[str] | None = None  # of settings.REPORTERS; None: TensorBoard, as `tensorboard` says


def run(
    model: str | Path | Model,
    settings: RunSettings,
    read: Callable[[], DataFile],
    prepare: Callable[[Model, DataFile], Work],
    place: Place,
) -> dict[str, Any]:
    """Trains a model and writes the adapter, or the whole model, and every setting into the folder.

    A model that is given open is trained in place. Run again with the same settings it resumes where it was stopped.
    Returns what result.json holds.
    """
    with one_line_if_left_alone(place.out):
        return _run(model, settings, read(), prepare, place)


def _run(
    model: str | Path | Model,
    settings: RunSettings,
    data: DataFile,
    prepare: Callable[[Model, DataFile], Work],
    place: Place,
) -> dict[str, Any]:
    out, device = place.out, place.device
    name = model.name if isinstance(model, Model) else str(model)
    if device is not None and pick_device(device).index not in (None, 0):
        raise UserError(f"--device {device}: name cpu or cuda, and choose the card with CUDA_VISIBLE_DEVICES")
    processes = PartialState(cpu=device == "cpu" or not torch.cuda.is_available())
    identity: dict[str, Any] = {
        "model": name,
        "dtype": place.dtype,
        "settings": asdict(settings),
        "data": {"file": data.path.name, "sha256": data.sha256},
        "processes": processes.num_processes,
        "seeds": LAW,
    }
    if processes.is_main_process:  # the others would see what it is about to write
        refuse_other_run(out, identity, {"settings": asdict(type(settings)())})
    processes.wait_for_everyone()
    if (out / "result.json").exists():
        return read_json(out / "result.json", "choose another --out")
    refuse_block_models(model, settings)
    reporters = check_reporters(place.report_to)
    with_tensorboard = _tensorboard(place.tensorboard) if reporters is None else "tensorboard" in reporters
    # A step of the usual size is less than half a unit in the last place of most half-precision weights.
    dtype = "float32" if settings.full and place.dtype == "auto" else place.dtype
    if isinstance(model, Model):
        if settings.full and model.dtype != torch.float32:
            raise UserError(f"all weights are trained in float32, not in {model.dtype}: mw.open(..., dtype='float32')")
        model = model.to(processes.device)
    else:
        model = open_model(name, dtype, processes.device, check_weights=place.check_weights)
    if model.mask_id is None:
        raise UserError(
            f"{name} is autoregressive and has no mask token: turn it into a diffusion model first (convert)"
        )
    base = fingerprint(model)
    work = prepare(model, data)
    del data  # its texts are not needed while the model is trained
    make_trainable(model, settings, work.mask_row)
    if processes.num_processes == 1:  # compiled layers were measured on one device only
        model.compile_for_long_work()
    counts = work.counts | {"trained_parameters": sum(p.numel() for p in model.net.parameters() if p.requires_grad)}
    with ExitStack() as held:
        if processes.is_main_process:
            with saving(out / "settings.json", "nothing was begun"):
                out.mkdir(parents=True, exist_ok=True)
            held.enter_context(only_user_of(out))
            refuse_links(out)
            refuse_links(out / "checkpoints")
            refuse_other_base(out, base)
            told = {"identity": identity, "base": base, "counts": counts, "versions": _versions()}
            if work.teacher is not None:
                refuse_other_base(out, work.teacher, "teacher")
                told["teacher"] = work.teacher
            begin(out, told)
        processes.wait_for_everyone()
        trainer = work.make_trainer()
        with torch.autocast(model.device.type, torch.bfloat16, enabled=trainer.args.bf16):  # as it is measured after
            before = trainer.scores(model) if work.evaluates else None
        if before is not None and not all(map(isfinite, before.values())):
            refuse_nonfinite_rows(model, work.example, "the held-out examples, before the first step,")
        for callback in place.callbacks:
            trainer.add_callback(callback)
        if with_tensorboard and trainer.is_world_process_zero():
            trainer.add_callback(_board(out / "logs"))
        others = [name for name in reporters or () if name != "tensorboard"]
        for reporter in get_reporting_integration_callbacks(others):
            trainer.add_callback(reporter)
        held.enter_context(_run_of_wandb("wandb" in others))
        resume(trainer, out)
        result = finish(trainer, out, before, {"model": name, "out": str(out), **counts}, identity["data"])
        model.name = str(out) if settings.full else f"{name}+{out}"  # as what was written is called
        return result


def refuse_block_models(model: str | Path | Model, settings: RunSettings) -> None:
    """All losses but the one that fits them, by config.json alone, before any weight is read.

    A block diffusion model predicts a block from clean ones before it, where the other losses noise a whole answer or
    document. And the views of the mask-agnostic loss would differ in the last block of an answer at most.
    """
    name, block = (model.name or model.kind) if isinstance(model, Model) else str(model), block_of(model)
    if block is None:
        return
    if not isinstance(settings, TrainSettings):
        raise UserError(
            f"{name} is a block diffusion model: an answer sees no mask after its block of {block}, so that the "
            "views of the mask-agnostic loss would hardly differ; use train --objective blockwise"
        )
    remedies = (
        (settings.objective != "blockwise", "use --objective blockwise"),
        (settings.block not in (None, block), f"leave --block out, or say {block}"),
        (bool(settings.widen), "leave --widen out"),
    )
    if asked := [remedy for wrong, remedy in remedies if wrong]:
        raise UserError(
            f"{name} is a block diffusion model and learns a block of {block} tokens from clean blocks before it: "
            f"{', '.join(asked)}"
        )


def block_of(model: str | Path | Model) -> int | None:
    """Tokens of a block of a block diffusion model, by config.json alone; None of any other model."""
    if isinstance(model, Model):
        return model.block
    folder = locate_checkpoint(str(model))[0]
    return configured_block(folder, read_family(folder))


def source_of(model: str | Path | Model) -> Path | None:
    """The folder of the checkpoint that is trained; None of a network that was only ever in memory."""
    try:
        return locate_checkpoint(model.name if isinstance(model, Model) else str(model))[0]
    except UserError:
        return None


def begin(out: Path, description: dict[str, Any]) -> None:
    """Says what the folder is for, and removes what an interrupted save left in it."""
    with saving(out / "settings.json", "nothing was begun"):
        drop_incomplete(out / "checkpoints")
        write_json(out / "settings.json", description)
        (out / "checkpoints").mkdir(exist_ok=True)  # the Trainer would make it, with a traceback on a full disk


def resume(trainer: RunTrainer, out: Path) -> None:
    """From the newest whole checkpoint, or from the beginning."""
    newest = newest_whole(out / "checkpoints", trainer.tell)
    if newest is not None:
        refuse_unreadable(newest)
    try:
        trainer.train(resume_from_checkpoint=str(newest) if newest is not None else None)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{trainer.what_is_kept()} in {out}, the same command goes on from there") from None
    finally:
        trainer.bar.stop()


E = TypeVar("E")


def split(examples: Sequence[E], settings: RunSettings) -> tuple[list[E], list[E]]:
    """(held out, for training): at most a fifth is held out, chosen by the seed."""
    order = torch.randperm(len(examples), generator=torch_generator("split", settings.seed)).tolist()
    count = min(settings.held_out, len(examples) // 5)
    return [examples[i] for i in order[:count]], [examples[i] for i in order[count:]]


def arguments_for(model: Model, settings: RunSettings, out: Path, evaluates: bool) -> TrainingArguments:
    """The Trainer's arguments for a model that `make_trainable` has seen; its checkpoints go to out/checkpoints."""
    if settings.gradient_checkpointing:
        model.core.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    # What FSDP2 shards unit by unit, where the launcher did not say.
    os.environ.setdefault("FSDP_TRANSFORMER_CLS_TO_WRAP", ",".join(model.core._no_split_modules or []))
    return training_arguments(settings, out / "checkpoints", model.device.type == "cpu", evaluates)


def training_arguments(settings: RunSettings, folder: Path, on_cpu: bool, evaluates: bool) -> TrainingArguments:
    logging.set_verbosity_error()
    arguments = TrainingArguments(
        output_dir=str(folder),
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


def finish(
    trainer: RunTrainer, out: Path, before: dict[str, float] | None, about: dict[str, Any], data: dict[str, str]
) -> dict[str, Any]:
    """Writes the weights with their card, then the result that marks the run as finished."""
    after = trainer.last_scores() if trainer.held_out else None
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    result = {
        **about,
        "steps": trainer.state.global_step,
        "masks": masks_used(trainer.compared, trainer.run_settings),
        "before": before,
        "after": after,
        "losses": [entry["loss"] for entry in log],
    }
    weights = trained_weights(trainer.tuned)
    if trainer.args.should_save:
        partial = out / "weights.partial"
        with saving(partial, trainer.what_is_kept()):
            save_trained_weights(trainer.tuned, partial, weights, trainer.source)
            replace_file(partial / "README.md", [trained_card(result, trainer.run_settings, data, trainer.source)])
            for file in sorted(partial.iterdir()):
                file.replace(out / file.name)
            partial.rmdir()
            write_json(out / "result.json", result)
    trainer.accelerator.wait_for_everyone()
    return result


def before_and_after(result: dict[str, Any], where: str, labels: dict[str, str]) -> list[str]:
    """A table of the measures that were taken, by their labels; no line where nothing was held out."""
    before, after = result["before"], result["after"]
    if not before:
        return []
    labels = {key: label for key, label in labels.items() if key in before}
    width = max(28, *map(len, labels.values()))
    rows = [f"{label:{width}} {before[key]:8.4f} {after[key]:8.4f}" for key, label in labels.items()]
    return [f"{'on ' + where:{width}} {'before':>8} {'after':>8}", *rows]


def is_main_process() -> bool:
    return PartialState().is_main_process


def _tensorboard(asked: bool | None) -> bool:
    there = find_spec("tensorboard") is not None
    if asked and not there:
        raise UserError("TensorBoard is not installed: install tensorboard or leave --tensorboard out")
    return there if asked is None else asked


def _board(folder: Path) -> TrainerCallback:
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations import TensorBoardCallback

    return TensorBoardCallback(SummaryWriter(log_dir=str(folder)))


@contextmanager
def _run_of_wandb(reports: bool) -> Iterator[None]:
    """One that begins here ends here, or the next training of this process would be written into it too."""
    if not reports:
        yield
        return
    import wandb

    if wandb.run is not None:  # the user's own
        yield
        return
    failed = 1
    try:
        yield
        failed = 0
    finally:
        wandb.finish(exit_code=failed)


def _versions() -> dict[str, str]:
    others = {package: version(package) for package in ("torch", "transformers", "peft", "accelerate")}
    return {"maskwise": __version__, **others}
