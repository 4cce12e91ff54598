"""`maskwise train`: documents -> rows -> noise of the objective -> one ragged batch -> fused CE -> weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from torch import Tensor, nn
from transformers import TrainerCallback, TrainingArguments

from maskwise.diffusion import MicroBatch, Noised, Objective, Views, nelbo_call
from maskwise.diffusion.objectives import find_objective
from maskwise.models.model import Model
from maskwise.support.errors import UserError
from maskwise.support.files import Records
from maskwise.support.terminal import counted, one_line
from maskwise.training.arguments import arguments_for
from maskwise.training.block_models import block_of
from maskwise.training.checked_settings import SettingValue, refuse_no_settings, train_settings
from maskwise.training.data.documents import read_documents, tokenize_rows
from maskwise.training.data.held_out import held_out_blocks, held_out_noise, held_out_prefixes, split
from maskwise.training.data.noised_rows import NoisedRows, collate_rows
from maskwise.training.data.reading import DataFile
from maskwise.training.evaluation import many_masks, mean_scores, summary
from maskwise.training.reporters import check_callbacks, check_reporters
from maskwise.training.trainer import RunTrainer
from maskwise.training.training_run import PreparedRun, RunTarget, run, source_of
from maskwise.training.training_settings import BLOCK, WARMUP, TrainSettings

TOKENS_PER_PASS = 8192


def train(
    model: str | Path | Model,
    data: Records,
    out: str | Path,
    settings: TrainSettings | None = None,
    dtype: str = "auto",
    device: str | None = None,
    tensorboard: bool | None = None,
    callbacks: list[TrainerCallback] | None = None,
    check_weights: bool = True,
    *,
    report_to: str | Sequence[str] | None = None,
    **changes: SettingValue,
) -> dict[str, Any]:
    """Train a masked diffusion model (converted, new or published) on documents. Called again, it resumes.

    Arguments:
        model: a name, or an opened model, which is trained in place.
        data: a text or .jsonl file, a list of dicts or a datasets.Dataset, with text or messages.
        out: the folder for the adapter, or the whole model, and every setting.
        settings: all settings as one value (`maskwise.training.training_settings.TrainSettings`); else the defaults
            with `changes` by name, such as steps=200, objective="blockwise". An objective of your own is given as a
            value (`maskwise.diffusion.Objective`), and its parameters by their names.
        dtype, device, check_weights: as in `mw.open`, for a model given by name.
        tensorboard: write OUT/logs; else where TensorBoard is installed. callbacks: of transformers' Trainer.
        report_to: as in transformers: some of wandb, tensorboard, mlflow, or "none".

    Returns:
        What result.json holds: counts, the measures before and after on held-out rows, the loss of every step.

    >>> import maskwise as mw
    >>> documents = [{"text": f"The sum of {n} and {n} is {n + n}."} for n in range(100)]
    >>> mw.train("tiny-llada", documents, "runs/trained", steps=1, batch=2, context=32, many=8)["steps"]
    1
    """
    chosen = train_settings(changes) if settings is None else settings
    refuse_no_settings(settings, TrainSettings)
    if settings is not None and changes:
        raise UserError(f"settings and {next(iter(changes))} exclude each other: put it into the settings")
    chosen = completed(chosen, model)

    def prepare(opened: Model, data_file: DataFile) -> PreparedRun:
        assert opened.mask_id is not None
        mask_id, source = opened.mask_id, source_of(model)
        rows = tokenize_rows(data_file, opened, chosen.context, chosen.rows)
        held_out, training = split(rows.kept, chosen)
        tokens = sum(piece.count for row in held_out for piece in row)
        if opened.block is None:
            prefixes = held_out_prefixes(held_out, chosen, mask_id, opened.window)
            kept = HeldOut(held_out_noise(held_out, chosen.seed, mask_id), tokens, prefixes)
        else:  # it sees no masks after a block: there is no tax on them
            kept = HeldOut(held_out_blocks(held_out, chosen.seed, mask_id, opened.block), tokens, [])

        def make_trainer() -> DiffusionTrainer:
            arguments = arguments_for(opened, chosen, Path(out), bool(held_out))
            dataset = NoisedRows(training, chosen, mask_id, arguments.world_size, opened.block)
            return DiffusionTrainer(opened, arguments, chosen, dataset, kept, source)

        counts = {"tokens": rows.tokens, "rows": len(training), "held_out": len(held_out), "dropped": rows.dropped}
        example = training[0][0].ids.tolist()
        return PreparedRun(counts, bool(held_out), make_trainer, example, mask_row=opened.family.native)

    target = RunTarget(
        Path(out), dtype, device, tensorboard, check_callbacks(callbacks), check_weights, check_reporters(report_to)
    )
    return run(model, chosen, lambda: read_documents(data), prepare, target)


def completed(settings: TrainSettings, model: str | Path | Model) -> TrainSettings:
    """The settings with the defaults that depend on the model, the number of steps and the objective."""
    objective, block, warmup = find_objective(settings.objective), settings.block, settings.warmup
    if block is None and "block" in objective.takes:
        block = block_of(model) or BLOCK
    if warmup is None:  # the rate of the first step of a warm-up is 0: one step would learn nothing
        warmup = min(WARMUP, settings.steps // 10)
    return replace(settings, block=block, warmup=warmup, parameters={**objective.parameters, **settings.parameters})


@dataclass(frozen=True)
class HeldOut:
    """The held-out rows, noised once."""

    noised: list[Noised]
    tokens: int  # that carry loss
    prefixes: list[Views]

    def __len__(self) -> int:
        return len(self.noised)


def measure_held_out(model: Model, call_model: Callable[..., Any], held_out: HeldOut) -> dict[str, float]:
    """nelbo: nats per token. next_few, next_many: NLL (nats) of the next token after a clean prefix, with few and with
    many masks after it; mask_tax: their difference."""
    scores = {"nelbo": mean_nelbo(model, call_model, held_out.noised, held_out.tokens)}
    if held_out.prefixes:
        few, many, *_ = mean_scores(model, call_model, held_out.prefixes)
        scores |= {"next_few": few, "next_many": many, "mask_tax": many - few}
    return scores


@torch.no_grad()
def mean_nelbo(model: Model, call_model: Callable[..., Any], noised: Sequence[Noised], tokens: int) -> float:
    """Nats per token, with the model's own attention."""
    some: list[Noised] = []
    total, size = 0.0, 0
    for number, one in enumerate(noised):
        some, size = [*some, one], size + len(one.ids)
        if size >= TOKENS_PER_PASS or number == len(noised) - 1:
            call = nelbo_call(model, some, count=1)
            total, some, size = total + float(call_model(call.batch, call.index, call.loss)), [], 0
    return total / tokens


