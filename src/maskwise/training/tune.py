"""`maskwise tune`: pairs -> noised answers -> two views -> one ragged batch -> fused CE + TV -> adapter."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from shlex import quote
from typing import Any

from transformers import TrainerCallback

from maskwise.diffusion import Views
from maskwise.models.model import Model
from maskwise.support.errors import UserError
from maskwise.support.files import Records
from maskwise.support.terminal import counted, one_line, open_console
from maskwise.training.arguments import arguments_for
from maskwise.training.checked_settings import SettingValue, refuse_no_settings, settings_from
from maskwise.training.data.end_tokens import end_of_text
from maskwise.training.data.held_out import held_out_views, split
from maskwise.training.data.noised_pairs import NoisedPairs, collate_pairs
from maskwise.training.data.pairs import Pair, read_pairs, tokenize_pairs
from maskwise.training.data.reading import DataFile
from maskwise.training.evaluation import many_masks, summary
from maskwise.training.reporters import check_callbacks, check_reporters
from maskwise.training.trainer import TuneTrainer
from maskwise.training.training_run import PreparedRun, RunTarget, is_main_process, run, source_of
from maskwise.training.training_settings import PRESET_PAIRS, TuneSettings


def tune(
    model: str | Path | Model,
    data: Records | None = None,
    out: str | Path | None = None,
    settings: TuneSettings | None = None,
    dtype: str = "auto",
    device: str | None = None,
    tensorboard: bool | None = None,
    callbacks: list[TrainerCallback] | None = None,
    check_weights: bool = True,
    *,
    preset: str = "paper-base",
    report_to: str | Sequence[str] | None = None,
    **changes: SettingValue,
) -> dict[str, Any]:
    """Tune a model to give the same answer however many masks follow (mask-agnostic loss, LoRA). It resumes.

    Arguments:
        model: a name, or an opened model, which is tuned in place.
        data: pairs: a .jsonl or text file, a list of dicts or a datasets.Dataset, with prompt and answer, question and
            answer, or messages. The preset quick brings its own.
        out: the folder for the adapter, or the whole model, and every setting; else runs/MODEL-tuned.
        settings: all settings as one value (`maskwise.training.training_settings.TuneSettings`); else `preset`
            (paper-base, paper-instruct, with -ce the cross-entropy alone, quick) with `changes` by name, as steps=20.
        dtype, device, check_weights: as in `mw.open`, for a model given by name.
        tensorboard: write OUT/logs; else where TensorBoard is installed. callbacks: of transformers' Trainer.
        report_to: as in transformers: some of wandb, tensorboard, mlflow, or "none".

    Returns:
        What result.json holds: counts, the measures before and after on held-out pairs, the loss of every step. Called
        again with the same settings it resumes where it was stopped, or returns the result of a finished run.

    >>> import maskwise as mw
    >>> pairs = [{"prompt": f"{n} and {n} is", "answer": f" {n + n}."} for n in range(10)]
    >>> result = mw.tune("tiny-llada", pairs, "runs/tuned", preset="quick", steps=1, batch=2, context=64)
    >>> result["steps"], mw.open("runs/tuned").name
    (1, 'runs/tuned')
    """
    chosen = settings_from(preset, changes) if settings is None else settings
    refuse_no_settings(settings, TuneSettings)
    if settings is not None and changes:
        raise UserError(f"settings and {next(iter(changes))} exclude each other: put it into the settings")
    name = model.name if isinstance(model, Model) else str(model)
    source: Records | None = PRESET_PAIRS.get(preset) if data is None else data
    if source is None:
        raise UserError("there is nothing to tune on: give --data FILE, or --preset quick, which brings its own pairs")
    out = Path("runs") / f"{Path(name).name}-tuned" if out is None else Path(out)

    def prepare(opened: Model, data_file: DataFile) -> PreparedRun:
        assert opened.mask_id is not None
        pairs = tokenize_pairs(data_file, opened, chosen.context, chosen.text_piece)
        held_out, training = split(pairs.kept, chosen)
        views = held_out_views(held_out, chosen, opened.mask_id)
        if is_main_process() and (cost := cost_line(training, chosen)):
            open_console(stderr=True).print(cost, markup=False, soft_wrap=True)
        return PreparedRun(
            counts={"pairs": len(training), "held_out": len(held_out), "dropped": pairs.dropped},
            evaluates=bool(views),
            make_trainer=lambda: make_trainer(opened, training, chosen, out, views, source_of(name)),
            example=training[0].prompt,
        )

    target = RunTarget(
        out, dtype, device, tensorboard, check_callbacks(callbacks), check_weights, check_reporters(report_to)
    )
    return run(model, chosen, lambda: read_pairs(source), prepare, target)


def cost_line(pairs: Sequence[Pair], settings: TuneSettings) -> str | None:
    """A warning of the cost of the paper's steps on few pairs; None where there are pairs enough, or other steps."""
    seen = settings.steps * settings.batch * settings.accumulation
    if settings.steps != TuneSettings().steps or seen < 100 * len(pairs):
        return None
    length = sum(pair.length for pair in pairs) / len(pairs) + settings.max_masks / 2
    tokens = 2 * seen * min(length, settings.context) / 1e6
    each = settings.batch * settings.accumulation
    return (
        f"maskwise: the defaults are the paper's {settings.steps} steps of {each} pairs: each of the "
        f"{counted(len(pairs), 'pair')} is seen {seen // len(pairs):,} times, in all about {tokens:,.0f} million "
        "tokens, forward and backward; --steps 20 or --preset quick is shorter"
    )


def make_trainer(
    model: Model,
    pairs: list[Pair],
    settings: TuneSettings,
    out: Path,
    views: list[Views],
    source: Path | None,
) -> TuneTrainer:
    """The Trainer of a model after `make_trainable`; its checkpoints go to out/checkpoints."""
    arguments = arguments_for(model, settings, out, bool(views))
    assert model.mask_id is not None
    dataset = NoisedPairs(pairs, settings, model.mask_id, arguments.world_size)
    collator = partial(collate_pairs, pad_token=end_of_text(model) if settings.pad_eos else None)
    return TuneTrainer(model, arguments, settings, dataset, collator, views, source)


def summary_lines(result: dict[str, Any]) -> list[str]:
    """The summary printed at the end: the measures before and after, and the next command."""
    few, many, out = result["masks"]["few"], many_masks(result["masks"]), one_line(result["out"])
    names = {
        "ce": "cross-entropy (nats)",
        "tv": f"TV between {few} and {many} masks",
        "accuracy_few": f"token accuracy, {few} masks",
        "accuracy_many": f"token accuracy, {many} masks",
        "gap": "difference in token accuracy",
    }
    kept, dropped = counted(result["pairs"], "pair"), result["dropped"]
    used = f"{kept}, {result['held_out']} held out, {dropped} exceeding the context length"
    return summary(
        result, used, "held-out tuning pairs", names, f"compare {quote(one_line(result['model']))} {quote(out)}"
    )
