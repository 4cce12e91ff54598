"""`maskwise tune`: pairs -> noised answers -> two views -> one ragged batch -> fused CE + TV -> adapter."""

from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from maskwise.models.base import Model
from maskwise.models.locations import locate_checkpoint
from maskwise.terminal import one_line
from maskwise.training.dataset import Collator, NoisedPairs
from maskwise.training.evaluation import held_out_views
from maskwise.training.pairs import DataFile, Pair, end_of_text, read_data_file, tokenize_pairs
from maskwise.training.run import Place, Work, arguments_for, before_and_after, run, split
from maskwise.training.settings import TuneSettings
from maskwise.training.trainer import TuneTrainer


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

    def prepare(model: Model, data_file: DataFile) -> Work:
        assert model.mask_id is not None
        pairs = tokenize_pairs(data_file, model, settings.context, settings.text_piece)
        held_out, training = split(pairs.kept, settings)
        views = held_out_views(held_out, settings, model.mask_id)
        return Work(
            counts={"pairs": len(training), "held_out": len(held_out), "dropped": pairs.dropped},
            evaluates=bool(views),
            make_trainer=lambda: make_trainer(model, training, settings, out, views, locate_checkpoint(name)[0]),
            example=training[0].prompt,
        )

    place = Place(out, dtype, device, tensorboard, callbacks or [], check_weights)
    return run(name, settings, lambda: read_data_file(data), prepare, place)


def make_trainer(
    model: Model, pairs: list[Pair], settings: TuneSettings, out: Path, views: list[Any], source: Path | None
) -> TuneTrainer:
    """The Trainer of a model that `make_trainable` has seen; its checkpoints go to out/checkpoints."""
    arguments = arguments_for(model, settings, out, bool(views))
    assert model.mask_id is not None
    dataset = NoisedPairs(pairs, settings, model.mask_id, arguments.world_size)
    collator = Collator(end_of_text(model) if settings.pad_eos else None)
    return TuneTrainer(model, arguments, settings, dataset, collator, views, source)


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
    return [
        f"{result['steps']} steps on {used}",
        *before_and_after(result, "held-out pairs", names),
        f"written to {out}",
        f"next: maskwise compare {one_line(result['model'])} {out}",
    ]
