"""transformers' Trainer with the mask-agnostic loss (Piskorz et al., arXiv 2511.21338).

Checkpoints count only when they are complete, and the first loss that is not finite stops the run.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from rich.progress import Progress
from torch import Tensor, nn
from torch.utils.data import SequentialSampler
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import PrinterCallback

from maskwise.diffusion import Views, mask_agnostic_call
from maskwise.errors import UserError
from maskwise.models.base import Model
from maskwise.models.finite import nonfinite_weights
from maskwise.progress import progress_bar
from maskwise.terminal import one_line, open_console
from maskwise.training.dataset import Collator, NoisedPairs
from maskwise.training.evaluation import measure
from maskwise.training.folder import checkpoint_step, complete_checkpoints, keep_newest, saving, vouch, write_json
from maskwise.training.settings import TuneSettings
from maskwise.training.weights import load_trained_weights, save_trained_weights, trained_weights


class TuneTrainer(Trainer):
    """Differs from its parent in what a loss is, in what a checkpoint holds, and in when it may be resumed."""

    def __init__(
        self,
        model: Model,
        arguments: TrainingArguments,
        settings: TuneSettings,
        dataset: NoisedPairs,
        collator: Collator,
        held_out: Sequence[Views],
        source: Path | None,
    ) -> None:
        super().__init__(
            model=model,
            args=arguments,
            train_dataset=dataset,
            data_collator=collator,
            eval_dataset=list(held_out) or None,  # type: ignore[arg-type]
        )
        self.settings, self.held_out, self.source = settings, held_out, source
        self.checkpoints = Path(str(arguments.output_dir))
        self.micro_batches: list[tuple[dict[str, Any], Tensor]] = []  # of the optimiser step under way
        self.parts: list[Tensor] = []  # [2] CE and TV of each micro-batch since the last log
        self.remove_callback(PrinterCallback)  # it writes on standard output
        self.add_callback(_StopAtBadLoss(self))
        self.bar = _ProgressCallback()
        self.add_callback(self.bar)

    @property
    def tuned(self) -> Model:
        """The model inside whatever trains it (DDP wraps it, FSDP2 shards it in place)."""
        assert isinstance(self.model, Model)
        return self.model

    def _get_train_sampler(self, *_: Any) -> SequentialSampler:
        """The data set is in its final order already."""
        return SequentialSampler(self.train_dataset)  # type: ignore[arg-type]

    def compute_loss(self, model: nn.Module, inputs: dict[str, Any], *_: Any, **__: Any) -> Tensor:  # type: ignore[override]
        """Everything runs inside one call of the (wrapped) model; a mean over the micro-batch's pairs."""
        call = mask_agnostic_call(self.tuned, inputs["views"], self.settings.one_branch)
        loss, ce, tv = model(call.batch, call.index, call.loss)
        self.micro_batches.append((inputs, loss.detach()))
        self.parts.append(torch.stack([ce, tv]))
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
        views = [{name: value.tolist() for name, value in vars(view).items()} for view in inputs["views"]]
        micro, pairs = inputs["micro"], inputs["pairs"]
        write_json(where, {"loss": str(float(loss)), "micro_batch": micro, "pairs": pairs, "views": views})
        spoiled = nonfinite_weights(self.tuned.net)
        remedy = "lower --learning-rate or look at those pairs"
        if spoiled:
            remedy = f"the weights themselves are not finite by now, first {spoiled[0]}; {remedy}"
        raise UserError(
            f"the loss became {float(loss)} at step {self.state.global_step + 1} (micro-batch {micro}); its batch is "
            f"in {where}, {self.what_is_kept()}: {remedy}"
        )

    def log(self, logs: dict[str, float], *rest: Any) -> None:
        """The loss's two terms beside their sum: alpha CE / p and beta p TV."""
        if "loss" in logs and self.parts:
            ce, tv = self.accelerator.reduce(torch.stack(self.parts).mean(0), "mean").tolist()
            logs, self.parts = {**logs, "loss_ce": ce, "loss_tv": tv}, []
        super().log(logs, *rest)

    def evaluate(self, *_: Any, metric_key_prefix: str = "eval", **__: Any) -> dict[str, float]:  # type: ignore[override]
        """Every process measures all held-out pairs: sharded weights need them all, and the pairs are few."""
        training = self.tuned.training
        self.tuned.eval()
        scores = measure(self.tuned, self.model_wrapped, self.held_out)
        self.tuned.train(training)
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in scores.items()}
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

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
            super()._save_checkpoint(model, trial)
            self.accelerator.wait_for_everyone()
            if self.args.should_save:
                vouch(folder, self.state.global_step)
        if self.args.should_save:
            keep_newest(folder.parent, self.settings.keep)


class _StopAtBadLoss(TrainerCallback):
    def __init__(self, trainer: TuneTrainer) -> None:
        self.trainer = trainer

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.trainer.stop_at_bad_loss()


class _ProgressCallback(TrainerCallback):
    """Steps, loss and the time left, on standard error."""

    def __init__(self) -> None:
        self.progress: Progress | None = None

    def on_train_begin(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if state.is_world_process_zero:
            self.progress = progress_bar()
            self.task = self.progress.add_task("tuning", total=state.max_steps, completed=state.global_step)
            self.progress.start()

    def on_log(self, args: Any, state: TrainerState, control: Any, **given: Any) -> None:
        if self.progress is not None and "loss" in given["logs"]:
            loss = f"tuning, loss {given['logs']['loss']:.4g}"
            self.progress.update(self.task, completed=state.global_step, description=loss)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.stop()

    def stop(self) -> None:
        if self.progress is not None:
            self.progress.stop()
            self.progress = None
