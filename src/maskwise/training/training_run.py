"""One run of tuning or training in a folder: checked, begun or resumed, measured and finished."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
from transformers import TrainerCallback

from maskwise.models.checkpoints.adapter_base import FIELD, digest_of
from maskwise.models.checkpoints.examine import find_family
from maskwise.models.checkpoints.fingerprint import fingerprint
from maskwise.models.checkpoints.locations import locate_checkpoint
from maskwise.models.checkpoints.opening import open as open_model
from maskwise.models.checkpoints.placement import pick_device
from maskwise.models.finite import refuse_nonfinite_rows
from maskwise.models.model import Model
from maskwise.support.errors import UserError
from maskwise.support.files import only_user_of, read_json, refuse_links, replace_file
from maskwise.support.processes import one_line_if_left_alone
from maskwise.support.randomness import LAW
from maskwise.support.version import __version__
from maskwise.training.block_models import refuse_block_models
from maskwise.training.data.reading import DataFile
from maskwise.training.evaluation import masks_used
from maskwise.training.model_card import trained_card
from maskwise.training.reporters import chosen_reporters, reporter_callbacks, wandb_run
from maskwise.training.run_folder import (
    drop_incomplete,
    newest_whole,
    refuse_other_base,
    refuse_other_run,
    refuse_unreadable,
    saving,
    write_json,
)
from maskwise.training.trainer import RunTrainer
from maskwise.training.training_settings import SharedSettings, described
from maskwise.training.weights import make_trainable, save_trained_weights, trained_weights


@dataclass(frozen=True)
class PreparedRun:
    """The examples of a run, tokenised for its model, and its trainer."""

    counts: dict[str, Any]  # of the examples, for the result
    evaluates: bool  # whether anything is held out
    make_trainer: Callable[[], RunTrainer]  # called once the model is trainable
    example: Sequence[int]  # token ids of one, to find where values are no longer finite
    mask_row: bool = False  # whether an adapter also trains the mask's embedding


@dataclass(frozen=True)
class RunTarget:
    """The output folder of a run, its device, and its reporters."""

    out: Path
    dtype: str = "auto"
    device: str | None = None
    tensorboard: bool | None = None
    callbacks: Sequence[TrainerCallback] = ()
    check_weights: bool = True
    report_to: Sequence[str] | None = None  # of reporters.REPORTERS; None: TensorBoard, as `tensorboard` says


def run(
    model: str | Path | Model,
    settings: SharedSettings,
    read: Callable[[], DataFile],
    prepare: Callable[[Model, DataFile], PreparedRun],
    target: RunTarget,
) -> dict[str, Any]:
    """Train a model and write the adapter, or the whole model, and every setting into the folder.

    A model that is given open is trained in place. Run again with the same settings, it resumes where it was stopped.
    Returns the content of result.json.
    """
    with one_line_if_left_alone(target.out):
        return _run(model, settings, read(), prepare, target)


def _run(
    model: str | Path | Model,
    settings: SharedSettings,
    data: DataFile,
    prepare: Callable[[Model, DataFile], PreparedRun],
    target: RunTarget,
) -> dict[str, Any]:
    out, device = target.out, target.device
    if device is not None and pick_device(device).index not in (None, 0):
        raise UserError(f"--device {device}: name cpu or cuda, and choose the card with CUDA_VISIBLE_DEVICES")
    processes = PartialState(cpu=device == "cpu" or not torch.cuda.is_available())
    identity = {
        "model": model.name if isinstance(model, Model) else str(model),
        "dtype": target.dtype,
        "settings": described(settings),
        "data": {"file": data.path.name, "sha256": data.sha256},
        "processes": processes.num_processes,
        "seeds": LAW,
    }
    if processes.is_main_process:  # the others would see what it is about to write
        refuse_other_run(out, identity, {"settings": described(type(settings)())})
    processes.wait_for_everyone()
    if (out / "result.json").exists():
        return read_json(out / "result.json", "choose another --out")
    _refuse_untrainable(model)
    refuse_block_models(model, settings)
    reporters = chosen_reporters(target.tensorboard, target.report_to)
    model = _opened(model, settings, target, processes.device)
    base = fingerprint(model)
    prepared = prepare(model, data)
    del data  # its texts are not needed while the model is trained
    make_trainable(model, settings, prepared.mask_row)
    if processes.num_processes == 1:  # compiled layers were measured on one device only
        model.compile_for_long_work()
    trained = sum(parameter.numel() for parameter in model.net.parameters() if parameter.requires_grad)
    counts = prepared.counts | {"trained_parameters": trained}
    with ExitStack() as held:
        if processes.is_main_process:
            files = digest_of(str(identity["model"]))
            description = {
                "identity": identity,
                "base": base,
                **({} if files is None else {FIELD: files}),
                "counts": counts,
                "versions": _versions(),
            }
            held.enter_context(_run_folder(out, description))
        processes.wait_for_everyone()
        result = _train(model, prepared, target, reporters, identity, counts)
    model.name = str(out) if settings.full else f"{identity['model']}+{out}"  # the name of what was written
    return result


def _opened(model: str | Path | Model, settings: SharedSettings, target: RunTarget, device: torch.device) -> Model:
    """The model on the device of this process, refused where it cannot be trained."""
    if isinstance(model, Model):
        if settings.full and model.dtype != torch.float32:
            raise UserError(f"all weights are trained in float32, not in {model.dtype}: mw.open(..., dtype='float32')")
        if model.spread:
            raise UserError(
                "a model spread over several devices is not trained: open it without device_map, and "
                "use several GPUs with accelerate launch --use_fsdp"
            )
        return model.to(device)
    # A step of the usual size is less than half a unit in the last place of most half-precision weights.
    dtype = "float32" if settings.full and target.dtype == "auto" else target.dtype
    return open_model(str(model), dtype, device, check_weights=target.check_weights)


def _refuse_untrainable(model: str | Path | Model) -> None:
    """By the published name or config.json, before anything is fetched or read."""
    name, family = (model.name, model.family) if isinstance(model, Model) else (str(model), find_family(model))
    if model.mask_id is None if isinstance(model, Model) else family.causal:
        raise UserError(
            f"{name} is autoregressive and has no mask token: turn it into a diffusion model first (convert)"
        )


@contextmanager
def _run_folder(out: Path, description: dict[str, Any]) -> Iterator[None]:
    """The folder of a run, locked and described: refused where it holds a run on other weights."""
    with saving(out / "settings.json", "nothing was begun"):
        out.mkdir(parents=True, exist_ok=True)
    with only_user_of(out):
        refuse_links(out)
        refuse_links(out / "checkpoints")
        refuse_other_base(out, description["base"])
        with saving(out / "settings.json", "nothing was begun"):
            drop_incomplete(out / "checkpoints")
            write_json(out / "settings.json", description)
            (out / "checkpoints").mkdir(exist_ok=True)  # the Trainer would make it, with a traceback on a full disk
        yield


def _train(
    model: Model,
    prepared: PreparedRun,
    target: RunTarget,
    reporters: Sequence[str],
    identity: dict[str, Any],
    counts: dict[str, Any],
) -> dict[str, Any]:
    """Measure, train from the newest checkpoint on, measure again, and write the result."""
    trainer = prepared.make_trainer()
    with torch.autocast(model.device.type, torch.bfloat16, enabled=trainer.args.bf16):  # as it is measured after
        before = trainer.scores(model) if prepared.evaluates else None
    if before is not None and not all(map(isfinite, before.values())):
        refuse_nonfinite_rows(model, prepared.example, "the held-out examples, before the first step,")
    logs = target.out / "logs"
    for callback in (*target.callbacks, *reporter_callbacks(reporters, logs, trainer.is_world_process_zero())):
        trainer.add_callback(callback)
    about = {"model": identity["model"], "out": str(target.out), **counts}
    with wandb_run("wandb" in reporters):
        resume(trainer, target.out)
        return finish(trainer, target.out, before, about, identity["data"])


def resume(trainer: RunTrainer, out: Path) -> None:
    """Train from the newest whole checkpoint, or from the beginning."""
    newest = newest_whole(out / "checkpoints", trainer.tell)
    if newest is not None:
        refuse_unreadable(newest)
    try:
        trainer.train(resume_from_checkpoint=str(newest) if newest is not None else None)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"{trainer.what_is_kept()} in {out}, the same command goes on from there") from None
    finally:
        trainer.bar.stop()
        trainer.tuned.eval()  # for the last measures, and for the caller whose model was trained in place


def finish(
    trainer: RunTrainer, out: Path, before: dict[str, float] | None, about: dict[str, Any], data: dict[str, str]
) -> dict[str, Any]:
    """Write the weights with their card, then the result that marks the run as finished."""
    after = trainer.last_scores() if trainer.held_out else None
    log = [entry for entry in trainer.state.log_history if "loss" in entry]
    result = {
        **about,
        "steps": trainer.state.global_step,
        "masks": masks_used(trainer.compared, trainer.settings),
        "before": before,
        "after": after,
        "losses": [entry["loss"] for entry in log],
    }
    weights = trained_weights(trainer.tuned)
    if trainer.args.should_save:
        partial = out / "weights.partial"
        with saving(partial, trainer.what_is_kept()):
            save_trained_weights(trainer.tuned, partial, weights, trainer.source)
            replace_file(partial / "README.md", [trained_card(result, trainer.settings, data, trainer.source)])
            for file in sorted(partial.iterdir()):
                file.replace(out / file.name)
            partial.rmdir()
            write_json(out / "result.json", result)
    trainer.accelerator.wait_for_everyone()
    return result


def source_of(model: str | Path | Model) -> Path | None:
    """The folder of the checkpoint that is trained; None for a network that exists in memory only."""
    try:
        return locate_checkpoint(model.name if isinstance(model, Model) else str(model))[0]
    except UserError:
        return None


def is_main_process() -> bool:
    return PartialState().is_main_process


def _versions() -> dict[str, str]:
    others = {package: version(package) for package in ("torch", "transformers", "peft", "accelerate")}
    return {"maskwise": __version__, **others}
