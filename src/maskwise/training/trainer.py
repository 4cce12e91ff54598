"""transformers' Trainer over the model interface: the base of both trainers, and the trainer of tuning.

Checkpoints count only when they are complete, and the first loss that is not finite stops the run.
"""

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor, nn
from torch.utils.data import SequentialSampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from maskwise.diffusion import Views, anchored_call, mask_agnostic_call
from maskwise.models.finite import nonfinite_weights
from maskwise.models.model import Model
from maskwise.support.errors import UserError
from maskwise.support.progress import Forecast, progress_bar
from maskwise.support.terminal import one_line, open_console
from maskwise.training.data.epochs import Epochs
from maskwise.training.evaluation import measure
from maskwise.training.run_folder import checkpoint_step, complete_checkpoints, keep_newest, saving, vouch, write_json
from maskwise.training.training_settings import SharedSettings, TuneSettings
from maskwise.training.weights import load_trained_weights, save_trained_weights, trained_weights

# accelerate calls the device of processes without a GPU cpu:0, to which torch cannot read a state by itself.
torch.serialization.register_package(
    99, lambda storage: None, lambda storage, place: storage if place.startswith("cpu:") else None
)


class RunTrainer(Trainer, ABC):
    """transformers' Trainer with losses over ragged batches and checkpoints that are resumed only when complete.

    A subclass defines the loss of a micro-batch, the measures on held-out examples, and how a micro-batch whose loss is
    not finite is written to a file.
    """

    verb = "training"
    shown: dict[str, str] = {}  # noqa: RUF012  scores that are printed while it runs, with their labels

    def __init__(
        self,
        model: Model,
        arguments: TrainingArguments,
        settings: SharedSettings,
        dataset: Epochs,
        collator: Callable[[Sequence[Any]], dict[str, Any]],
        held_out: Sequence[Any],
        source: Path | None,
    ) -> None:
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=dataset,
            data_collator=collator,  # type: ignore[arg-type]
            eval_dataset=list(held_out) or None,  # type: ignore[arg-type]
        )
        self.settings, self.held_out, self.source = settings, held_out, source
        self.checkpoints = Path(str(arguments.output_dir))
        self.micro_batches: list[tuple[dict[str, Any], Tensor]] = []  # of the optimiser step under way
        self.parts: list[Tensor] = []  # one for each micro-batch since the last log, in the order of part_names
        self.remove_callback(PrinterCallback)  # it writes on standard output
        self.add_callback(_StopAtBadLoss(self))
        if held_out:
            self.add_callback(_MeasureAtTheEnd())
        self.bar = _ProgressCallback(self.verb, self.shown)
        self.add_callback(self.bar)

    @abstractmethod
    def loss_of(self, call_model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        """The loss, a mean over the micro-batch's examples, and its parts, from one call of the model with gradient."""

    @abstractmethod
    def scores(self, call_model: Callable[..., Any]) -> dict[str, float]:
        """The measures on the held-out examples; `call_model` is the model or the DDP or FSDP2 wrapper around it."""

    @abstractmethod
    def written(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """A micro-batch as JSON."""

    @property
    @abstractmethod
    def compared(self) -> Sequence[Views]:
        """The held-out examples that are measured with few and with many masks appended."""

    @property
    def part_names(self) -> tuple[str, ...]:
        """Terms of the loss, logged together with it."""
        return ()

    @property
    def tuned(self) -> Model:
        """The model without the wrapper of DDP (FSDP2 shards it in place)."""
        assert isinstance(self.model, Model)
        return self.model

    def _get_train_sampler(self, *_: Any) -> SequentialSampler:
        """The data set is in its final order already."""
        return SequentialSampler(self.train_dataset)  # type: ignore[arg-type]

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:  # type: ignore[override]
        """Everything trained runs inside one call of the (wrapped) model."""
        loss, parts = self.loss_of(model, inputs)
        self.micro_batches.append((inputs, loss.detach()))
        self.parts.append(parts)
        return loss

    def stop_at_bad_loss(self) -> None:
        """Before the weights change: a loss that is not finite ends the run, on all processes, its batch saved."""
        losses = torch.stack([loss for _, loss in self.micro_batches])
        seen, self.micro_batches = self.micro_batches, []
        bad = ~torch.isfinite(losses)
        if not bool(self.accelerator.reduce(bad.any().float(), "sum")):
            return
        where = self.checkpoints.parent / f"bad-batch-{self.args.process_index}.json"
        if not bool(bad.any()):
            raise UserError(f"another process met a loss that is not finite at step {self.state.global_step + 1}")
        inputs, loss = seen[int(bad.nonzero()[0])]
        micro = inputs["micro"]
        write_json(where, {"loss": str(float(loss)), "micro_batch": micro, **self.written(inputs)})
        spoiled = nonfinite_weights(self.tuned.net)
        remedy = "lower --learning-rate or look at that batch"
        if spoiled:
            remedy = f"the weights themselves are not finite by now, first {spoiled[0]}; {remedy}"
        raise UserError(
            f"the loss became {float(loss)} at step {self.state.global_step + 1} (micro-batch {micro}); its batch is "
            f"in {where}, {self.what_is_kept()}: {remedy}"
        )

    def log(self, logs: dict[str, float], *rest: Any) -> None:
        """Log the terms of the loss together with their sum."""
        if "loss" in logs and self.parts:
            means = self.accelerator.reduce(torch.stack(self.parts).mean(0), "mean").tolist()
            logs, self.parts = {**logs, **dict(zip(self.part_names, means, strict=True))}, []
        super().log(logs, *rest)

    def evaluate(self, *_: Any, metric_key_prefix: str = "eval", **__: Any) -> dict[str, float]:  # type: ignore[override]
        """Every process measures all held-out examples: sharded weights need them all, and they are few."""
        training = self.tuned.training
        self.tuned.eval()
        scores = self.scores(self.model_wrapped)
        self.tuned.train(training)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in scores.items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def last_scores(self) -> dict[str, float]:
        """The measures of the last step by name; measured now if a run is resumed after its last step."""
        for entry in reversed(self.state.log_history):
            if entry["step"] == self.state.global_step and any(name.startswith("eval_") for name in entry):
                return {name.removeprefix("eval_"): value for name, value in entry.items() if name.startswith("eval_")}
        return self.scores(self.model_wrapped)

    # Checkpoints

    def tell(self, line: str) -> None:
        """One line on standard error, by one process."""
        if self.args.should_save:
            open_console(stderr=True).print(f"maskwise: {one_line(line)}", markup=False, soft_wrap=True)

    def what_is_kept(self) -> str:
        complete = complete_checkpoints(self.checkpoints)
        if not complete:
            return "no checkpoint was due yet"
        return f"the checkpoint of step {checkpoint_step(complete[-1])} is kept"

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        weights = trained_weights(self.tuned)
        if self.args.should_save:
            save_trained_weights(self.tuned, Path(output_dir or self.checkpoints), weights, self.source)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        load_trained_weights(self.tuned, Path(resume_from_checkpoint))

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """The parent's files, then the marker that makes them resumable, then the oldest checkpoints go."""
        folder = self.checkpoints / f"checkpoint-{self.state.global_step}"
        with saving(folder, self.what_is_kept()):
            if self.args.should_save and folder.exists():  # a damaged one, which was passed over
                shutil.rmtree(folder)
            self.accelerator.wait_for_everyone()
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                vouch(folder, self.state.global_step)
        if self.args.should_save:
            keep_newest(folder.parent, self.settings.keep)


class TuneTrainer(RunTrainer):
    """The mask-agnostic loss (Piskorz et al., arXiv 2511.21338); its parts are alpha CE / p and beta p TV, or beta p KL
    where it is anchored."""

    verb = "tuning"
    settings: TuneSettings

    @property
    def part_names(self) -> tuple[str, ...]:
        return "loss_ce", "loss_kl" if self.settings.anchored else "loss_tv"

    def loss_of(self, call_model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        views = inputs["views"]
        if self.settings.anchored:
            call = anchored_call(self.tuned, call_model, views)
        else:
            call = mask_agnostic_call(self.tuned, views, self.settings.one_branch)
        loss, ce, other = call_model(call.batch, call.index, call.loss)
        return loss, torch.stack([ce, other])

    def scores(self, call_model: Callable[..., Any]) -> dict[str, float]:
        return measure(self.tuned, call_model, self.held_out)

    @property
    def compared(self) -> Sequence[Views]:
        return self.held_out

    def written(self, inputs: dict[str, Any]) -> dict[str, Any]:
        views = [{name: value.tolist() for name, value in vars(view).items()} for view in inputs["views"]]
        return {"pairs": inputs["pairs"], "views": views}


class _StopAtBadLoss(TrainerCallback):
    def __init__(self, trainer: RunTrainer) -> None:
        self.trainer = trainer

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.stop_at_bad_loss()


class _MeasureAtTheEnd(TrainerCallback):
    """Evaluates at the last step, because reporters are closed after training."""

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.global_step >= state.max_steps:
            control.should_evaluate = True


class _ProgressCallback(TrainerCallback):
    """Steps, loss and the time left, on standard error, and a line for each evaluation."""

    def __init__(self, verb: str, shown: dict[str, str]) -> None:
        self.verb, self.shown = verb, shown
        self.progress: Progress | None = None
        self.forecast: Forecast | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            self.progress = progress_bar()
            self.task = self.progress.add_task(self.verb, total=state.max_steps, completed=state.global_step)
            self.progress.start()
            left, rows = state.max_steps - state.global_step, args.train_batch_size * args.gradient_accumulation_steps
            size = f"{left:,} steps of {rows * args.world_size} rows"
            show = self.progress.console.print
            self.forecast = Forecast(left, size, lambda line, _: show(line))

    def on_step_end(self, args: Any, state: TrainerState, control: Any, **_: Any) -> None:
        if self.forecast is not None:
            self.forecast.advance(1)

    def on_log(self, args: Any, state: TrainerState, control: Any, **given: Any) -> None:
        if self.progress is not None and "loss" in given["logs"]:
            loss = f"{self.verb}, loss {given['logs']['loss']:.4g}"
            self.progress.update(self.task, completed=state.global_step, description=loss)
        scores = [
            f"{label} {given['logs'][f'eval_{name}']:.4f}"
            for name, label in self.shown.items()
            if f"eval_{name}" in given["logs"]
        ]
        if self.progress is not None and scores:
            self.progress.console.print(f"step {state.global_step}, held out: {', '.join(scores)}", highlight=False)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.stop()

    def stop(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None
