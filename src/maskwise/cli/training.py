"""The commands that train a model: on documents (train), and to ignore appended masks (tune)."""

import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from maskwise.cli import common
from maskwise.cli.common import echo, known_device, print_json, writable
from maskwise.cli.early import check_data, check_models
from maskwise.support.errors import UserError
from maskwise.support.garbage_collection import collection_paused
from maskwise.support.option_fields import takes_fields
from maskwise.training.checked_settings import settings_from, train_settings
from maskwise.training.reporters import check_reporters
from maskwise.training.training_settings import PRESET_PAIRS, TrainSettings, TuneSettings

Tensorboard = Annotated[bool | None, typer.Option("--tensorboard/--no-tensorboard", help="Log to OUT/logs.")]
ReportTo = Annotated[
    str | None,
    typer.Option(help="wandb, tensorboard, mlflow, separated by commas, or none. Default: TensorBoard, if installed."),
]
TrainingDevice = Annotated[str | None, typer.Option(help="cpu or cuda.", callback=known_device)]


@takes_fields(TrainSettings, changes="default")
def train(
    model: common.ModelName,
    data: Annotated[Path, typer.Option(help="Text, or .jsonl with text, messages, prompt/completion.")],
    out: Annotated[Path, typer.Option(help="Folder for the adapter or checkpoint.", callback=writable)],
    options: Any = None,
    tensorboard: Tensorboard = None,
    report_to: ReportTo = None,
    dtype: common.Dtype = "auto",
    device: TrainingDevice = None,
    check_weights: common.CheckWeights = True,
    json: common.Json = False,
) -> None:
    """Train a masked diffusion model on documents. Run it again to resume."""
    given = (train_settings(options), dtype, device, tensorboard, check_weights, report_to)
    _train("maskwise.training.train:train", model, data, out, given, json)


@takes_fields(TuneSettings, changes="paper-base")
def tune(
    model: common.ModelName,
    data: Annotated[
        Path | None, typer.Option(help="Pairs as .jsonl (prompt/answer or completion, messages, ...), or text.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the adapter; runs/MODEL-tuned if not given.", callback=writable)
    ] = None,
    preset: Annotated[
        str, typer.Option(help="paper-base, paper-instruct; with -ce: CE alone; quick: minutes, brings its own pairs.")
    ] = "paper-base",
    options: Any = None,
    tensorboard: Tensorboard = None,
    report_to: ReportTo = None,
    dtype: common.Dtype = "auto",
    device: TrainingDevice = None,
    check_weights: common.CheckWeights = True,
    json: common.Json = False,
) -> None:
    """Tune a model with LoRA so that appended masks do not change its answers. Run it again to resume."""
    settings = settings_from(preset, options)
    data = data or PRESET_PAIRS.get(preset)
    if data is None:
        raise UserError("there is nothing to tune on: give --data FILE, or --preset quick, which brings its own pairs")
    given = (settings, dtype, device, tensorboard, check_weights, report_to)
    _train("maskwise.training.tune:tune", model, data, out or Path("runs") / f"{Path(model).name}-tuned", given, json)


def _train(function: str, model: str, data: Path, out: Path, given: tuple[Any, ...], json: bool) -> None:
    """Calls the library's `train` or `tune`, and prints what it did."""
    settings, dtype, device, tensorboard, check_weights, report_to = given
    check_models([model], None, dtype)
    check_data(data)
    check_reporters(report_to)
    module, _, name = function.partition(":")
    with collection_paused(), redirect_stdout(sys.stderr):
        from maskwise.training.training_run import is_main_process

        library = import_module(module)
    finished = (out / "result.json").exists()
    with redirect_stdout(sys.stderr):  # Weights & Biases prints about itself on standard output
        result = getattr(library, name)(
            model, data, out, settings, dtype, device, tensorboard, check_weights=check_weights, report_to=report_to
        )
    if not is_main_process():
        return
    if json:
        return print_json(result)
    if finished:
        echo("maskwise: this run was finished before; these are its figures", err=True)
    echo("\n".join(library.summary_lines(result)))