class DiffusionTrainer(RunTrainer):
    """Trains with the objective of the run on rows of documents."""

    shown = {"nelbo": "NELBO", "mask_tax": "mask tax"}  # noqa: RUF012
    settings: TrainSettings

    def __init__(
        self,
        model: Model,
        arguments: TrainingArguments,
        settings: TrainSettings,
        dataset: NoisedRows,
        held_out: HeldOut,
        source: Path | None,
    ) -> None:
        super().__init__(model, arguments, settings, dataset, collate_rows, held_out.noised, source)
        self.kept = held_out
        self.objective: Objective = find_objective(settings.objective)

    def loss_of(self, call_model: nn.Module, inputs: dict[str, Any]) -> tuple[Tensor, Tensor]:
        model, settings, examples = self.tuned, self.settings, inputs["examples"]
        batch = MicroBatch(model, call_model, examples, len(inputs["rows"]), inputs["chances"], settings)
        call = self.objective.loss(batch)
        loss = call_model(call.batch, call.index, call.loss)
        return loss, loss.new_zeros(0)

    def scores(self, call_model: Callable[..., Any]) -> dict[str, float]:
        return measure_held_out(self.tuned, call_model, self.kept)

    @property
    def compared(self) -> Sequence[Views]:
        return self.kept.prefixes

    def written(self, inputs: dict[str, Any]) -> dict[str, Any]:
        examples = [{name: value.tolist() for name, value in vars(one).items()} for one in inputs["examples"]]
        return {"rows": inputs["rows"], "examples": examples}


def summary_lines(result: dict[str, Any]) -> list[str]:
    """The summary printed at the end: the measures before and after, and the next command."""
    few, many, out = result["masks"]["few"], many_masks(result["masks"]), one_line(result["out"])
    names = {
        "nelbo": "NELBO (nats per token)",
        "next_few": f"next token's NLL, {few} masks",
        "next_many": f"next token's NLL, {many} masks",
        "mask_tax": "mask tax (nats)",
    }
    dropped = counted(result["dropped"], "chat")
    used = f"{counted(result['rows'], 'row')}, {result['held_out']} held out, {dropped} longer than a row"
    return summary(result, used, "held-out rows", names, f'generate {quote(out)} "Once upon a time"')
